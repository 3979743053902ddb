"""Looks for secrets in texts, in every form that they take on the way; shares no code with the provider."""

from __future__ import annotations

import base64
import re
import traceback
from urllib.parse import quote, quote_plus

#: Any JSON web token: it begins with the Base64 of '{"'. What Fernet makes may by chance do so too, but has no dot.
_JSON_WEB_TOKEN = re.compile(r"eyJ[\w-]{8,}\.[\w-]+")


def forms(secret):
    """Return what a secret may look like: raw, escaped by repr, percent-encoded, Base64 at each of its offsets."""
    octets = secret.encode()
    found = {secret, repr(secret)[1:-1], quote(secret, safe=""), quote(secret), quote_plus(secret)}
    found |= {form.lower() for form in found if "%" in form}
    for offset in range(3):
        # What comes before it shifts the groups of three octets; the first and last characters depend on neighbours.
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(b"x" * offset + octets).decode().rstrip("=")[(0, 2, 3)[offset] : -1])
    return {form for form in found if len(form) > 4}


def leaks(text, secrets):
    """Return the secrets that a text shows."""
    found = [secret for secret in secrets if any(form in text for form in forms(secret))]
    return found + _JSON_WEB_TOKEN.findall(text)


def said_by(output):
    """Return the output of ``airflow dags test`` without the lines in which Airflow 3.0 prints what it is to mask."""
    return "\n".join(line for line in output.splitlines() if "msg=MaskSecret(" not in line)


def told(error):
    """Return all that an exception and its chain tell: texts, representations, the traceback."""
    texts = ["".join(traceback.format_exception(error))]
    pending = [error]
    while pending:
        one = pending.pop()
        texts += [str(one), repr(one), repr(one.args), repr(vars(one))]
        pending += [inner for inner in (one.__cause__, one.__context__) if inner is not None]
    return "\n".join(texts)


def locals_of(error):
    """Return what a debugger, or a traceback that shows locals, would print of our own frames."""
    shown, traceback = [], error.__traceback__
    while traceback:
        frame = traceback.tb_frame
        if "airflow_provider_loanauth" in frame.f_code.co_filename:
            shown += [f"{name} = {value!r}" for name, value in frame.f_locals.items()]
        traceback = traceback.tb_next
    return "\n".join(shown)
