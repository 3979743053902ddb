"""The authority of the tests of sockets."""

from tests.service.conftest import authority  # noqa: F401 - a fixture
