"""What the notifier tells, of which errors, and through what."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from unittest import mock

import pytest

from airflow_provider_loanauth._compat import BaseNotifier
from airflow_provider_loanauth.exceptions import RejectedError, SealError, UnavailableError
from airflow_provider_loanauth.notifications.loanauth import LoanAuthFailedNotifier
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.airflow_names import AirflowSensorTimeout, AirflowTaskTimeout, TaskDeferralError

TEXT = "made-up reason. " + "A sentence that says what to do. " * 100
BEGIN = "DAG nightly, run manual__2026-11-25, task price"


class Chat(BaseNotifier):
    """A notifier as a provider has it."""

    template_fields = ("text",)

    def __init__(self, text="{{ loanauth_message }}"):
        super().__init__()
        self.text, self.sent = text, []

    def notify(self, context):
        # Airflow adds the fields of a notifier to the context.
        assert context["text"] == "{{ loanauth_message }}"
        self.sent.append(self.text)


def context_of(error, map_index=-1):
    names = {"dag_id": "nightly", "run_id": "manual__2026-11-25", "task_id": "price", "map_index": map_index}
    return {"ti": SimpleNamespace(**names, try_number=1), "dag": None, "exception": error}


def chained(error, link, inner):
    setattr(error, link, inner)
    return error


def test_the_message_is_whole_and_an_asynchronous_function_is_awaited():
    sent = []

    async def tell(context):
        sent.append(context["loanauth_message"])

    context = context_of(SealError(TEXT, conn_id="loanauth_default", method="jwt"), map_index=0)
    LoanAuthFailedNotifier(tell)(context)
    LoanAuthFailedNotifier(lambda context: sent.append(context["loanauth_message"]))(context)
    assert sent == [f"{BEGIN}[0]: {TEXT} (connection id 'loanauth_default', method 'jwt')"] * 2


@pytest.mark.parametrize(
    ("exception", "is_told"),
    [
        (chained(RuntimeError("made up"), "__cause__", ValueError("made up")), False),
        # Of a task that was killed, and of a whole DAG run, Airflow tells a text or nothing.
        ("made-up text", False),
        (chained(RuntimeError("made up"), "__context__", RejectedError(TEXT)), True),
        # The task has handled it.
        (chained(chained(RuntimeError("made up"), "__context__", RejectedError(TEXT)), "__cause__", None), False),
        (chained(AirflowSensorTimeout("made up"), "__cause__", UnavailableError(TEXT)), True),
    ],
)
def test_only_a_failed_login_is_told(exception, is_told):
    chat = Chat()
    LoanAuthFailedNotifier(chat)(context_of(exception))
    assert chat.sent == ([f"{BEGIN}: {TEXT}"] if is_told else [])


@pytest.mark.parametrize("kind", [AirflowSensorTimeout, AirflowTaskTimeout, TaskDeferralError])
def test_a_sensor_that_ends_in_vain_is_told(kind):
    """Not one of another package."""
    chat = Chat()
    for task in (None, LoanAuthSensor(task_id="wait")):
        LoanAuthFailedNotifier(chat)(context_of(kind(TEXT)) | {"task": task})
    why = ". The log of the task says why." if kind is TaskDeferralError else ""
    assert chat.sent == [f"{BEGIN}: {TEXT}{why}"]


def test_a_retry_says_so():
    """With ``on_retry_callback``."""
    chat, context = Chat(), context_of(UnavailableError("made-up outage."))
    context["ti"].state = "up_for_retry"
    LoanAuthFailedNotifier(chat)(context)
    assert chat.sent == [f"{BEGIN}: made-up outage. Airflow will try this task again."]


@pytest.mark.parametrize("notifier", [[Chat()], Chat, None])
def test_what_cannot_notify_is_an_error_when_the_dag_is_parsed(notifier):
    with pytest.raises(TypeError, match="takes one notifier or one function"):
        LoanAuthFailedNotifier(notifier)


def test_a_message_is_no_template_of_the_next_one():
    """It has texts of the service. The notifier of a task and that of a cluster policy may be one object."""
    chat, text = Chat(), "the service says {{ 6 * 7 }}"
    for _ in range(2):
        LoanAuthFailedNotifier(chat)(context_of(RejectedError(text)))
    assert chat.sent == [f"{BEGIN}: {text}"] * 2


def test_an_error_of_the_other_notifier_is_logged(caplog):
    """On 2.11 and 3.0, the notifiers of Airflow raise none."""
    caplog.set_level(logging.INFO)
    LoanAuthFailedNotifier(Chat())(context_of(None))
    for other in (mock.Mock(side_effect=RuntimeError("made-up outage of the chat")), Chat("{{ 1 / 0 }}")):
        LoanAuthFailedNotifier(other)(context_of(RejectedError(TEXT)))
    ours = [record for record in caplog.records if "notifications" in record.name]
    assert [record.exc_info and record.exc_info[0] for record in ours] == [None, RuntimeError, ZeroDivisionError]
    assert [record.getMessage()[:19] for record in ours] == ["Nobody was notified", *["The notification of"] * 2]
