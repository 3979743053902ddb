"""The option ``--update-docs`` of programs with results that are part of the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

ROOT = Path(__file__).resolve().parent.parent


def add_update_docs(parser: argparse.ArgumentParser, *, ignored: str, tracked: str) -> None:
    """Add the option. The attribute ``output`` of the parsed arguments is the path to write to."""
    parser.add_argument(
        "--update-docs",
        dest="output",
        action="store_const",
        const=ROOT / tracked,
        default=ROOT / ignored,
        help=f"write to {tracked}, which is tracked by git (default: write to {ignored})",
    )
