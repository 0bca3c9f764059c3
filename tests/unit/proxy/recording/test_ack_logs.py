"""A group's ack log: names agree, and what waits is bounded, whatever the disk and the group do."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from lag.acks.acks import AckBatch, Outcome
from proxy.recording import ack_logs
from proxy.recording.ack_logs import DROPPED, OPEN_MAX, ROWS, ROWS_MAX, SECONDS, GroupAckLog
from pyddmq.testing import ManualClock, ManualScheduler
from upstream.figures.endings import MessageEnding


class _Log:
    """Files that keep what they are given."""

    def __init__(self) -> None:
        self.batches: list[AckBatch] = []
        self.written = self.dropped = 0
        self.trouble: str | None = None

    def add(self, batch: AckBatch) -> None:
        self.batches.append(batch)
        self.written += len(batch.offsets)

    def close(self) -> None:
        """Nothing to close."""


def made() -> tuple[GroupAckLog, _Log, ManualScheduler, ManualClock, Metrics]:
    """A group's log, its files, its loop and its counts."""
    clock, log, metrics = ManualClock(), _Log(), Metrics()
    loop = ManualScheduler(clock)
    runtime: Any = SimpleNamespace(
        clock=clock, scheduler=loop, metrics=metrics, limited_log=RateLimitedLog(clock), disk=None, syncs=None
    )
    files: Any = log
    return GroupAckLog("g", files, 1, runtime), log, loop, clock, metrics


def job(offset: int, queue: int = 0, deliveries: int = 1) -> Any:
    """A message that was stored at 5."""
    subscription = SimpleNamespace(stored_ms=lambda _: 5)
    return SimpleNamespace(offset=offset, topic="t", queue_id=queue, deliveries=deliveries, subscription=subscription)


def delivery(jobs: Sequence[Any]) -> Any:
    """A batch that is out."""
    return SimpleNamespace(jobs=jobs)


def test_outcomes_are_the_endings() -> None:
    """By name and number: one is what a group says, the other what is written."""
    assert {each.name: each.value for each in MessageEnding} == {each.name: each.value for each in Outcome}


def test_what_ends_within_a_second_is_written_together() -> None:
    """A queue at a time, in steps, in the order of the ends."""
    log, files, loop, clock, _ = made()
    batch = delivery([job(offset) for offset in range(5)])
    log.handed_out(batch)
    log.finished(batch, [3, 1])
    log.ended(job(9, queue=1, deliveries=0), MessageEnding.SKIPPED)
    assert loop.next_due() == SECONDS
    clock.advance(SECONDS)
    loop.run_turn()
    assert [(each.queue, list(each.offsets)) for each in files.batches] == [(0, [1, 3])]
    loop.run_turn()
    assert [(each.queue, list(each.offsets), list(each.outcomes)) for each in files.batches[1:]] == [(1, [9], [3])]
    assert list(files.batches[1].handed_ms) == [None]
    assert loop.next_due() is None


def test_many_are_written_at_once_and_too_many_dropped() -> None:
    """A step that does not come costs memory up to a bound."""
    log, files, loop, _, metrics = made()
    for offset in range(ROWS):
        log.ended(job(offset), MessageEnding.SUCCEEDED)
    assert loop.next_due() == loop.time()
    for offset in range(ROWS, ROWS_MAX + 7):
        log.ended(job(offset), MessageEnding.SUCCEEDED)
    assert metrics.value(DROPPED, "g") == 7
    loop.run_until_idle()
    assert [len(each.offsets) for each in files.batches] == [ROWS] * (ROWS_MAX // ROWS)


def test_hand_outs_that_never_end_are_forgotten_at_last(monkeypatch: Any) -> None:
    """The oldest first; such a message has no first hand-out then."""
    assert OPEN_MAX >= ROWS_MAX
    monkeypatch.setattr(ack_logs, "OPEN_MAX", 3)
    log, files, loop, _, _ = made()
    batch = delivery([job(offset) for offset in range(5)])
    log.handed_out(batch)
    log.finished(batch, range(5))
    loop.advance(SECONDS)
    assert [each is None for each in files.batches[0].handed_ms] == [True, True, False, False, False]


def test_nothing_is_recorded_after_the_end() -> None:
    """What waited was written; a group that ends later is let be."""
    log, files, loop, _, _ = made()
    log.ended(job(0), MessageEnding.SUCCEEDED)
    log.close()
    log.ended(job(1), MessageEnding.SUCCEEDED)
    assert [list(each.offsets) for each in files.batches] == [[0]]
    assert loop.next_due() is None
