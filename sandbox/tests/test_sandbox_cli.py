"""The command as a person and as a script runs it, and the README: it is complete, and its example runs."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
from raw_http import connect, form, send, token_request

from loanauth_sandbox import cli
from loanauth_sandbox.control import control_app
from loanauth_sandbox.faults import KINDS

pytestmark = pytest.mark.once

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@contextlib.contextmanager
def started(tmp_path, *arguments):
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-W", "error", "-m", "loanauth_sandbox", "--ready-file", str(ready)]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not ready.exists():
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.01)
            yield SimpleNamespace(process=process, path=ready, **json.loads(ready.read_text()))
        finally:
            process.kill()


def finished(running, number):
    running.process.send_signal(number)
    stdout, stderr = running.process.communicate(timeout=60)
    assert running.process.returncode == 0
    assert "Traceback" not in stderr
    assert not running.path.exists()
    return stdout, stderr


@pytest.mark.processes
def test_a_person_reads_what_it_is_and_pastes_the_connections(tmp_path):
    with started(tmp_path) as running:
        assert stat.S_IMODE(running.path.stat().st_mode) == 0o600
        assert running.ca_path is None
        assert send(running, token_request(form(password="hush-hush"))).status == 400
        stdout, stderr = finished(running, signal.SIGINT)
    for text in ("stand-in for the loan pricing service", "Not part of the interface: ", running.control_url):
        assert text in stdout
    pasted = [shlex.split(line)[1].split("=", 1) for line in stdout.splitlines() if line.startswith("export ")]
    assert {name: json.loads(value) for name, value in pasted} == running.connections
    assert stdout.endswith("loanauth-sandbox: stopped\n")
    assert "POST /oauth/token -> 400, rejected: wrong password" in stderr
    assert "hush-hush" not in stdout + stderr


@pytest.mark.processes
def test_everything_can_be_set(tmp_path):
    fault, hang = {"kind": "status", "status": 503, "times": 1}, {"kind": "hang", "where": "probe"}
    with started(
        tmp_path,
        *("--tls", "--path-prefix", "/tenant1", "--token-lifetime", "7", "--one-loan-per-session"),
        *("--fault", json.dumps([fault]), "--fault", json.dumps(hang)),
    ) as running:
        assert running.url.endswith("/tenant1")
        assert running.pricing_url == running.url.removesuffix("/tenant1") + "/sandbox/price"
        raw = token_request(path="/tenant1/oauth/token")
        assert send(running, raw).status == 503
        token = send(running, raw).json()
        assert (token["expires_in"], token["loanAppSessionPolicy"]["limitOneLoanAppPerSession"]) == (7, True)
        with connect(running) as hanging:
            hanging.sendall(b"GET /tenant1 HTTP/1.1\r\nHost: h\r\n\r\n")
            while requests.get(running.control_url + "/counters", timeout=10).json()["probe"] == 0:
                time.sleep(0.01)
            finished(running, signal.SIGTERM)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--fault", "{"], "argument --fault"), (["--port", "99999"], "port 99999 cannot be opened")],
)
def test_a_wrong_argument(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_the_help_and_the_readme_name_each_kind_of_fault():
    shown = cli.parser().format_help()
    assert [kind for kind in KINDS if f"\n  {kind}: " not in shown or f"`{kind}`" not in README] == []


def test_the_table_of_the_control_api_is_complete(sandbox):
    rows = re.findall(r"^\| `([A-Z]+ /[a-z-]+)` \|", README, re.MULTILINE)
    routes = [(route.methods - {"HEAD"}, route.path) for route in control_app(sandbox.commands).routes]
    assert sorted(rows) == sorted(f"{method} {path}" for methods, path in routes for method in methods)


def test_the_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names = {}
    exec(example, names)
    assert names["connection"]["conn_type"] == "loanauth"
