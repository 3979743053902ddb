"""Metrics of the Test button and of a task that is interrupted. ``test_dags.py`` has those of DAGs."""

from __future__ import annotations

import pytest

from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.service import telemetry
from tests.support.airflow_names import AirflowTaskTimeout
from tests.support.backends import LOGIN

CONN_ID = "loanauth_jwt"


def test_a_login_of_the_test_button(world, statsd):
    """Airflow tests with a random connection id."""
    assert LoanAuthHook(CONN_ID).test_connection()[1].startswith("Authenticated 'pat@lender.example' with Authen JWT")
    assert statsd.counts == LOGIN
    assert [metric.tags for metric in statsd.metrics] == [{"conn_id": "test_connection", "method": "jwt"}] * len(LOGIN)


def test_a_time_out_while_a_metric_is_sent_does_not_send_rejected_credentials_again(world, define, monkeypatch):
    """A backend that does not respond: the task is interrupted in it, and another attempt must not lock the account."""
    define(CONN_ID, world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"] | {"password": "made-up-wrong"})

    def time_out():
        raise AirflowTaskTimeout("made up")

    with monkeypatch.context() as patch:
        patch.setattr(telemetry, "get_stats", time_out)
        with pytest.raises(AirflowTaskTimeout):
            LoanAuthHook(CONN_ID).get_credential()
    with pytest.raises(RejectedError):
        LoanAuthHook(CONN_ID).get_credential()
    assert world.rejected_logins == 1
