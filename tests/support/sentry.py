"""The real Sentry SDK with the settings of Airflow's integration. Its events stay in memory."""

import functools

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

DSN = "http://key@sentry.invalid/1"
#: Sentry 3 starts a transaction if there is none.
start_transaction = getattr(sentry_sdk, "start_transaction", sentry_sdk.start_span)


class Recorder(Transport):
    def __init__(self, options=None):
        super().__init__(options)
        self.sent = []

    def capture_envelope(self, envelope):
        self.sent += [item.payload.json for item in envelope.items]

    @property
    def text(self):
        return repr(self.sent)


@functools.cache
def integrations():
    """Return those that Sentry enables for the installed libraries; it takes a tenth of a second to find them."""
    client = sentry_sdk.Client(DSN, transport=Recorder())
    client.close(timeout=0)
    return [*client.integrations.values()]


@pytest.fixture
def sentry():
    recorder = Recorder()
    # Airflow passes no options but those of its section [sentry]. Local variables are on by default.
    options = {"integrations": integrations(), "auto_enabling_integrations": False, "traces_sample_rate": 1.0}
    with sentry_sdk.new_scope(), sentry_sdk.isolation_scope():
        sentry_sdk.init(DSN, transport=recorder, **options)
        yield recorder
        sentry_sdk.get_client().close(timeout=0)
        sentry_sdk.get_global_scope().set_client(None)
