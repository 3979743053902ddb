"""Benchmarks that compare this provider with other providers."""
