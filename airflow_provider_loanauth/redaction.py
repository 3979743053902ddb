"""Protection of secrets: in ``repr``, in Airflow's logs, in XCom, and in exceptions."""

from __future__ import annotations

import base64
import functools
import json
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, SupportsIndex, TypeVar, cast
from urllib.parse import quote, quote_plus

from airflow_provider_loanauth._compat import ForkSafeLock, get_masker, mask_secret, supervisor_turn, task_logger
from airflow_provider_loanauth.exceptions import LoanAuthError, SealError

#: A longer secret is masked as it is only.
MAX_ENCODED_OCTETS = 512
_MASK_LOCK = ForkSafeLock()
_log = task_logger(__name__)

F = TypeVar("F", bound="Callable[..., Any]")


class SecretStr(str):
    """A string whose ``repr`` is ``'***'``, so that dataclasses and tracebacks do not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __getitem__(self, key: SupportsIndex | slice) -> SecretStr:
        # Some tools slice long values before they show them in a traceback.
        return SecretStr(super().__getitem__(key))

    def __reduce__(self) -> tuple[Any, ...]:
        # What unpickles it, such as a task in a virtual environment, may not have this package.
        return str, (str(self),)

    def __deepcopy__(self, *_: Any) -> SecretStr:
        return self

    __copy__ = __deepcopy__


def short_repr(self: object) -> str:
    """Return a ``repr`` for an object in a DAG file: an address in it would make a new DAG version at each parse."""
    # Without arguments: a connection id may be a token that was passed in its place.
    return f"{type(self).__name__}(...)"


class NotForXCom:
    """Base for objects that contain plaintext secrets. Without it, Airflow would store a returned dataclass in XCom."""

    def serialize(self) -> NoReturn:
        """Raise an error when Airflow stores the object in XCom, where the secret would be in plaintext."""
        raise SealError(f"{type(self).__name__} is plaintext, so it is not stored in XCom: return get_credential().")


def encoded_forms(secret: str) -> list[str]:
    """Return a secret, then the forms in which it may be sent or logged: Base64, percent-encoded, JSON, ``repr``."""
    # Few, because Airflow's masker compiles all known values again for each one. A long secret is usually a token: it
    # has no character that is escaped, and is never sent in Base64.
    octets = secret.encode("utf-8", "surrogatepass")
    forms = [secret]
    if len(octets) > MAX_ENCODED_OCTETS:
        return forms
    # Without padding, it also matches padded text.
    forms += [encode(octets).decode().rstrip("=") for encode in (base64.b64encode, base64.urlsafe_b64encode)]
    escaped = quote(octets, safe="")
    if escaped != secret:
        # Lower-case escapes are valid too (RFC 3986 §2.1), and some proxies write them.
        lower_case = re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), escaped)
        forms += [escaped, quote(octets), quote_plus(octets), lower_case]
        forms += [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]]
        # repr() escapes "'" only in text that also contains '"', and a secret is a part of some text.
        for literal in (repr(f'"{secret}')[2:-1], ascii(f'"{secret}')[2:-1], repr(b'"' + octets)[3:-1]):
            forms += [literal, literal.replace("\\'", "'")]
    return list(dict.fromkeys(forms))


def mask(secrets: Iterable[str]) -> None:
    """Make Airflow show ``***`` in this task's logs for these values and for all their :func:`encoded_forms`."""
    forms: list[Any] = [*sorted({str(form) for secret in secrets for form in encoded_forms(secret)})]
    # Airflow's masker loses one of two values that two threads add at the same moment.
    with _MASK_LOCK.current:
        get_masker().add_mask(forms)
    # One call for all values, because on Airflow 3 each call is a message to the supervisor. An event loop may have to
    # go on meanwhile, so the lock is not held.
    with supervisor_turn():
        mask_secret(forms)


def sanitize_exceptions(function: F) -> F:
    """Decorate a function, so that the exceptions that leave it contain no secret."""
    # Error trackers such as Sentry show the local variables of each frame, and the texts of inner exceptions, which
    # contain URLs. Frames of callers, and an exception that a caller is handling, stay as they are.

    @functools.wraps(function)
    def sanitized(*args: Any, **kwargs: Any) -> Any:
        handled = sys.exc_info()[1]
        try:
            with clear_locals():
                return function(*args, **kwargs)
        except BaseException as error:
            # This frame stays in the traceback, and an argument may be a plaintext token.
            del args, kwargs
            _remove_causes(error, handled, function.__qualname__)
            raise error

    return cast("F", sanitized)


@contextmanager
def clear_locals() -> Iterator[None]:
    """Clear the local variables of all frames below the ``with`` statement when an exception leaves it."""
    handled = sys.exc_info()[1]
    try:
        yield
    except BaseException as error:
        for one in exception_chain(error, handled):
            # Frames that are still running stay as they are.
            traceback.clear_frames(one.__traceback__)
        raise


def _remove_causes(error: BaseException, handled: BaseException | None, name: str) -> None:
    # The first frame is that of the caller of this function, and "raise" adds it again.
    below = error.__traceback__ and error.__traceback__.tb_next
    if isinstance(error, LoanAuthError):
        if _log.isEnabledFor(logging.DEBUG):
            # Without the texts of the exceptions, because they may contain URLs.
            chain = exception_chain(error, handled)
            stacks = [f"{type(one).__name__}:\n{''.join(traceback.format_tb(one.__traceback__))}" for one in chain]
            _log.debug("%s raised an exception. The traceback, and those of its causes:\n%s", name, "\n".join(stacks))
        below = None
    error.__cause__ = None
    error.__context__ = handled if handled is not error else None
    error.__suppress_context__ = False
    error.__traceback__ = below


def exception_chain(
    error: BaseException, handled: BaseException | None = None, *, suppressed: bool = True
) -> list[BaseException]:
    """Return an exception and its inner ones, except for ``handled``; ``suppressed``: also hidden contexts."""
    chain: list[BaseException] = []
    # Not by equality, which a class may define: two exceptions may be equal.
    seen: set[int] = set()
    pending: list[Any] = [error]
    while pending:
        one = pending.pop()
        if isinstance(one, BaseException) and one is not handled and id(one) not in seen:
            seen.add(id(one))
            chain.append(one)
            # requests and urllib3 pass the cause as an argument or attribute, an exception group its exceptions as a
            # sequence. No property is read: it may raise an error.
            pending += [one.__cause__, vars(one).get("reason")]
            if suppressed or not one.__suppress_context__:
                pending.append(one.__context__)
            for argument in one.args:
                pending += argument if isinstance(argument, (list, tuple)) else [argument]
    return chain
