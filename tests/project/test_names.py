"""Names and prose use the vocabulary of CONTRIBUTING.md: words that were replaced do not come back."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.paths import ROOT

FOLDERS = ("airflow_provider_loanauth", "sandbox", "tests", "e2e", "benchmarks", "scripts", "example_dags")

#: Retired word → what to write instead, and why.
RETIRED = {
    "answer": "response (RFC 9110)",
    "answered": "response (RFC 9110)",
    "answers": "responses (RFC 9110)",
    "anew": "again",
    "anybody": "name who",
    "ask": "request, or probe for a readiness check",
    "asked": "requested",
    "asking": "requesting, or probing",
    "asks": "requests",
    "canaries": "secrets",
    "canary": "secret",
    "everybody": "name who",
    "grant": "credential (a grant is what is exchanged for a token, RFC 6749 §1.3)",
    "grants": "credentials (as above)",
    "keyring": "provider (Python's keyring is the password store of the operating system)",
    "largest": "max",
    "longest": "max",
    "look": "poke (Airflow), or probe",
    "looks": "poke (Airflow), or probe",
    "mend": "correct, or end (a fault)",
    "most": "max",
    "nobody": "name what is missing",
    "ours": "name what it is",
    "patience": "timeout",
    "question": "probe",
    "questions": "probes",
    "refusal": "rejection, or error response",
    "refusals": "rejections, or error responses",
    "refused": "rejected",
    "renew": "refresh (google-auth, azure-core, botocore)",
    "renewal": "refresh (as above)",
    "renewals": "refreshes (as above)",
    "renewed": "refreshed (as above)",
    "renewing": "refreshing (as above)",
    "said": "message, or logged",
    "shortest": "min",
    "somebody": "name who",
    "spared": "grace period",
    "tally": "count",
    "tells": "returns, or reports",
    "told": "messages",
    "vain": "cooldown",
    "verb": "target (of make), or HTTP method",
    "whoever": "name who",
    "whose": "name the owner",
}
#: Retired phrase of docstrings, comments and messages → what to write instead.
RETIRED_PHRASES = {
    "anew": "again",
    "at the most": "at most",
    "in clear": "in plaintext, or unencrypted",
    "of ours": "of this package",
    "tell whether": "return whether",
    "tells whether": "returns whether",
}
#: Identifiers that contain such a word in another, standard meaning.
ALLOWED = {
    "at_most": "plain English for an upper limit",
    "grant_type": "a field of the wire (RFC 6749 §4.3.2)",
    "invalid_grant": "an error code (RFC 6749 §5.2)",
    "connection_refused": "what TCP calls a closed port",
}


def identifiers(tree):
    """Yield the names that a file defines: classes, functions, parameters, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


def words(name):
    for allowed in ALLOWED:
        name = re.sub(allowed, "", name, flags=re.IGNORECASE)
    return re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)


def retired(name):
    return [word.lower() for word in words(name) if word.lower() in RETIRED]


FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if ".venv" not in path.parts]


def path_id(path):
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", FILES, ids=path_id)
def test_no_retired_word(path):
    found = [f"{path.stem}: {word}" for word in retired(path.stem)]
    for name, line in identifiers(ast.parse(path.read_text(encoding="utf-8"))):
        found += [f"line {line}, {name}: write {RETIRED[word]}" for word in retired(name)]
    assert found == []


def retired_phrases(text):
    pattern = rf"\b(?:{'|'.join(RETIRED_PHRASES)})\b"
    return [phrase.lower() for phrase in re.findall(pattern, text, re.IGNORECASE)]


@pytest.mark.parametrize("path", [path for path in FILES if path.name != "test_names.py"], ids=path_id)
def test_no_retired_phrase(path):
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found += [f"line {number}: write {RETIRED_PHRASES[phrase]}" for phrase in retired_phrases(line)]
    assert found == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("answer_of", ["answer"]),
        ("WireAnswer", ["answer"]),
        ("MOST_THREADS", ["most"]),
        ("_renewed", ["renewed"]),
        ("test_refused_twice", ["refused"]),
        ("grant_type", []),
        ("INVALID_GRANT", []),
        ("almost_done", []),
        ("is_at_most_ten", []),
        ("at_the_most", ["most"]),
        ("tasks", []),
    ],
)
def test_the_words_of_a_name(name, expected):
    assert retired(name) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The password is sent in clear.", ["in clear"]),
        ("Tell whether it was made anew.", ["tell whether", "anew"]),
        ("A clear message in clearer words, at most one.", []),
    ],
)
def test_the_phrases_of_a_text(text, expected):
    assert retired_phrases(text) == expected
