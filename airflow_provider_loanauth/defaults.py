"""What holds where nobody says otherwise, and more than one module has to know. A leaf."""

from __future__ import annotations

#: Requests of one authentication at the most, while the service is unavailable.
MAX_ATTEMPTS = 3
#: Seconds that must be left of a credential before it is used.
MIN_TTL = 60.0
#: Headers of an API secret: those of public samples (``service-notes.md``), which is why their names can be set.
SECRET_HEADER = "secret"  # noqa: S105 - a header's name
COMPANY_HEADER = "companyid"
