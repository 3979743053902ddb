"""DAGs in which a user opens a sealed credential, or switches sealing off."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from tests.support.airflow_names import DAG, task

try:
    from airflow.providers.standard.operators.bash import BashOperator
except ImportError:
    from airflow.operators.bash import BashOperator

COMMON = {"start_date": datetime(2026, 1, 1, tzinfo=timezone.utc), "catchup": False}
HASH = 'printf %s "$TOKEN" | sha256sum | cut -c 1-64 > "$PROOFS/'


@task
def write_value(value, name):
    Path(os.environ["PROOFS"], name).write_text(f"{type(value).__name__} {value}")


@task
def write_opened_value(token):
    Path(os.environ["PROOFS"], "value").write_text(token.value)


with DAG("template", schedule=None, **COMMON) as template_dag:
    authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="marked_jwt")
    in_command = BashOperator(
        task_id="in_command",
        bash_command="TOKEN='{{ ti.xcom_pull(\"authenticate\").value }}'; " + HASH + 'in_command"',
    )
    in_environment = BashOperator(
        task_id="in_environment",
        bash_command=HASH + 'in_environment"',
        env={"TOKEN": "{{ ti.xcom_pull('authenticate').value }}"},
        append_env=True,
    )
    authenticate >> [in_command, in_environment]
    write_opened_value(authenticate.output)

with DAG("plaintext", schedule=None, **COMMON) as plaintext_dag:
    write_value(LoanAuthOperator(task_id="token", loanauth_conn_id="marked_jwt", seal=False).output, "token")
    write_value(LoanAuthOperator(task_id="secret", loanauth_conn_id="marked_ppe", seal=False).output, "secret")
