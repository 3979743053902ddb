"""Operators of this provider."""
