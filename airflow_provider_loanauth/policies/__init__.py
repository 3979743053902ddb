"""Retry policies of tasks."""
