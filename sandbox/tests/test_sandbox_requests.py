"""`requests.py`: any octets give a value or a `ProtocolViolation`, which quotes none of them."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from loanauth_sandbox.requests import (
    TOKEN_FIELDS,
    ProtocolViolation,
    header_text,
    read_basic,
    read_form,
    read_path_segment,
)

CONTENT_TYPE = "multipart/form-data; boundary=B"
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def violation_or_none(read, *arguments):
    """Return what the reader finds wrong; any other exception fails the test."""
    try:
        read(*arguments)
    except ProtocolViolation as violation:
        return str(violation)
    return None


def build(values):
    parts = (
        b'--B\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), value.encode())
        for name, value in zip(TOKEN_FIELDS, values, strict=True)
    )
    return b"".join(parts) + b"--B--\r\n"


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data; boundary=B",
        "multipart/form-data;boundary=B",
        'multipart/form-data; boundary="B"',
        "Multipart/Form-Data; Boundary=B",
    ],
)
def test_content_types(content_type):
    assert read_form(content_type, build("abcd"))["password"] == "b"
    assert read_form(content_type, build("abcd").removesuffix(b"\r\n"))["client_id"] == "d"


def test_a_header_name_may_be_in_any_case():
    body = build("abcd").replace(b"Content-Disposition", b"content-disposition")
    assert read_form(CONTENT_TYPE, body)["username"] == "a"


@given(st.lists(TEXT.filter(lambda text: "\r\n--B" not in f"\r\n{text}"), min_size=4, max_size=4))
def test_any_text_goes_through_a_form(values):
    assert tuple(read_form(CONTENT_TYPE, build(values)).values()) == tuple(values)


@given(st.binary() | st.lists(st.sampled_from([b"--B", b"\r\n", b"--", build("abcd"), b"x"])).map(b"".join))
def test_any_bytes_are_a_form_or_a_violation(body):
    message = violation_or_none(read_form, CONTENT_TYPE, body)
    assert message is None or message.isascii()


@given(TEXT.filter(lambda text: ":" not in text), TEXT)
def test_any_text_goes_through_basic(client_id, secret):
    value = "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    assert read_basic(value) == (client_id, secret)


@settings(max_examples=200)
@given(st.binary() | st.binary().map(lambda raw: b"Basic " + raw))
def test_any_bytes_are_basic_or_a_violation(raw):
    message = violation_or_none(read_basic, raw.decode("latin-1"))
    assert message is None or message.isascii()


@given(TEXT.filter(bool))
def test_any_text_goes_through_a_segment(text):
    assert read_path_segment(quote(text, safe=""), "apiKey") == text


@given(st.binary())
def test_any_bytes_are_a_segment_or_a_violation(raw):
    message = violation_or_none(read_path_segment, raw.decode("latin-1"), "apiKey")
    assert message is None or "apiKey" in message


def test_header_text():
    headers = [(b"a", "ü".encode()), (b"b", b"\xfc")]
    request = Request({"type": "http", "headers": headers})
    assert [header_text(request, name) for name in "abc"] == ["ü", "ü", None]
