"""Collects everything that is logged at DEBUG: by the standard library's loggers, and by structlog (Airflow 3)."""

import logging

import pytest

try:
    import structlog
except ImportError:  # Airflow 2.11
    structlog = None


class CapturedLogs:
    """Log lines as (logger, level, text), in order."""

    def __init__(self):
        self.entries = []

    def add(self, record):
        self.entries.append((record.name, record.levelname.lower(), logging.Formatter().format(record)))

    def __call__(self, logger, method, event):
        """Take an event of structlog, as a processor."""
        text = event.pop("event", "")
        args = event.pop("positional_args", ())
        text = text % args if args else text
        self.entries.append(("structlog", method, f"{text} {event}" if event else text))
        raise structlog.DropEvent

    @property
    def text(self):
        return "\n".join(text for _, _, text in self.entries)

    def at(self, *levels):
        """Return the texts of these levels from loggers of Airflow and this provider, in order."""
        own = ("structlog", "airflow")
        return [text for name, level, text in self.entries if level in levels and name.startswith(own)]


@pytest.fixture
def logs(monkeypatch):
    """Collect everything that is logged, at DEBUG, on any Airflow, also by loggers that do not propagate records."""
    captured = CapturedLogs()
    call_handlers = logging.Logger.callHandlers

    def call_and_capture(logger, record):
        call_handlers(logger, record)
        captured.add(record)

    monkeypatch.setattr(logging.Logger, "isEnabledFor", lambda *_: True)
    monkeypatch.setattr(logging.Logger, "callHandlers", call_and_capture)
    # In place, as structlog's own capture_logs does, because loggers that exist already keep this list.
    processors = structlog.get_config()["processors"] if structlog else []
    old_processors = list(processors)
    processors[:] = [captured]
    yield captured
    processors[:] = old_processors
