"""Searches texts for secrets in every encoded form. It shares no code with the provider."""

from __future__ import annotations

import base64
import json
import re
import traceback
from urllib.parse import quote, quote_plus

#: Any JSON web token: it begins with the Base64 of '{"'. A Fernet token may by chance begin so too, but has no dot.
_JSON_WEB_TOKEN = re.compile(r"eyJ[\w-]{8,}\.[\w-]+")


def forms(secret):
    """Return the forms of a secret: raw, escaped as in JSON and Python, percent-encoded, Base64 at each offset."""
    octets = secret.encode()
    found = {secret, repr(secret)[1:-1], quote(secret, safe=""), quote(secret), quote_plus(secret)}
    found |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    found |= {ascii(secret)[1:-1], repr(octets)[2:-1]}
    found |= {form.lower() for form in found if "%" in form}
    for offset in range(3):
        # Preceding octets shift the groups of three; the first and the last character depend on neighbouring octets.
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(b"x" * offset + octets).decode().rstrip("=")[(0, 2, 3)[offset] : -1])
    return {form for form in found if len(form) > 4}


def leaks(text, secrets):
    """Return the secrets that a text contains, and all JSON web tokens in it."""
    found = [secret for secret in secrets if any(form in text for form in forms(secret))]
    return found + _JSON_WEB_TOKEN.findall(text)


def without_masking_lines(output):
    """Return the output of ``airflow dags test`` without the lines in which Airflow 3.0 prints the values to mask."""
    return "\n".join(line for line in output.splitlines() if "msg=MaskSecret(" not in line)


def messages(error):
    """Return every text of an exception and its chain: messages, representations, the traceback."""
    texts = ["".join(traceback.format_exception(error))]
    pending = [error]
    while pending:
        current = pending.pop()
        texts += [str(current), repr(current), repr(current.args), repr(vars(current))]
        pending += [inner for inner in (current.__cause__, current.__context__) if inner is not None]
    return "\n".join(texts)


def locals_of(error):
    """Return the local variables of this package's frames, as a debugger or a traceback with locals prints them."""
    shown, traceback = [], error.__traceback__
    while traceback:
        frame = traceback.tb_frame
        if "airflow_provider_loanauth" in frame.f_code.co_filename:
            shown += [f"{name} = {value!r}" for name, value in frame.f_locals.items()]
        traceback = traceback.tb_next
    return "\n".join(shown)
