"""The SBOM of a release: what it contains, and the same bytes each time."""

from __future__ import annotations

import json
import sys
from importlib import metadata

from airflow_provider_loanauth.metadata import PACKAGE_NAME
from scripts.sbom import write_sbom
from tests.support.paths import ROOT

FILES = {"example-1.2.3.tar.gz": "b" * 64, "example-1.2.3-py3-none-any.whl": "a" * 64}


def test_the_sbom_of_a_distribution(tmp_path):
    texts = []
    for name in ("first", "second"):
        write_sbom(
            tmp_path / name,
            project=ROOT,
            version="1.2.3",
            python=sys.executable,
            time="1767323045",
            files=FILES,
            facts={"commit": "abc"},
        )
        texts.append((tmp_path / name).read_text(encoding="utf-8"))
    text, again = texts
    assert again == text
    # No path of this machine.
    assert not [one for one in (str(ROOT), sys.prefix, "file:") if one in text]
    document = json.loads(text)
    assert document["metadata"]["timestamp"] == "2026-01-02T03:04:05+00:00"
    assert {"name": "loanauth:commit", "value": "abc"} in document["metadata"]["properties"]
    subject = document["metadata"]["component"]
    assert (subject["name"], subject["version"]) == (PACKAGE_NAME, "1.2.3")
    assert subject["licenses"][0]["license"]["id"] == "Apache-2.0"
    assert {one["url"]: one["hashes"] for one in subject["externalReferences"]} == {
        name: [{"alg": "SHA-256", "content": digest}] for name, digest in FILES.items()
    }
    [needed] = [one for one in document["components"] if one["name"] == "requests"]
    assert needed["purl"] == f"pkg:pypi/requests@{metadata.version('requests')}"
    assert needed["licenses"][0]["license"]["id"] == "Apache-2.0"
    needs = {entry["ref"]: entry.get("dependsOn") for entry in document["dependencies"]}
    assert needed["bom-ref"] in needs[subject["bom-ref"]]
