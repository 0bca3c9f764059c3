"""Who changed what through the admin port, who was denied what: two trails in the data directory (docs/operations.md).

A change is written down before it is begun, and durable then; where that cannot be, it is not made. Its outcome is a
second line, which no request waits for: should the disk have filled in between, the log has it. Denials are summed up,
one line a minute for each kind, in a trail of their own, so that a million denials push no change out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from heapq import merge
from itertools import islice
from typing import NamedTuple

from broker.runtime.bundle import Runtime
from broker.runtime.rate_limited_log import RateLimitedLog
from conf.file_faults import file_fault
from conf.sections.admin import AdminConfig
from proxy.access.audit_file import FOLDER, LINES, LOST, Trail
from proxy.access.views import AuditEntry

_ASKED_CHARS_MAX = 4_000
_TEXT_CHARS_MAX = 500
_PRINCIPALS_MAX = 500
"""Principals whose denials are lines of their own; those of others share one."""


class AuditUnwritable(Exception):
    """It cannot be kept who asks for what.

    Attributes:
        text: A sentence, which says why.
    """

    def __init__(self, why: str) -> None:
        self.text = f"The audit trail cannot be written ({why}), so changes are refused: each change must be recorded."
        super().__init__(self.text)


class Who(NamedTuple):
    """Who asks for something; the fields are those of `AuditEntry`."""

    principal: str = ""
    way: str = ""
    proof: str = ""
    address: str = "unknown"


class Audit:
    """The audit trail of one node.

    Args:
        runtime: The node's.
        settings: How much is kept.
    """

    def __init__(self, runtime: Runtime, settings: Callable[[], AdminConfig]) -> None:
        self._runtime = runtime
        self._settings = settings
        self._changes: Trail | None = None
        self._denials: Trail | None = None
        self._principals: set[str] = set()
        self._gathered = RateLimitedLog(runtime.clock, log=_AuditLines(self))

    def open(self, data: str) -> None:
        """Begin, once the lock of the store is held; what was written last is read to be shown."""
        self._changes, self._denials = (
            Trail(
                self._runtime.disk,
                f"{data}/{FOLDER}",
                name,
                syncs=self._runtime.syncs,
                settings=self._settings,
            )
            for name in ("changes", "denials")
        )
        for trail in (self._changes, self._denials):
            try:
                trail.load()
            except OSError as error:
                self._runtime.limited_log.note("audit_unreadable", error=str(error))

    async def begin(self, what: str, who: Who, asked: str) -> int:
        """Write down what a principal is about to change, and wait until that is durable.

        Args:
            what: Which change.
            who: Who.
            asked: With which body, as JSON.

        Returns:
            Number of the line.

        Raises:
            AuditUnwritable: It cannot be written; nothing may be changed.
        """
        trail = self._changes
        if trail is None:
            raise AuditUnwritable("the node is starting, or has stopped")
        entry = self._entry(trail, what, "asked", who, asked=asked)
        try:
            await trail.keep(entry)
        except OSError as error:
            self._runtime.metrics.counter(LOST, "changes").add()
            raise AuditUnwritable(file_fault(error, to="write")) from error
        self._runtime.metrics.counter(LINES, "changes").add()
        return entry.number

    def ended(self, what: str, outcome: str, who: Who, *, of: int = 0, why: str = "") -> None:
        """Write down how a change ended, or a sign-in or sign-out; `of`: the line that began it."""
        trail = self._changes
        if trail is not None:
            self._add(trail, "changes", self._entry(trail, what, outcome, who, of=of, why=why))

    def denied(self, what: str, who: Who, *, resource: str, reason: str, count: int = 1) -> None:
        """Count a denial; it is written at once, or with others of its kind and principal when their minute has passed.

        Args:
            what: The request, one of few: its method and its route.
            who: Who.
            resource: On what.
            reason: One of few.
            count: How many.
        """
        facts = {**who._asdict(), "resource": resource, "reason": reason}
        if who.principal not in self._principals and len(self._principals) < _PRINCIPALS_MAX:
            self._principals.add(who.principal)
        apart = who.principal if who.principal in self._principals else ""
        self._gathered.note(what, "", count, kind=f"{reason} {apart}", **facts)

    def flush(self, *, everything: bool = False) -> None:
        """Write what gathered, and have it synced; called about once a second."""
        self._gathered.flush(everything=everything)
        for trail in (self._changes, self._denials):
            if trail is not None:
                trail.begin_sync()

    def close(self) -> None:
        """Write what gathered, and close the files."""
        self._gathered.flush(everything=True)
        for trail in (self._changes, self._denials):
            if trail is not None:
                with contextlib.suppress(OSError):
                    trail.close()
        self._changes = self._denials = None

    def recent(self, limit: int) -> tuple[list[AuditEntry], int]:
        """Return the last entries of both trails, the newest first, and how many there are in memory."""
        trails = [trail.recent for trail in (self._changes, self._denials) if trail is not None]
        # Both in the order of their numbers; where the clock went back, an entry is a little off.
        found = merge(*map(reversed, trails), key=lambda each: -each.at_ms)
        return list(islice(found, limit)), sum(map(len, trails))

    def add_denials(self, what: str, count: int, facts: dict[str, str]) -> None:
        """Write a line for so many denials of one kind."""
        trail = self._denials
        if trail is None:
            return
        who = Who(facts["principal"], facts["way"], facts["proof"], facts["address"])
        entry = self._entry(trail, what, "denied", who, why=facts["reason"], resource=facts["resource"], count=count)
        self._add(trail, "denials", entry)

    def _entry(
        self, trail: Trail, what: str, outcome: str, who: Who, *, asked: str = "", why: str = "", **more: object
    ) -> AuditEntry:
        return AuditEntry(
            number=trail.number + 1,
            at_ms=self._runtime.clock.wall_ms(),
            what=what,
            outcome=outcome,
            **who._asdict(),
            asked=asked[:_ASKED_CHARS_MAX],
            why=why[:_TEXT_CHARS_MAX],
            **more,  # type: ignore[arg-type]  # of AuditEntry
        )

    def _add(self, trail: Trail, name: str, entry: AuditEntry) -> None:
        try:
            trail.add(entry)
        except OSError as error:
            self._runtime.metrics.counter(LOST, name).add()
            self._runtime.limited_log.note("audit_line_lost", kind=name, trail=name, error=str(error))
        else:
            self._runtime.metrics.counter(LINES, name).add()


class _AuditLines:
    """What a `RateLimitedLog` writes to."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def warning(self, event: str, *, count: int, **facts: str) -> None:
        self._audit.add_denials(event, count, facts)
