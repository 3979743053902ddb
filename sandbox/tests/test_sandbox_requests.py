"""`requests.py`: any octets give a value or a `ProtocolViolation`, which quotes none of them."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loanauth_sandbox.requests import TOKEN_FIELDS, ProtocolViolation, read_basic, read_form, read_path_segment

CONTENT_TYPE = "multipart/form-data; boundary=B"
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def build(values):
    parts = (
        b'--B\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), value.encode())
        for name, value in zip(TOKEN_FIELDS, values, strict=True)
    )
    return b"".join(parts) + b"--B--\r\n"


@pytest.mark.parametrize("content_type", ['multipart/form-data;boundary="B"', "Multipart/Form-Data; Boundary=B"])
def test_what_may_be_written_differently(content_type):
    body = build("abcd").replace(b"Content-Disposition", b"content-disposition").removesuffix(b"\r\n")
    assert read_form(content_type, body) == dict(zip(TOKEN_FIELDS, "abcd", strict=True))


@given(st.lists(TEXT.filter(lambda text: "\r\n--B" not in f"\r\n{text}"), min_size=4, max_size=4), TEXT.filter(bool))
def test_any_text_can_be_sent(values, text):
    assert tuple(read_form(CONTENT_TYPE, build(values)).values()) == tuple(values)
    value = "Basic " + base64.b64encode(f"{text.replace(':', '')}:{text}".encode()).decode()
    assert read_basic(value) == (text.replace(":", ""), text)
    assert read_path_segment(quote(text, safe=""), "apiKey") == text


PIECES = st.lists(st.sampled_from([b"--B", b"\r\n", b"--", build("abcd"), b"x"])).map(b"".join)


@pytest.mark.parametrize(
    "read",
    [
        lambda raw: read_form(CONTENT_TYPE, raw),
        lambda raw: read_basic(raw.decode("latin-1")),
        lambda raw: read_basic("Basic " + raw.decode("latin-1")),
        lambda raw: read_path_segment(raw.decode("latin-1"), "apiKey"),
    ],
    ids=["form", "header", "basic", "segment"],
)
@given(raw=st.binary() | PIECES)
def test_any_octets_are_a_value_or_a_violation(read, raw):
    found = ""
    try:
        read(raw)
    except ProtocolViolation as violation:
        found = str(violation)
    assert found.isascii()
