"""
The blocks to copy from ``docs/deploying.md``: names that agree with each other. ``test_code_blocks.py`` checks that
Airflow has the settings.
"""

from __future__ import annotations

import re

import jsonschema
import pytest
import yaml

from airflow_provider_loanauth.check.report import TITLES
from tests.support.paths import PACKAGE, ROOT

PAGE = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def manifests(kind):
    """Return the YAML blocks of one kind; ``None`` for the values of the chart."""
    return [block for block in map(yaml.safe_load, blocks("yaml")) if block.get("kind") == kind]


def test_the_line_that_2_11_leaves_out_is_the_third_one():
    for block in blocks("ini"):
        third = block.splitlines()[2]
        assert third.startswith("AIRFLOW__CORE__EXECUTION_API_SERVER_URL=")
    assert len(re.findall(r"On Airflow 2\.11, leave\s+out the third\s+line", PAGE)) == len(blocks("ini")) == 2


def test_the_values_of_the_chart_use_the_objects_that_the_commands_create():
    (values,) = manifests(None)
    commands = "\n".join(blocks("shell"))
    created = dict(re.findall(r"kubectl create (?:secret generic|configmap) (\S+) .*--from-file=(\S+)", commands))
    (connection,) = values["secret"]
    (volume,), (mount,) = values["volumes"], values["volumeMounts"]
    assert created == {
        values["fernetKeySecretName"]: "fernet-key=/dev/stdin",
        connection["secretName"]: connection["secretKey"],
        volume["configMap"]["name"]: "ca.pem",
    }
    assert volume["name"] == mount["name"]
    assert f"Verify TLS of the Connection is then {mount['mountPath']}/ca.pem." in PAGE


def record(required=(), **members):
    """Return the schema of an object that has no other members than these."""
    return {"type": "object", "required": list(required), "properties": members, "additionalProperties": False}


def many(item):
    return {"type": "array", "minItems": 1, "items": item}


STRING = {"type": "string"}
#: Keys and types that chart 1.22.0 accepts for what the page uses. The chart has more, and its own schema is larger.
CHART = record(
    executor=STRING,
    airflowVersion=STRING,
    defaultAirflowRepository=STRING,
    defaultAirflowTag=STRING,
    fernetKeySecretName=STRING,
    secret=many(record(["envName", "secretName"], envName=STRING, secretName=STRING, secretKey=STRING)),
    env=many(record(["name", "value"], name=STRING, value=STRING)),
    volumes=many(record(["name", "configMap"], name=STRING, configMap=record(["name"], name=STRING))),
    volumeMounts=many(
        record(["name", "mountPath"], name=STRING, mountPath=STRING, readOnly={"type": "boolean"}),
    ),
)
LABELS = {"type": "object", "additionalProperties": STRING}
EXPRESSION = record(
    ["key", "operator"], key=STRING, operator={"enum": ["In", "NotIn", "Exists", "DoesNotExist"]}, values=many(STRING)
)
SELECTOR = record(matchLabels=LABELS, matchExpressions=many(EXPRESSION))
PEER = record(
    ipBlock=record(["cidr"], cidr={"type": "string", "pattern": r"^\d+(\.\d+){3}/\d+$"}),
    podSelector=SELECTOR,
    namespaceSelector=SELECTOR,
)
PORT = record(protocol={"enum": ["TCP", "UDP", "SCTP"]}, port={"type": "integer", "minimum": 1, "maximum": 65535})
#: What a NetworkPolicy of networking.k8s.io/v1 may have, as far as the page uses it.
POLICY = record(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "networking.k8s.io/v1"},
    kind={"const": "NetworkPolicy"},
    metadata=record(["name"], name=STRING, namespace=STRING),
    spec=record(
        ["podSelector", "policyTypes", "egress"],
        podSelector=SELECTOR,
        policyTypes={"const": ["Egress"]},
        egress=many(record(to=many(PEER), ports=many(PORT))),
    ),
)


def test_the_values_have_keys_and_types_of_the_chart():
    (values,) = manifests(None)
    jsonschema.validate(values, CHART)
    for wrong in ({"fernetKeySecret": "x"}, {"airflowVersion": 3.3}, {"secret": [{"envName": "X", "name": "x"}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(values | wrong, CHART)


def test_the_network_policy_is_valid_and_limits_outgoing_connections_only():
    (policy,) = manifests("NetworkPolicy")
    jsonschema.validate(policy, POLICY)
    assert len(policy["spec"]["egress"]) == 4
    rule = policy["spec"]["egress"][0]
    for wrong in ({"port": rule["ports"]}, {"to": [{"ipBlock": "203.0.113.10/32"}]}, {"ports": [{"port": "https"}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(policy | {"spec": policy["spec"] | {"egress": [rule | wrong]}}, POLICY)


def test_the_command_shows_the_line_that_the_page_names():
    commands = [line for block in blocks("shell") for line in block.splitlines() if PACKAGE.name in line]
    assert len(commands) == 2
    assert f"grep '{TITLES['fernet_key']}'" in commands[1]
    assert f"The line *{TITLES['fernet_key']}* must have the same\n   fingerprint" in PAGE


def test_the_log_lines_are_those_of_the_code():
    code = "".join((PACKAGE / "auth" / name).read_text(encoding="utf-8") for name in ("refresh.py", "shared_login.py"))
    patterns = [
        re.sub(r"%\w", ".+", re.escape(text).replace("\\%", "%"))
        for text in re.findall(r'_log\.\w+\((?:\w+, )?"([^"]+)"', code)
    ]
    lines = [line for block in blocks("text") for line in block.splitlines() if "tasks used" not in line]
    # The first one is that of a login, which other tests know.
    assert len(lines) == 3
    assert all(any(re.fullmatch(pattern, line) for pattern in patterns) for line in lines[1:])
