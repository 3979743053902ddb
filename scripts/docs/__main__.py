"""Generate the API reference (``make docs``)."""

from __future__ import annotations

from scripts.docs import reference

reference.main()
