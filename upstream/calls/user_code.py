"""What code of users raises and answers, made safe: an `Exception` as an outcome, and texts that can always be shown.

Whatever an action raises is an outcome of its message (D74). `SystemExit`, `KeyboardInterrupt` and their kin would pass
every `except Exception` of the node and end it, and would do so again after each restart. Its `__str__` and `__repr__`
are code of users as well: they may raise, return megabytes, or text that no encoding takes.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

TEXT_CHARACTERS_MAX: Final = 2_000
"""Longest text of a reason; what is longer is cut."""
TRACEBACK_CHARACTERS_MAX: Final = 8_000
_PLAIN = (str, int, float, bool, type(None))


class ActionMisbehaved(Exception):
    """An action broke its protocol; counts as an error of the jobs concerned."""


def as_exception(error: BaseException) -> Exception:
    """Return the exception to keep for something raised: itself where `except Exception` and a future take it."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return ActionMisbehaved(f"it raised {described(error)}").with_traceback(error.__traceback__)


def raised_by(work: Callable[[], object]) -> Exception | None:
    """Run a hook; returns what it raised, as `as_exception`."""
    try:
        work()
    except BaseException as error:
        return as_exception(error)
    return None


def is_own_cancellation(error: BaseException) -> bool:
    """Whether the present task was cancelled from outside, so that the node has to go along with it."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def described(error: BaseException) -> str:
    """Return type and text of an exception, such as `KeyError: 'nokey'`; never raises."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(value: object) -> str:
    """Return `str(value)`: encodable as UTF-8, of TEXT_CHARACTERS_MAX characters at most; never raises."""
    return _guarded(value, str)


def shown(value: object) -> str:
    """Return `repr(value)`, bounded and guarded as `text_of`."""
    return _guarded(value, repr)


def traceback_of(error: BaseException) -> str:
    """Return the traceback as text, its end where it is long; never raises."""
    lines = _guarded(error, lambda each: "".join(traceback.format_tb(each.__traceback__)), TRACEBACK_CHARACTERS_MAX)
    return f"{lines}{described(error)}"


def plain_facts(facts: Mapping[str, object]) -> dict[str, str | int | float | None]:
    """Return facts of a log line that can be written later: what is not plain, by its text."""
    return {name: _plain(fact) for name, fact in facts.items()}


def _plain(fact: object) -> str | int | float | None:
    if type(fact) is str:
        return text_of(fact)
    if type(fact) in _PLAIN and not (type(fact) is float and not math.isfinite(fact)):
        return fact  # type: ignore[return-value]
    return shown(fact)


def _guarded(value: Any, show: Callable[[Any], str], longest: int = TEXT_CHARACTERS_MAX) -> str:
    try:
        text = show(value)
        # A subclass of str may have methods of its own.
        text = str.__str__(text)
    except BaseException as error:
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    if len(text) > longest:
        text = f"{text[:longest]}..."
    return text.encode("utf-8", "backslashreplace").decode()
