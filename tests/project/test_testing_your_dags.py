"""`docs/testing-your-dags.md`: its project runs as it stands, with the plugin of pytest of the sandbox."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.code_blocks import BLOCKS

PAGE = "docs/testing-your-dags.md"
FILES = ("pyproject.toml", "dags/price_loans.py", "tests/conftest.py", "tests/test_price_loans.py")


def test_the_tests_of_the_page_run_as_they_stand(tmp_path):
    blocks = [block.text for block in BLOCKS if block.page == PAGE and block.language != "shell"]
    for name, text in zip(FILES, blocks, strict=True):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        try:
            import airflow.sdk  # noqa: F401 - Airflow 3
        except ImportError:
            text = text.replace("from airflow.sdk import", "from airflow.decorators import")  # noqa: PLW2901
        path.write_text(text, encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=inherited | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert "5 passed" in done.stdout, done.stdout + done.stderr
    assert not list(tmp_path.glob("loanauth-airflow-*"))
