"""Fixtures of the fault table."""

from tests.support.fault_scenarios import scenario, servers  # noqa: F401 - fixtures
