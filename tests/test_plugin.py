import json
from datetime import datetime, timezone

import pytest

from airflow_provider_loanauth.credentials import AccessToken
from tests.support.airflow_names import serde
from tests.support.programs import run_python

pytestmark = pytest.mark.processes

PULL = """
import json, sys
try:
    import airflow.sdk.serde as serde
except ImportError:
    import airflow.serialization.serde as serde
from airflow import plugins_manager
if sys.argv[2] == "with":
    # As every process of Airflow does at its start.
    for name in ("ensure_plugins_loaded", "_get_plugins"):
        if hasattr(plugins_manager, name):
            getattr(plugins_manager, name)()
            break
print("OPENED", type(serde.deserialize(json.loads(sys.argv[1]))).__name__)
"""


def pulled(stored, plugins):
    environment = {"AIRFLOW__CORE__LAZY_LOAD_PLUGINS": "True"}
    return run_python("-c", PULL, stored, plugins, environment=environment, check=False)


def test_the_plugin_registers_the_classes():
    """Nothing else registers them: a process that loads no plugin cannot deserialize a credential."""
    now = datetime.now(timezone.utc)
    token = AccessToken.seal("made-up", method="jwt", conn_id="a", issued_at=now, expires_at=None)
    stored = json.dumps(serde.serialize(token))
    done = pulled(stored, "with")
    assert "OPENED AccessToken" in done.stdout, done.stderr
    without = pulled(stored, "without")
    assert without.returncode
    assert "was not found in allow list" in without.stderr
