"""Sensors of this provider."""
