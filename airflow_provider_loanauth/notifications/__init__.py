"""Notifiers of this provider."""
