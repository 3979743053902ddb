"""Made-up Fernet keys. Not in ``conftest.py``: there are several files of that name, and any of them may be meant."""

from __future__ import annotations

import base64

FERNET_KEY = base64.urlsafe_b64encode(b"made-up-fernet-key-for-the-tests").decode()
OTHER_FERNET_KEY = base64.urlsafe_b64encode(b"another-made-up-fernet-key-tests").decode()
