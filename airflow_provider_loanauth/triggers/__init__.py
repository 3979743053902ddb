"""Triggers of this provider."""
