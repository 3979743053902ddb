"""The file of ``--capture``: a transcript of a response of the service, for the maintainers of this package."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_loanauth.check.transcript import transcribe
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.redaction import sanitize_exceptions

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_loanauth.service.protocol import WireRequest, WireResponse


def require_new_file(path: str | os.PathLike[str]) -> None:
    """
    Check that a capture can be written, before a login is spent on it.

    :param path: path of the file
    :raises LoanAuthError: the file exists, or its folder does not exist or is not writable
    """
    folder = Path(path).parent
    if os.path.lexists(path):
        raise _exists(path)
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise LoanAuthError(
            f"The capture cannot be written to {str(path)!r}: its folder does not exist, or is not writable. Choose a "
            "path in a folder that you can write to."
        )


@sanitize_exceptions
def write_capture(
    path: str | os.PathLike[str],
    request: WireRequest,
    response: WireResponse,
    *,
    method: str,
    requested_at: datetime,
) -> None:
    """
    Write the transcript of a response to a new file, which only its owner can read.

    The file appears when it is complete. Nothing of it stays after an error.

    Other parameters are those of :func:`~airflow_provider_loanauth.check.transcript.transcribe`.

    :param path: path of the file; an existing file is not replaced
    :raises LoanAuthError: the file exists, or cannot be written
    """
    text = transcribe(request, response, method=method, requested_at=requested_at)
    try:
        # A temporary file has mode 0600, and deletes itself.
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix=".capture-", dir=Path(path).parent) as file:
            file.write(text)
            file.flush()
            # Unlike a rename, a link does not replace an existing file.
            Path(path).hardlink_to(file.name)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise LoanAuthError(
            f"The capture cannot be written to {str(path)!r} ({error.strerror}): choose a path on another file system, "
            "or in another folder."
        ) from None


def _exists(path: str | os.PathLike[str]) -> LoanAuthError:
    return LoanAuthError(f"The capture file {str(path)!r} exists and is not replaced: choose a new name, or delete it.")
