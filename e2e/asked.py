"""A secrets backend that has no secret, and writes what it is asked into the file ``asked`` in AIRFLOW_HOME."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.secrets import BaseSecretsBackend


class AskedSecrets(BaseSecretsBackend):
    """Airflow asks it for Connections and Variables before the metadata database."""

    def get_conn_value(self, conn_id: str, *_: str | None, **__: str | None) -> None:
        """Write the id down."""
        self._write("connection", conn_id)

    def get_variable(self, key: str, *_: str | None, **__: str | None) -> None:
        """Write the key down."""
        self._write("variable", key)

    def _write(self, kind: str, name: str) -> None:
        with Path(os.environ["AIRFLOW_HOME"], "asked").open("a") as file:
            file.write(f"{kind} {name}\n")
