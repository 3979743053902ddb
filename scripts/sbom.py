"""The software bill of materials (SBOM) of a distribution and of everything that it depends on, in CycloneDX 1.6."""

from __future__ import annotations

import json
import sys
import uuid
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from scripts.check_dist import DistError, run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_sbom(
    sbom: Path,
    *,
    project: Path,
    version: str,
    python: Path,
    time: str,
    files: Mapping[str, str],
    facts: Mapping[str, str],
) -> None:
    """Write the SBOM of a distribution that is installed in an environment."""
    command = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--no-validate")
    options = ("--spec-version", "1.6", "--mc-type", "library", "--pyproject", project / "pyproject.toml")
    document = json.loads(run(*command, *options, python))
    document["metadata"]["timestamp"] = datetime.fromtimestamp(int(time), timezone.utc).isoformat()
    _describe_root(document["metadata"]["component"], version, files)
    for component in document["components"]:
        # The addresses of other projects would double the size, and checking them takes seconds.
        component.pop("externalReferences", None)
    document["metadata"].setdefault("properties", []).extend(
        {"name": f"loanauth:{name}", "value": value} for name, value in facts.items()
    )
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document, sort_keys=True)).urn
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    validate(text)
    sbom.write_text(text, encoding="utf-8")


def validate(text: str) -> None:
    """Check that an SBOM follows the schema of CycloneDX."""
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise DistError(f"the SBOM does not follow the schema of CycloneDX 1.6: {error}")


def _describe_root(component: dict[str, Any], version: str, files: Mapping[str, str]) -> None:
    """Add the version and the files of the release to the component that the SBOM describes."""
    component["version"] = version
    component["purl"] = f"pkg:pypi/{component['name']}@{version}"
    component["externalReferences"] = [
        {"type": "distribution", "url": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
        for name, digest in sorted(files.items())
    ]
