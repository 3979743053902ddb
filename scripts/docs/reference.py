"""The API reference ``docs/reference.md``, generated from signatures and docstrings.

The code is parsed and not imported, so the page depends neither on the installed Airflow nor on the version of Python.
"""

from __future__ import annotations

import ast
import json
import re
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import griffe

from scripts.docs.markup import Links, markdown
from scripts.update_docs import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGE = "airflow_provider_loanauth"
PAGE = ROOT / "docs" / "reference.md"
#: A signature that is longer has a line for each parameter.
MAX_SIGNATURE = 100
#: A comma within a type, after which no line ends.
_COMMA = ",\0"

HEAD = """\
# API reference

What a DAG or a task uses. `make docs` generates the page from the docstrings. What a release may change is stated in
[Compatibility](compatibility.md#public-interface).

The examples in [Using a credential](using-credentials.md) show how the classes work together. Types are written as in
the code; `AccessToken | ApiSecret` means either of the two. A default of `...` is described in the text.

"""

METHOD = """\
## Types

### Method

```python
from airflow_provider_loanauth.hooks.loanauth import Method
```

The type of each parameter `method`: `{value}`. None means the Connection's own, else `jwt`. A type checker reports any
other text; an operator or sensor also accepts a template (`TemplatedMethod` is `{templated}`).
"""

#: Members that only Airflow or this package calls.
INTERNAL = {
    "async_auth_flow": "httpx calls it for each request",
    "deserialize": "Airflow calls it to read XCom",
    "execute_complete": "Airflow calls it to resume a deferred task",
    "get_connection_form_widgets": "Airflow calls it to show the form",
    "get_ui_field_behaviour": "Airflow calls it to show the form",
    "resume_execution": "Airflow calls it to resume a deferred task",
    "run": "Airflow's triggerer calls it",
    "sync_auth_flow": "httpx calls it for each request",
}


@dataclass(frozen=True)
class Entry:
    """A class or function of the reference."""

    path: str
    heading: str = ""  # if it differs from the name
    module: str = ""  # that users import it from, if it differs

    def __post_init__(self) -> None:
        module, _, name = self.path.rpartition(".")
        object.__setattr__(self, "heading", self.heading or name)
        object.__setattr__(self, "module", f"{PACKAGE}.{self.module or module}")

    @property
    def name(self) -> str:
        """The name to import."""
        return self.path.rpartition(".")[2]


def _entries(module: str, *names: str) -> tuple[Entry, ...]:
    return tuple(Entry(f"{module}.{name}") for name in names)


GROUPS = {
    "Tasks of a DAG": (
        Entry("operators.loanauth.LoanAuthOperator"),
        Entry("sensors.loanauth.LoanAuthSensor"),
        Entry("operators.loanauth.LoanAuthForgetOperator"),
    ),
    "Within a task": (
        Entry("auth.requests.LoanAuth", heading="LoanAuth for requests", module="auth"),
        Entry("auth.httpx.LoanAuth", heading="LoanAuth for httpx"),
        Entry("hooks.loanauth.LoanAuthHook"),
    ),
    "Checks": (Entry("check.check_connection"), *_entries("check.report", "Report", "Step")),
    "Credentials": _entries("credentials", "AccessToken", "ApiSecret"),
    "Responses": _entries("models", "TokenResponse", "ApiSecretResponse", "Person", "LoanAppSessionPolicy"),
    "Exceptions": _entries(
        *("exceptions", "LoanAuthError", "SettingsError", "RejectedError", "UnavailableError", "ResponseError"),
        "SealError",
    ),
    "In the triggerer": _entries("triggers.loanauth", "LoanAuthSensorTrigger"),
}
ENTRIES = tuple(entry for entries in GROUPS.values() for entry in entries)


def document() -> str:
    """Return the text of the page."""
    package = griffe.load(PACKAGE, search_paths=[ROOT], docstring_parser="sphinx")
    return _Reference(cast("griffe.Module", package)).document()


class _Reference:
    """The page, with what its sections need to know about each other."""

    def __init__(self, package: griffe.Module) -> None:
        self.package = package
        self.items = {entry: cast("griffe.Class | griffe.Function", package[entry.path]) for entry in ENTRIES}
        # The class that describes a member: the first of those that inherit it.
        self.owners: dict[str, Entry] = {}
        self.links = Links(ROOT / "docs")
        headings = self.links.headings
        for entry, item in self.items.items():
            headings[f"{entry.module}.{entry.name}"] = entry.heading
            headings.setdefault(entry.name, entry.heading)
            for name, member in _members(item).items():
                owner = self.owners.setdefault(member.canonical_path, entry)
                headings[f"{entry.name}.{name}"] = f"{owner.name}.{name}"

    def document(self) -> str:
        contents = "".join(
            f"- {title}: {', '.join(self.links.link(entry.heading) for entry in entries)}\n"
            for title, entries in GROUPS.items()
        )
        parts = [HEAD + contents + "- Types: [`Method`](#method)\n"]
        for title, entries in GROUPS.items():
            parts.append(f"## {title}\n")
            if title == "Exceptions":
                parts.append(
                    markdown(cast("griffe.Docstring", self.package["exceptions"].docstring).value, self.links) + "\n"
                )
            parts += [self._section(entry) for entry in entries]
        value, templated = (self.package["metadata"][name].value for name in ("Method", "TemplatedMethod"))
        parts.append(METHOD.format(value=value, templated=templated))
        return "\n".join(parts)

    def _section(self, entry: Entry) -> str:
        item = self.items[entry]
        parts = [f"### {entry.heading}", _fence("python", f"from {entry.module} import {entry.name}")]
        function = item if item.is_function else item.all_members.get("__init__")
        fields = [*_fields(item)]
        if function is not None and not fields and function.canonical_path.startswith(PACKAGE):
            parts.append(_fence("text", self._signature(entry.name, function, returns=item.is_function)))
        parts += self._described(item, entry, function)
        if fields:
            parts.append("| Attribute | Type | Name in the response |\n|---|---|---|\n" + "\n".join(fields))
        own, others = [], []
        for name, member in _members(item).items():
            owner = self.owners[member.canonical_path]
            if owner is entry:
                own.append(self._member(entry, f"{entry.name}.{name}", member))
            else:
                others.append(self.links.link(f"{owner.name}.{name}"))
        if others:
            parts.append(f"Also: {', '.join(others)}.")
        parts += own
        return "\n\n".join(parts) + "\n"

    def _member(self, entry: Entry, name: str, member: Any) -> str:
        parts = [f"#### {name}"]
        if member.is_attribute:
            parts.append(_fence("text", f"{name} -> {member.annotation}"))
        else:
            overloads = getattr(member, "overloads", None) or [member]
            prefix = "await " if "async" in member.labels else ""
            shown = [prefix + self._signature(name, one, returns=True) for one in overloads]
            parts.append(_fence("text", "\n".join(shown)))
        parts += self._described(member, entry, member)
        return "\n\n".join(parts)

    def _described(self, item: Any, entry: Entry, function: Any) -> list[str]:
        """Return a docstring as paragraphs and lists, with the types of a function's parameters."""
        annotated = {parameter.name: parameter for parameter in getattr(function, "parameters", ())}
        parts = []
        for section in item.docstring.parsed:
            match section.kind.value:
                case "text":
                    parts.append(self._text(section.value, entry))
                case "parameters":
                    lines = [self._parameter(one, annotated, entry) for one in section.value]
                    # Some texts introduce the list themselves.
                    parts += [] if parts[-1].endswith(":") else ["Parameters:"]
                    parts.append("\n".join(lines))
                case "returns":
                    (returned,) = section.value
                    parts.append(f"Returns {self._text(_flat(returned.description), entry)}.")
                case "raises":
                    texts = [f":class:`{one.annotation}`: {_flat(one.description)}" for one in section.value]
                    lines = [f"- {self._text(text, entry)}" for text in texts]
                    parts.append("Raises:\n\n" + "\n".join(lines))
                case kind:
                    raise ValueError(f"The docstring of {item.path} has a section {kind}, which has no layout here.")
        return parts

    def _parameter(self, described: Any, annotated: Mapping[str, griffe.Parameter], entry: Entry) -> str:
        parameter = annotated[described.name]
        about = [f"`{_public(parameter.annotation)}`"]
        if parameter.default is not None and parameter.kind is not griffe.ParameterKind.var_keyword:
            about.append(f"default `{self._default(parameter.default)}`")
        return f"- `{described.name}` ({', '.join(about)}): {self._text(_flat(described.description), entry)}"

    def _signature(self, name: str, function: Any, *, returns: bool) -> str:
        """Return how a function is called: ``name(parameter: type = default, …) -> type``."""
        shown = copy(function.final_target if function.is_alias else function)
        shown.parameters = griffe.Parameters(*(self._shown(parameter) for parameter in function.parameters))
        end = f" -> {function.returns}" if returns else ""
        line = str(shown.signature(return_type=False, name=name))
        if len(line) + len(end) > MAX_SIGNATURE:
            line = line.replace("(", "(\n    ", 1).replace(", ", ",\n    ").removesuffix(")") + ",\n)"
        return line.replace(_COMMA, ", ") + end

    def _shown(self, parameter: griffe.Parameter) -> griffe.Parameter:
        """Return a parameter as the signature shows it."""
        shown = copy(parameter)
        shown.annotation = _public(parameter.annotation).replace(", ", _COMMA)
        shown.default = None if parameter.default is None else self._default(parameter.default)
        return shown

    def _default(self, value: Any) -> str:
        """Return a default value; ``...`` if it is not a constant."""
        if isinstance(value, griffe.ExprName) and value.canonical_path.startswith(f"{PACKAGE}."):
            value = self.package[value.canonical_path.removeprefix(f"{PACKAGE}.")].value
        try:
            constant = ast.literal_eval(str(value))
        except ValueError:
            return "..."
        return json.dumps(constant) if isinstance(constant, str) else repr(constant)

    def _text(self, text: str, entry: Entry) -> str:
        return markdown(text, self.links, entry.name)


def _members(item: griffe.Class | griffe.Function) -> dict[str, griffe.Object | griffe.Alias]:
    """Return the public members of a class, also those inherited from this package, in the order of the code."""
    found: dict[str, griffe.Object | griffe.Alias] = {}
    for name, member in {**item.members, **item.all_members}.items():
        is_call = member.is_function or "property" in member.labels or "cached" in member.labels
        if is_call and not name.startswith("_") and name not in INTERNAL:
            found[name] = member
    return found


def _fields(item: griffe.Class | griffe.Function) -> Iterator[str]:
    """Yield a row for each field of a model of ``models.py``."""
    if item.module.name != "models":
        return
    for name, member in item.attributes.items():
        if "property" not in member.labels and not name.startswith("_"):
            found = re.match(r"wire_field\((?:'(\w+)')?", str(member.value))
            wire = f"`{found[1] or name}`" if found else "-"
            yield f"| `{name}` | `{member.annotation}` | {wire} |".replace(" | None`", " \\| None`")


def _public(annotation: Any) -> str:
    """Return a type without its private alternatives, which mark a parameter that is left out."""
    return " | ".join(part for part in str(annotation).split(" | ") if not part.startswith("_"))


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
