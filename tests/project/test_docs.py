"""The docs name what exists: public classes and metrics."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.project.test_architecture import PUBLIC
from tests.service.test_telemetry import NAMES
from tests.support.code_blocks import PAGES
from tests.support.paths import ROOT

pytestmark = pytest.mark.once

DOCS = ROOT / "docs"


def test_the_api_reference_has_every_public_name():
    listed = re.findall(r"^\.\. auto\w+:: airflow_provider_loanauth\.(\S+)$", PAGES["docs/reference.md"], re.MULTILINE)
    public = {f"{module}.{name}" for module, names in PUBLIC.items() for name in names if module != "exceptions"}
    assert sorted(listed) == sorted({*public, "exceptions"})


#: What ``statsd_exporter`` makes of a counter, a gauge and a timer.
SUFFIXES = {"c": [""], "g": [""], "ms": ["_sum", "_count"]}
SERIES = {f"airflow_loanauth_{name}{suffix}" for name, kind in NAMES.items() for suffix in SUFFIXES[kind]}
ALERTS = yaml.safe_load((DOCS / "monitoring" / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
DASHBOARD = json.loads((DOCS / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
LABELS = {"conn_id", "method"}
MORE_LABELS = {"failed": LABELS | {"error_type"}, "not_sent": LABELS | {"error_type"}}


def test_each_metric_is_described_with_its_type():
    described = re.findall(r"^\| `loanauth\.(\w+)` \| (\w+) \|", PAGES["docs/operating.md"], re.MULTILINE)
    kinds = {"counter": "c", "timer": "ms", "gauge": "g"}
    assert {name: kinds[kind] for name, kind in described} == NAMES
    for names in (LABELS, *MORE_LABELS.values(), MORE_LABELS):
        assert all(f"`{name}`" in PAGES["docs/operating.md"] for name in names)


def test_alerts_and_dashboard_use_metrics_and_tags_that_exist():
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    variables = [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    alerts = [f"{rule['expr']} {rule['annotations']}" for rule in ALERTS]
    for text in [*alerts, *panels, *variables]:
        assert set() < {*re.findall(r"\w*loanauth\w*", text)} <= SERIES
        by = [label for labels in re.findall(r"\bby \(([^)]*)\)", text) for label in labels.split(", ")]
        used = {*by, *re.findall(r"(\w+)(?:=~|!=|=)\"", text), *re.findall(r"\$labels\.(\w+)", text)}
        more = [labels for name, labels in MORE_LABELS.items() if f"loanauth_{name}" in text]
        assert used <= LABELS.union(*more), text
    assert all(any(f"airflow_loanauth_{name}" in expression for expression in panels) for name in NAMES)
