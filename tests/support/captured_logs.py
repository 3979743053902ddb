"""Collects everything that is logged at DEBUG: by the standard library's loggers, and by structlog (Airflow 3)."""

import logging

import pytest

try:
    import structlog
    import structlog.testing
except ImportError:  # Airflow 2.11
    structlog = None


class CapturedLogs(logging.Handler):
    """Log lines as (logger, level, text), in order."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.entries = []
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record):
        self.entries.append((record.name, record.levelname.lower(), self.format(record)))

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
def logs():
    """Collect everything that is logged, at DEBUG, on any Airflow, also by loggers that do not propagate records."""
    captured = CapturedLogs()
    loggers = [logger for logger in logging.Logger.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    root = logging.getLogger()
    handled = [root, *(logger for logger in loggers if not logger.propagate)]
    before = [(logger, logger.level, logger.disabled) for logger in [root, *loggers]]
    for logger in handled:
        logger.addHandler(captured)
    for logger, _, _ in before:
        logger.setLevel(logging.DEBUG)
        logger.disabled = False
    if structlog is not None:
        processors = structlog.get_config()["processors"]
        old_processors = list(processors)
        # In place, as structlog's own capture_logs does, because loggers that exist already keep this list.
        processors[:] = [captured]
    yield captured
    if structlog is not None:
        processors[:] = old_processors
    for logger in handled:
        logger.removeHandler(captured)
    for logger, level, disabled in before:
        logger.setLevel(level)
        logger.disabled = disabled
