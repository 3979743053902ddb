"""
Protection of the exceptions that leave this package.

Error trackers such as Sentry and printers of tracebacks such as rich show the local variables of each frame, and the
text of each inner exception. During an authentication, local variables contain the Connection, the request and the
response, and the texts of HTTP libraries contain URLs. So an exception leaves this package without them.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow_provider_loanauth.exceptions import LoanAuthError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A child of Airflow's logger, so that its lines reach the log of the task.
_log = logging.getLogger(f"airflow.task.hooks.{__name__}")

F = TypeVar("F", bound="Callable[..., Any]")


def sanitize_exceptions(function: F) -> F:
    """
    Decorate a function or a coroutine function, so that the exceptions that leave it contain no secret.

    This holds for every exception, also for one that a signal handler raises, such as the time-out of a task. The local
    variables of all frames below the function are cleared, also those of the libraries that it calls. Inner exceptions
    are removed, but not an exception that the caller is handling.

    The message of a :class:`LoanAuthError` says what to do, so its traceback is cut off here. The rest is logged at
    DEBUG: file, line, function and source line of each frame, and the types of inner exceptions.

    :param function: the function. Frames of its callers are not changed, so they must not have a secret in a variable
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
                raise error  # noqa: TRY201 - a bare raise restores the traceback on Python 3.10

        return cast("F", sanitized_coroutine)

    @functools.wraps(function)
    def sanitized(*args: Any, **kwargs: Any) -> Any:
        handled = sys.exc_info()[1]
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            _sanitize(error, handled, function.__qualname__)
            raise error  # noqa: TRY201 - a bare raise restores the traceback on Python 3.10

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
    """
    Remove local variables and inner exceptions from an exception that leaves a function, and cut an expected one off.

    :param error: the exception
    :param handled: exception that the caller of the function is handling, or None
    :param name: name of the function
    """
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
            # requests and urllib3 pass the cause as an argument or attribute. An exception group has a tuple.
            pending += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
            pending += getattr(one, "exceptions", ())
    return [*chain.values()]


def _clear_locals(chain: list[BaseException]) -> None:
    for one in chain:
        # Frames that are still running, which are those above, stay as they are.
        traceback.clear_frames(one.__traceback__)


def _stacks(chain: list[BaseException]) -> str:
    """Return the frames of exceptions, and their types. Their texts are left out, because they may contain URLs."""
    return "\n".join(f"{type(one).__name__}:\n{''.join(traceback.format_tb(one.__traceback__))}" for one in chain)
