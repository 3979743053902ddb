"""``docs/monitoring.md``, its alerts and its dashboard name the metrics and tags that the package sends."""

from __future__ import annotations

import json
import re

import yaml

from tests.service.test_telemetry import NAMES
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
PAGE = (DOCS / "monitoring.md").read_text(encoding="utf-8")
#: What ``statsd_exporter`` makes of a counter, a gauge and a timer.
SUFFIXES = {"c": [""], "g": [""], "ms": ["_sum", "_count"]}
SERIES = {f"airflow_loanauth_{name}{suffix}" for name, kind in NAMES.items() for suffix in SUFFIXES[kind]}
RULES = yaml.safe_load((DOCS / "monitoring" / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
DASHBOARD = json.loads((DOCS / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
LABELS = {"conn_id", "method", "error_type"}


def test_the_page_has_each_metric_with_its_type_and_tags():
    rows = re.findall(r"^\| `loanauth\.(\w+)` \| (\w+).* \| (.+) \|$", PAGE.partition("## The spans")[0], re.MULTILINE)
    kinds = {"counter": "c", "timer": "ms", "gauge": "g"}
    assert {name: kinds[kind] for name, kind, _ in rows} == NAMES
    tags = {name: {*re.findall(r"\w+", cell)} for name, _, cell in rows}
    assert tags == dict.fromkeys(NAMES, LABELS - {"error_type"}) | {"failed": LABELS}


def test_rules_and_dashboard_use_metrics_and_tags_that_exist():
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    variables = [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    for text in [*(rule["expr"] for rule in RULES), *panels, *variables]:
        named = {*re.findall(r"\w*loanauth\w*", text)}
        assert named
        assert named <= SERIES
        by = [label for labels in re.findall(r"\bby \(([^)]*)\)", text) for label in labels.split(", ")]
        used = {*by, *re.findall(r"(\w+)(?:=~|!=|=)\"", text)}
        assert used <= (LABELS if "airflow_loanauth_failed" in text else LABELS - {"error_type"}), text
    shown = {name for name in NAMES if any(f"airflow_loanauth_{name}" in expression for expression in panels)}
    assert shown == {*NAMES}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_page_describes_each_alert():
    described = re.findall(r"^\| `(LoanAuth\w+)` \| (.+?) \|", PAGE, re.MULTILINE)
    assert {name: {*re.findall(r"loanauth\.(\w+)", cell)} for name, cell in described} == {
        rule["alert"]: {*re.findall(r"airflow_loanauth_(\w+)", rule["expr"])} for rule in RULES
    }
    for rule in RULES:
        assert {*rule["annotations"]} == {"summary", "description"}
        named = {*re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))}
        assert named <= (LABELS if rule["alert"] == "LoanAuthFailed" else LABELS - {"error_type"})
