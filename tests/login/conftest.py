import logging

import pytest


@pytest.fixture
def no_log_lines():
    """Thousands of log lines take longer than the simulated processes."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
