"""Keeps credentials as this release stores them: ``python -m tests.support.stored_values X.Y.Z``."""

import base64
import json
import os
import pickle
import sys
import tempfile
from datetime import datetime, timedelta, timezone

from tests.support.fernet_keys import FERNET_KEY
from tests.support.paths import ROOT

STORED = ROOT / "tests" / "data" / "stored"
ISSUED_AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)


def facts_of(credential):
    names = ("method", "conn_id", "issued_at", "expires_at", "lifetime", "value")
    return {"class": type(credential).__name__} | {
        name: value if value is None else str(value) for name in names for value in [getattr(credential, name)]
    }


def main(version):
    from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
    from tests.support.airflow_names import serde

    common = {"conn_id": "lender-ü", "issued_at": ISSUED_AT}
    expiry = {"expires_at": ISSUED_AT + timedelta(hours=1), "lifetime": 3600.0}
    credentials = (
        AccessToken.seal("made-up.token", method="jwt", **expiry, **common),
        AccessToken.seal("made-up-opaque-token", method="los", **common),
        ApiSecret.seal("bWFkZS11cC1zZWNyZXQ=", method="ppe", **common),
    )
    kept = [
        {
            "facts": facts_of(credential),
            "xcom": serde.serialize(credential),
            "pickle": base64.b64encode(pickle.dumps(credential, protocol=4)).decode(),
        }
        for credential in credentials
    ]
    STORED.mkdir(parents=True, exist_ok=True)
    (STORED / f"{version}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"AIRFLOW_HOME": home, "AIRFLOW__CORE__FERNET_KEY": FERNET_KEY}
        main(*sys.argv[1:])
