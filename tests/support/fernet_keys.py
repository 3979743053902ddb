"""Made-up Fernet keys. They are not in ``conftest.py``, because a module of that name cannot be imported reliably."""

import base64

FERNET_KEY = base64.urlsafe_b64encode(b"made-up-fernet-key-for-the-tests").decode()
OTHER_FERNET_KEY = base64.urlsafe_b64encode(b"another-made-up-fernet-key-tests").decode()
