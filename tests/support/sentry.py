"""The real Sentry SDK with the settings of Airflow's integration. Its events stay in memory."""

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

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


@pytest.fixture
def sentry():
    recorder = Recorder()
    # Airflow passes no options but those of its section [sentry]. Local variables are on by default.
    with sentry_sdk.new_scope(), sentry_sdk.isolation_scope():
        sentry_sdk.init(dsn="http://key@sentry.invalid/1", transport=recorder, integrations=[], traces_sample_rate=1.0)
        yield recorder
        sentry_sdk.get_client().close(timeout=0)
        sentry_sdk.get_global_scope().set_client(None)
