"""Tests of ``leaks.py``: it finds a secret in every form."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest

from tests.support.leaks import leaks, messages

SECRET = "made-up/sécret+42"


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"at /{quote(SECRET, safe='')}/user",
        quote(SECRET, safe="").lower(),
        f"Basic {base64.b64encode(SECRET.encode()).decode()}",
        f"Basic {base64.b64encode(f'client:{SECRET}'.encode()).decode()}",
        f"Basic {base64.b64encode(f'client1:{SECRET}'.encode()).decode()}",
        f"Basic {base64.b64encode(f'client12:{SECRET}'.encode()).decode()}",
        repr({"password": SECRET}),
        "Bearer eyJhbGciOiJSUzI1NiJ9.e30.x",
    ],
)
def test_a_leak_is_found_in_every_form(text):
    assert leaks(f"before {text} after", [SECRET])


def test_other_text_is_not_a_leak():
    assert leaks("The service responded with 401.", [SECRET]) == []


def fail():
    raise ValueError(SECRET)


def test_the_messages_of_an_exception_include_its_chain():
    error = RuntimeError("outer")
    with pytest.raises(ValueError) as inner:  # noqa: PT011 - made here
        fail()
    for name in ("__cause__", "__context__"):
        error = RuntimeError("outer")
        setattr(error, name, inner.value)
        assert leaks(messages(error), [SECRET]) == [SECRET]
    assert leaks(messages(RuntimeError("outer")), [SECRET]) == []
