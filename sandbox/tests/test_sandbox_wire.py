"""`wire.py`: any bytes give a value or a `Deviation`, and the deviation shows none of them."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loanauth_sandbox.wire import (
    TOKEN_FIELDS,
    Deviation,
    WireRequest,
    read_basic,
    read_form,
    read_segment,
)

CONTENT_TYPE = b"multipart/form-data; boundary=B"
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def deviation_or_none(read, *arguments):
    """Return what the reader finds wrong; any other exception fails the test."""
    try:
        read(*arguments)
    except Deviation as deviation:
        return str(deviation)
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
        b"multipart/form-data; boundary=B",
        b"multipart/form-data;boundary=B",
        b'multipart/form-data; boundary="B"',
        b"Multipart/Form-Data; Boundary=B",
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
def test_any_bytes_are_a_form_or_a_deviation(body):
    told = deviation_or_none(read_form, CONTENT_TYPE, body)
    assert told is None or told.isascii()


@given(TEXT.filter(lambda text: ":" not in text), TEXT)
def test_any_text_goes_through_basic(client_id, secret):
    value = b"Basic " + base64.b64encode(f"{client_id}:{secret}".encode())
    assert read_basic(value) == (client_id, secret)


@settings(max_examples=200)
@given(st.binary() | st.binary().map(lambda raw: b"Basic " + raw))
def test_any_bytes_are_basic_or_a_deviation(raw):
    told = deviation_or_none(read_basic, raw)
    assert told is None or told.isascii()


@given(TEXT.filter(bool))
def test_any_text_goes_through_a_segment(text):
    assert read_segment(quote(text, safe="").encode(), "apiKey") == text


@given(st.binary())
def test_any_bytes_are_a_segment_or_a_deviation(raw):
    told = deviation_or_none(read_segment, raw, "apiKey")
    assert told is None or "apiKey" in told


def test_header_text():
    headers = ((b"a", "ü".encode()), (b"b", b"\xfc"))
    request = WireRequest("GET", b"/", b"", headers, b"")
    assert (request.text("a"), request.text("b"), request.text("c")) == ("ü", "ü", None)
