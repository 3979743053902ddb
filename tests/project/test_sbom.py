"""The SBOM of a release: what it contains, and the same bytes each time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from scripts.sbom import write_sbom

pytestmark = pytest.mark.processes

PYPROJECT = """
[project]
name = "example"
license = "Apache-2.0"
dynamic = ["version"]
dependencies = ["needed"]
"""
#: Installed packages: name → lines of the metadata.
INSTALLED = {
    "example": "Requires-Dist: needed>=2",
    "needed": "License-Expression: MIT\nProject-URL: Source, https://lender.example/needed",
}
FILES = {"example-1.2.3.tar.gz": "b" * 64, "example-1.2.3-py3-none-any.whl": "a" * 64}


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Return the interpreter of an environment with the two packages, the first one from a local file."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    for name, lines in INSTALLED.items():
        directory = packages / f"{name}-1.2.3.dist-info"
        directory.mkdir()
        (directory / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.2.3\n{lines}\n")
    url = {"url": f"file://{environment}/example.whl", "archive_info": {}}
    (packages / "example-1.2.3.dist-info" / "direct_url.json").write_text(json.dumps(url))
    return environment / "bin" / "python"


@pytest.fixture(scope="module")
def write(tmp_path_factory, python):
    """Write an SBOM with these arguments, and return its text."""
    project = tmp_path_factory.mktemp("project")
    (project / "pyproject.toml").write_text(PYPROJECT)

    def write_sbom_with(**changes):
        sbom = project / "example.cdx.json"
        arguments = {"version": "1.2.3", "time": "1767323045", "facts": {"commit": "abc"}} | changes
        write_sbom(sbom, project=project, python=python, files=FILES, **arguments)
        return sbom.read_text(encoding="utf-8")

    return write_sbom_with


def test_the_distribution_is_the_subject_and_dependencies_have_version_licence_and_graph(write):
    document = json.loads(write())
    metadata = document["metadata"]
    assert metadata["timestamp"] == "2026-01-02T03:04:05+00:00"
    assert {"name": "loanauth:commit", "value": "abc"} in metadata["properties"]
    component = metadata["component"]
    assert (component["name"], component["version"]) == ("example", "1.2.3")
    assert component["licenses"][0]["license"]["id"] == "Apache-2.0"
    assert {one["url"]: one["hashes"] for one in component["externalReferences"]} == {
        name: [{"alg": "SHA-256", "content": digest}] for name, digest in FILES.items()
    }
    (needed,) = document["components"]
    assert (needed["name"], needed["version"], needed["purl"]) == ("needed", "1.2.3", "pkg:pypi/needed@1.2.3")
    assert needed["licenses"][0]["license"]["id"] == "MIT"
    assert "externalReferences" not in needed
    assert {entry["ref"]: entry.get("dependsOn") for entry in document["dependencies"]} == {
        component["bom-ref"]: [needed["bom-ref"]],
        needed["bom-ref"]: None,
    }


def test_the_same_build_has_the_same_bytes_and_no_path_of_this_machine(write, python):
    text = write()
    assert write() == text
    assert not [one for one in (str(python.parent.parent), "file:") if one in text]
    serial_numbers = {json.loads(one)["serialNumber"] for one in (text, write(time="1767323046"), write(facts={}))}
    assert len(serial_numbers) == 3
