"""Searches octets, such as a database file, for secrets by name: the forms of ``leaks.py``, and more escapes."""

from __future__ import annotations

import html
import json
import re
from urllib.parse import quote, quote_plus

from tests.support.leaks import forms


def forms_of(secret):
    """Return a secret as octets, in each form in which it may appear."""
    texts = {*forms(secret), html.escape(secret), json.dumps(secret)[1:-1]}
    for escaped in (quote(secret, safe=""), quote(secret), quote_plus(secret), quote(secret, safe="!$&'()*+,;=:@")):
        # With lower-case escapes and the rest unchanged.
        texts |= {escaped, re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), escaped)}
    return {text.encode() for text in texts}


def found_in(octets, secrets):
    """Return the names of the secrets that the octets contain in any form."""
    if isinstance(octets, str):
        octets = octets.encode("utf-8", "surrogatepass")
    return sorted(name for name, secret in secrets.items() if any(form in octets for form in forms_of(secret)))
