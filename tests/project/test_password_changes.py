"""``docs/password-changes.md``: its rehearsal prints what it says, and its names are those of other pages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from e2e.standalone import free_port
from tests.support.airflow_scratch import variables_of
from tests.support.code_blocks import BLOCKS, PAGES

PAGE = "docs/password-changes.md"
SCRIPT = """
trap 'kill %1' EXIT
{start} > sandbox.log 2>&1 &
for attempt in {{1..100}}; do grep -q Ctrl-C sandbox.log && break; sleep 0.1; done
{{
{lines}
}} 2>&1
"""


def block(page, language, number=0):
    return [block.text for block in BLOCKS if (block.page, block.language) == (page, language)][number]


def test_the_rehearsal(metadata_template, tmp_path):
    ports = {"8500": str(free_port()), "8501": str(free_port())}

    def with_ports(text):
        return re.sub("|".join(ports), lambda port: ports[port[0]], text)

    shutil.copy(metadata_template, tmp_path)
    (tmp_path / "dags").mkdir()
    dag = block("README.md", "python")
    if not find_spec("airflow.sdk"):
        dag = dag.replace("airflow.sdk", "airflow.decorators")
    (tmp_path / "dags" / "price_two_loans.py").write_text(with_ports(dag))
    (tmp_path / "connections.json").write_text(with_ports(block(PAGE, "json")))
    start, rehearsal = (with_ports(block(PAGE, "shell", number)) for number in (-2, -1))
    lines = "\n".join(f"printf '\\n=== {number}\\n'\n{line}" for number, line in enumerate(rehearsal.splitlines()))
    done = subprocess.run(
        ["bash", "-c", SCRIPT.format(start=start.strip(), lines=lines)],
        cwd=tmp_path,
        env=os.environ
        | variables_of(tmp_path)
        | {
            "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
            "NO_PROXY": "127.0.0.1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    # Airflow 3.0 colours a traceback and wraps its lines.
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    printed = [" ".join(text.split()) for text in re.split(r"^=== \d+\n", plain, flags=re.MULTILINE)[1:]]
    priced = {number: count for number, text in enumerate(printed) if (count := text.count("Priced: {"))}
    assert priced == {1: 2, 9: 2}, done.stdout
    for number, expected in {
        0: "Imported connection loanauth_jwt",
        3: "Nothing was sent, because the service has rejected the same values",
        5: "Imported connection loanauth_jwt",
        6: "User account is locked",
        8: "Deleted Variables of the shared login of connection 'loanauth_jwt'",
    }.items():
        assert expected in printed[number], printed[number]
    logged = re.findall(r"POST /oauth/token -> (.+)", (tmp_path / "sandbox.log").read_text())
    assert logged == ["200", "400, rejected: wrong password", "400, rejected: locked user", "200"]


def test_the_commands_for_kubernetes_use_the_names_of_deploying():
    deploying = PAGES["docs/deploying.md"]
    commands = block(PAGE, "shell", 1)
    (secret,) = re.findall(r"kubectl create (secret generic \S+ --namespace \S+ --from-file=\S+)", commands)
    (selector,) = re.findall(r"--selector ('.+')", commands)
    assert secret in deploying
    assert selector in deploying
