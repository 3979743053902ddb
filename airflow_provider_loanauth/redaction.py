"""
Protection of secrets: strings with a masked ``repr``, the encoded forms in which a secret may appear, masking in
Airflow's logs, a base class for objects that must not be stored in XCom, and exceptions without secrets.
"""

from __future__ import annotations

import base64
import functools
import inspect
import json
import logging
import re
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypeVar, cast
from urllib.parse import quote, quote_plus

from airflow_provider_loanauth._compat import conf, mask_secret, supervisor_lock
from airflow_provider_loanauth.exceptions import LoanAuthError, SealError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Airflow 3 masks no value shorter than this many characters, unless ``[logging] min_length_masked_secret`` is set.
MIN_MASKABLE_LENGTH = 5
#: Airflow 3 never masks these words, in upper or lower case (``SECRETS_TO_SKIP_MASKING``).
NEVER_MASKED = frozenset({"airflow"})
#: In Base64, so many octets at the end of a longer secret are masked; see :func:`encoded_forms`.
MAX_BASE64_OCTETS = 96

# A child of Airflow's logger, so that its lines reach the log of the task.
_log = logging.getLogger(f"airflow.task.hooks.{__name__}")

_PERCENT_ESCAPE = re.compile("%[0-9A-F]{2}")

F = TypeVar("F", bound="Callable[..., Any]")


class SecretStr(str):
    """A string whose ``repr`` is ``'***'``, so that dataclasses and tracebacks with local variables do not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __getitem__(self, key: SupportsIndex | slice) -> SecretStr:
        """Return a part with a masked ``repr``: some tools slice long values before they show them in a traceback."""
        return SecretStr(super().__getitem__(key))


class NotForXCom:
    """Base for objects that contain plaintext secrets. Without it, Airflow would store a returned dataclass in XCom."""

    __slots__ = ()

    def serialize(self) -> NoReturn:
        """
        Raise an error when Airflow stores the object in XCom, where the secret would be in plaintext.

        :raises SealError: always
        """
        raise SealError(
            f"{type(self).__name__} contains a plaintext secret and personal data, so it is not stored in XCom. Return "
            "LoanAuthHook.get_credential() from the task instead: it is sealed."
        )


@functools.cache
def min_maskable_length() -> int:
    """Return the number of characters that a value must have so that Airflow masks it. It is read once per process."""
    return int(conf.getint("logging", "min_length_masked_secret", fallback=MIN_MASKABLE_LENGTH))


def encoded_forms(secret: str) -> list[str]:
    """
    Return a secret, then the forms in which it may be sent or logged: Base64, percent-encoded, and escaped as in JSON
    and in Python's ``repr``.

    The list is short on purpose: whenever Airflow's masker gets a value, it compiles all characters of all known ones
    again. So of a long secret, such as a token, the Base64 form is that of its end, without which the rest is of no
    use.
    """
    octets = secret.encode("utf-8", "surrogatepass")
    # Base64 encodes three octets at a time. Without padding, it also matches padded text.
    start = max(0, len(octets) - MAX_BASE64_OCTETS + 2) // 3 * 3
    encoded = base64.b64encode(octets[start:]).decode().rstrip("=")
    forms = [secret, encoded, encoded.replace("+", "-").replace("/", "_")]
    escaped = quote(octets, safe="")
    if escaped != secret:
        # Lower-case escapes are valid too (RFC 3986 §2.1), and some proxies write them.
        lower_case = _PERCENT_ESCAPE.sub(lambda match: match[0].lower(), escaped)
        forms += [escaped, quote(octets), quote_plus(octets), lower_case]
        forms += [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]]
        # repr() escapes "'" only in text that also contains '"', and a secret is a part of some text.
        for literal in (repr(f"{secret}'\""), ascii(f"{secret}'\""), repr(octets + b"'\"")[1:]):
            inner = literal.removesuffix("\\'\"'")[1:]
            forms += [inner, inner.replace("\\'", "'")]
    return list(dict.fromkeys(forms))


def mask(secrets: Iterable[str]) -> None:
    """Make Airflow show ``***`` in this task's logs for these values and for all their :func:`encoded_forms`."""
    # One call for all values, because on Airflow 3 each call is a message to the supervisor.
    with supervisor_lock():
        mask_secret([*sorted({str(form) for secret in secrets for form in encoded_forms(secret)})])


# --- exceptions
#
# Error trackers such as Sentry and printers of tracebacks such as rich show the local variables of each frame, and the
# text of each inner exception. During an authentication, local variables contain the Connection, the request and the
# response, and the texts of HTTP libraries contain URLs. So an exception leaves this package without them.


def sanitize_exceptions(function: F) -> F:
    """
    Decorate a function or a coroutine function, so that the exceptions that leave it contain no secret.

    This holds for every exception, also for one that a signal handler raises, such as the time-out of a task. The local
    variables of all frames below the function are cleared, also those of the libraries that it calls. Inner exceptions
    are removed, but not an exception that the caller is handling.

    The message of a :class:`LoanAuthError` says what to do, so its traceback is cut off here. The rest is logged at
    DEBUG: file, line, function and source line of each frame, and the types of inner exceptions.

    Frames of callers of the function are not changed, so they must not have a secret in a variable.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def sanitized_coroutine(*args: Any, **kwargs: Any) -> Any:
            handled = sys.exc_info()[1]
            try:
                return await function(*args, **kwargs)
            except BaseException as error:
                # This frame stays in the traceback, and an argument may be a plaintext token.
                del args, kwargs
                _sanitize(error, handled, function.__qualname__)
                raise error

        return cast("F", sanitized_coroutine)

    @functools.wraps(function)
    def sanitized(*args: Any, **kwargs: Any) -> Any:
        handled = sys.exc_info()[1]
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            _sanitize(error, handled, function.__qualname__)
            raise error

    return cast("F", sanitized)


@contextmanager
def clear_locals() -> Iterator[None]:
    """Clear the local variables of all frames below the ``with`` statement when an exception leaves it."""
    handled = sys.exc_info()[1]
    try:
        yield
    except BaseException as error:
        _clear_locals(_chain(error, handled))
        raise


def _sanitize(error: BaseException, handled: BaseException | None, name: str) -> None:
    """Remove local variables and inner exceptions, except for ``handled``, which the caller is handling."""
    chain = _chain(error, handled)
    _clear_locals(chain)
    # The first frame is that of the caller of this function, and "raise" adds it again.
    below = error.__traceback__ and error.__traceback__.tb_next
    if isinstance(error, LoanAuthError):
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s raised an exception. The traceback, and those of its causes:\n%s", name, _stacks(chain))
        below = None
    error.__cause__ = None
    error.__context__ = handled if handled is not error else None
    error.__suppress_context__ = False
    error.__traceback__ = below


def _chain(error: BaseException, handled: BaseException | None) -> list[BaseException]:
    """Return an exception and its inner exceptions, except for the one that was handled before, and its own."""
    chain: dict[int, BaseException] = {}
    pending: list[Any] = [error]
    while pending:
        one = pending.pop()
        if isinstance(one, BaseException) and one is not handled and id(one) not in chain:
            chain[id(one)] = one
            # requests and urllib3 pass the cause as an argument or attribute, an exception group its exceptions as a
            # sequence. No property is read: it may raise an error.
            pending += [one.__cause__, one.__context__, vars(one).get("reason")]
            for argument in one.args:
                pending += argument if isinstance(argument, (list, tuple)) else [argument]
    return [*chain.values()]


def _clear_locals(chain: list[BaseException]) -> None:
    for one in chain:
        # Frames that are still running, which are those above, stay as they are.
        traceback.clear_frames(one.__traceback__)


def _stacks(chain: list[BaseException]) -> str:
    """Return the frames of exceptions, and their types. Their texts are left out, because they may contain URLs."""
    return "\n".join(f"{type(one).__name__}:\n{''.join(traceback.format_tb(one.__traceback__))}" for one in chain)
