import json
from datetime import datetime, timezone

import pytest

from airflow_provider_loanauth.credentials import AccessToken
from tests.support.airflow_names import serde
from tests.support.programs import run_python

PULL = """
import json, sys
from airflow import plugins_manager
from tests.support.airflow_names import serde
# As every process of Airflow does at its start.
load = getattr(plugins_manager, "ensure_plugins_loaded", None) or plugins_manager._get_plugins
load()
print("OPENED", type(serde.deserialize(json.loads(sys.argv[1]))).__name__)
"""


@pytest.mark.processes
def test_the_plugin_registers_the_classes():
    """Nothing else registers them: a process that loads no plugin cannot deserialize a credential."""
    now = datetime.now(timezone.utc)
    token = AccessToken.seal("made-up", method="jwt", conn_id="a", issued_at=now, expires_at=None)
    stored = json.dumps(serde.serialize(token))
    done = run_python("-c", PULL, stored, environment={"AIRFLOW__CORE__LAZY_LOAD_PLUGINS": "True"})
    assert "OPENED AccessToken" in done.stdout, done.stderr
