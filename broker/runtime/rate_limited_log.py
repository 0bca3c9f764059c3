"""Log lines about what went wrong with messages: one line per kind, group and minute, however many there are (D25).

What happens per message is a counter. Skips, drops, damage and refusals also deserve a line in the log, but a flood
of them must not become a flood of lines. `RateLimitedLog.note` logs the first one at once and counts the others;
`flush`, which the node calls about once a second, writes what gathered once the minute has passed: how many there were
and the first of them as an example.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import structlog

from broker.runtime.seams import Clock

INTERVAL_SECONDS = 60.0
_KINDS_MAX = 10_000
_TEXT_CHARS_MAX = 2_000
"""Longest text of an example: some quote what a client sent."""
_FAULTY = {"exc_info", "fault"}


class LoggedFault(NamedTuple):
    """A fault of our own: its event, what was raised, and when, on the monotonic clock."""

    event: str
    text: str
    at: float


class _Window:
    """One kind and group: when its current minute ends, and what gathered in it since its first line."""

    __slots__ = ("count", "ends", "example")

    def __init__(self, ends: float) -> None:
        self.ends = ends
        self.count = 0
        self.example: dict[str, Any] = {}


class RateLimitedLog:
    """Gathers rate-limited log lines of one node.

    Args:
        clock: Its monotonic part measures the minute.
        log: A structlog logger; `structlog.get_logger()` when left out.
    """

    def __init__(self, clock: Clock, *, log: Any = None) -> None:
        self._clock = clock
        self._log = structlog.get_logger() if log is None else log
        self._windows: dict[tuple[str, str, str], _Window] = {}
        self.faults = 0
        """Faults of our own so far."""
        self.last_fault: LoggedFault | None = None

    def note(
        self,
        event: str,
        group: str = "",
        count: int = 1,
        *,
        kind: str = "",
        first: Callable[[], Mapping[str, object]] | None = None,
        **example: object,
    ) -> None:
        """Report `count` occurrences of one kind.

        Args:
            event: Constant snake_case name of the kind.
            group: Consumer group, or "" where none is concerned.
            count: Number of occurrences of this call, 1 or more.
            kind: Distinguishes kinds of one event, so that one does not hide another; not written; few values.
            first: Makes further facts of the line that is written at once; those that gather have none.
            example: Facts of the first of them (topic, offset, reason ...).
        """
        if not self._gathered((event, group, kind), count, example):
            self._write(event, group, count, {**_cut(example), **({} if first is None else first())})

    def fault(self, event: str, error: Exception, *, kind: str, **example: object) -> None:
        """Report a fault of our own, at level error.

        The line that is written at once has the traceback. For those that wait for their minute it would keep alive
        what its frames worked on; they say what was raised and where.

        Args:
            event: As `note`. Events logged here are logged by no other method.
            error: What was raised, and caught.
            kind: As `note`; the type of the error is added to it.
            example: As `note`.
        """
        self.faults += 1
        self.last_fault = LoggedFault(event, f"{type(error).__name__}: {error}", self._clock.monotonic())
        key = (event, "", f"{kind} {type(error).__name__}")
        if not self._gathered(key, 1, {**example, **_where(error)}):
            self._write(event, "", 1, {**example, "exc_info": error})

    def _gathered(self, key: tuple[str, str, str], count: int, example: dict[str, Any]) -> bool:
        """Count occurrences into their minute; False when they are the first, whose line is due now."""
        window = self._windows.get(key)
        if window is not None:
            if not window.count:
                window.example = _cut(example)
            window.count += count
            return True
        if len(self._windows) >= _KINDS_MAX:
            # Kinds are constants and groups come from the configuration, so this is a guard against misuse only.
            return True
        self._windows[key] = _Window(self._clock.monotonic() + INTERVAL_SECONDS)
        return False

    def flush(self, *, everything: bool = False) -> None:
        """Write the counts of finished minutes; with `everything` (at a stop), of all minutes."""
        if not self._windows:
            return
        now = self._clock.monotonic()
        for (event, group, kind), window in list(self._windows.items()):
            if not everything and now < window.ends:
                continue
            if not window.count:
                del self._windows[event, group, kind]
                continue
            self._write(event, group, window.count, window.example)
            self._windows[event, group, kind] = _Window(now + INTERVAL_SECONDS)

    def _write(self, event: str, group: str, count: int, example: dict[str, Any]) -> None:
        facts = {name: value for name, value in example.items() if value is not None}
        if group:
            facts["group"] = group
        write = self._log.error if facts.keys() & _FAULTY else self._log.warning
        write(event, count=count, **facts)


def _cut(example: dict[str, Any]) -> dict[str, Any]:
    """Return the facts with long texts cut."""
    return {
        name: f"{value[:_TEXT_CHARS_MAX]}…" if isinstance(value, str) and len(value) > _TEXT_CHARS_MAX else value
        for name, value in example.items()
    }


def _where(fault: Exception) -> dict[str, str]:
    """Say what was raised and in which line."""
    at = place_of(fault)
    return {"fault": f"{type(fault).__name__}: {fault}", **({"at": at} if at else {})}


def place_of(fault: Exception) -> str:
    """Return file and line that raised, "" for what was never raised."""
    frames = list(traceback.walk_tb(fault.__traceback__))
    return f"{frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else ""
