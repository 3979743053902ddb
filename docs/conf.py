"""Settings of Sphinx for the site of the docs, which ``make docs-site`` builds from all Markdown files."""

# ruff: noqa: INP001 - Sphinx reads this file, and nothing imports it
from __future__ import annotations

import re
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth import __version__

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

PACKAGE = "airflow_provider_loanauth"
ROOT = Path(__file__).resolve().parent.parent
#: Members that are not part of the public interface.
INTERNAL = {
    "async_auth_flow": "httpx and httpx2 call it for each request",
    "authenticate_task": "the sensor calls it with settings that it has read",
    "deserialize": "Airflow calls it to read XCom",
    "evaluate": "Airflow calls it when a task has failed",
    "execute_complete": "Airflow calls it to resume a deferred task",
    "get_connection_form_widgets": "Airflow calls it to show the form",
    "get_ui_field_behaviour": "Airflow calls it to show the form",
    "read_settings": "the operators and the sensor call it",
    "resume_execution": "Airflow calls it to resume a deferred task",
    "run": "Airflow's triggerer calls it",
    "sync_auth_flow": "httpx and httpx2 call it for each request",
}

project = "airflow-provider-loanauth"
release = __version__
html_title = f"{project} {release}"
html_theme = "furo"
# So that readers can search for a message with quotation marks, and copy an example.
smartquotes = False
html_static_path = ["_static"]
html_js_files = [("search.js", {"defer": "defer"})]
html_copy_source = False
html_show_copyright = False

extensions = ["myst_parser", "sphinx.ext.autodoc"]
# The source directory is the root of the repository, so that the links of a page work here and in the repository.
root_doc = "README"
FOLDERS = ("docs", "docs/dev", "constraints", "example_dags", "sandbox", "tests")
include_patterns = ["*.md", *(f"{folder}/*.md" for folder in FOLDERS)]
exclude_patterns = [".*", "build"]

# The anchors of headings are those of a repository browser.
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    "inherited-members": True,
    "exclude-members": ",".join([*INTERNAL, "add_note", "with_traceback"]),
}
python_maximum_signature_line_length = 100
python_use_unqualified_type_names = True
# A name in a docstring leads somewhere, except types of Airflow, Python and HTTP libraries.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"Airflow\w+|Context|Credential|PokeReturnValue|TaskDeferred|(collections|datetime|httpx2?|requests)\b.*")
]


def add_contents(_: Sphinx, page: str, source: list[str]) -> None:
    """Add the navigation to the first page: the links of ``docs/README.md``, under its headings."""
    if page != root_doc:
        return
    index = "## Begin\n](README.md)\n" + (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    seen = {root_doc}
    for heading, section in re.findall(r"^## (.+)\n((?:(?!##).*\n)+)", index, re.MULTILINE):
        links = [normpath(f"docs/{link}") for link in re.findall(r"\]\(([^)#:]+)\.md", section)]
        pages = [link for link in dict.fromkeys(links) if link not in seen]
        source[0] += "\n".join(["\n```{toctree}", f":caption: {heading}", ":hidden:", "", *pages, "```\n"])
        seen.update(pages)


def add_label(_: Sphinx, environment: BuildEnvironment) -> None:
    """Let the label of the Connection, which has the form that Airflow's docs use, lead to its page."""
    environment.domains.standard_domain.anonlabels["howto/connection:loanauth"] = ("docs/connection", "")


def is_left_out(*event: Any) -> bool:
    """Return whether the reference leaves a member out, as those inherited from Airflow or an HTTP library."""
    *_, member, skip, _options = event
    function = getattr(member, "fget", None) or getattr(member, "func", None) or member
    return skip or not (getattr(function, "__module__", None) or PACKAGE).startswith(PACKAGE)


def shorten_defaults(*event: Any) -> tuple[str | None, str | None]:
    """Return the signature with ``...`` for a default that is not a constant."""
    *_, call, result = event
    return call and re.sub(r"<[a-z ]+>", "...", call), result


def find_short_name(app: Sphinx, environment: BuildEnvironment, node: pending_xref, content: Element) -> Element | None:
    """Look for a name such as ``LoanAuthHook.get_conn`` in all modules."""
    node["refspecific"] = True
    where = environment, node["refdoc"], app.builder, node["reftype"], node["reftarget"]
    return environment.domains.python_domain.resolve_xref(*where, node, content) if node["refdomain"] == "py" else None


def setup(app: Sphinx) -> None:
    """Register the functions above."""
    app.connect("source-read", add_contents)
    app.connect("env-updated", add_label)
    app.connect("autodoc-skip-member", is_left_out)
    app.connect("autodoc-process-signature", shorten_defaults)
    app.connect("missing-reference", find_short_name)
