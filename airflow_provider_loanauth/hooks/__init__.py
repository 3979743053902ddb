"""Hooks of this provider."""
