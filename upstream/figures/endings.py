"""Endings of single messages, for those who record them: a group's ack log or debug lines, if on.

A group has one `EndingHook`, which its generations share. Off, it costs one branch per batch that is handed out or
finished, and one per message that ends otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from upstream.calls.caller import Acted
from upstream.job import DeliveredBatch, UpstreamJob


class MessageEnding(IntEnum):
    """What became of a message in its queue."""

    SUCCEEDED = 1
    DEAD_LETTERED = 2
    SKIPPED = 3
    SENT_BACK = 4
    LOST = 5
    REFUSED = 6


class EndingListener(Protocol):
    """Who records endings; raises nothing."""

    def handed_out(self, delivery: DeliveredBatch) -> None:
        """Take note of a batch that goes to a client; all of its jobs are out."""

    def finished(self, delivery: DeliveredBatch, offsets: Sequence[int]) -> None:
        """Take note of messages of one delivery that its client finished."""

    def ended(self, job: UpstreamJob, ending: MessageEnding) -> None:
        """Take note of a message that ended in another way, its record still there where it is to be read."""


def ended_jobs(delivery: DeliveredBatch, offsets: Sequence[int]) -> list[UpstreamJob]:
    """Return the jobs of a delivery that have these offsets."""
    jobs = delivery.jobs or ()
    if len(offsets) == len(jobs):
        return list(jobs)
    wanted = set(offsets)
    return [job for job in jobs if job.offset in wanted]


@dataclass(slots=True)
class EndingHook:
    """The endings of a group.

    Attributes:
        listeners: Called with each ending.
        acted: Called with each run of an action, once it has ended; None without tracing.
        failed: Called with each attempt that failed, and why; likewise.
    """

    listeners: tuple[EndingListener, ...] = ()
    acted: Acted | None = None
    failed: Callable[[UpstreamJob, str], None] | None = None
    _by_name: dict[str, EndingListener] = field(default_factory=dict)

    def put(self, name: str, listener: EndingListener | None) -> None:
        """Set, replace or remove (None) the listener of this name."""
        if listener is None:
            self._by_name.pop(name, None)
        else:
            self._by_name[name] = listener
        self.listeners = tuple(self._by_name.values())
