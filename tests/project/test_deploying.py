"""
The blocks to copy from ``docs/deploying.md``: names that agree with each other. ``test_code_blocks.py`` checks that
Airflow has the settings.
"""

from __future__ import annotations

import re

import jsonschema
import kubernetes_validate
import yaml

from tests.support.paths import PACKAGE, ROOT

PAGE = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")


TEXT, OBJECTS = {"type": "string"}, {"type": "array", "items": {"type": "object", "required": ["name"]}}


def closed(**properties):
    return {"type": "object", "additionalProperties": False, "properties": properties}


#: An excerpt of ``values.schema.json`` of chart 1.22.0: the keys that the page uses.
VALUES = closed(
    **dict.fromkeys(
        ("executor", "airflowVersion", "defaultAirflowRepository", "defaultAirflowTag", "fernetKeySecretName"), TEXT
    ),
    secret={"type": "array", "items": closed(envName=TEXT, secretName=TEXT, secretKey=TEXT)},
    env={"type": "array", "items": closed(name=TEXT, value=TEXT)},
    volumes=OBJECTS,
    volumeMounts=OBJECTS,
)


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


def test_the_values_fit_the_schema_of_the_chart():
    jsonschema.validate(manifests(None)[0], VALUES)


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


def test_the_network_policy_is_valid_and_limits_outgoing_connections_only():
    (policy,) = manifests("NetworkPolicy")
    kubernetes_validate.validate(policy, kubernetes_validate.latest_version(), strict=True)
    assert policy["spec"]["policyTypes"] == ["Egress"]


def test_the_log_lines_are_those_of_the_code():
    code = (PACKAGE / "login" / "shared.py").read_text(encoding="utf-8")
    patterns = [
        re.sub(r"%\w", ".+", re.escape(text).replace("\\%", "%"))
        for text in re.findall(r'_log\.\w+\((?:\w+, )?"([^"]+)"', code)
    ]
    lines = [line for block in blocks("text") for line in block.splitlines() if "tasks used" not in line]
    # The first one is that of a login, which other tests know.
    assert len(lines) == 3
    assert all(any(re.fullmatch(pattern, line) for pattern in patterns) for line in lines[1:])
