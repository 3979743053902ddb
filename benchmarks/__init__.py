"""Benchmarks of this provider, beside other providers."""
