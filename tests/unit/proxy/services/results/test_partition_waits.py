"""Calls that wait for partitions: each is looked at once at a time, however many there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from proxy.port.reply_slot import ReplySlot
from proxy.services.results.held_calls import CALLS_MAX, HELD_CALLS
from proxy.services.results.partition_waits import LOOK_SECONDS, PartitionWaits
from proxy.wire.call import COMPACT, Call
from proxy.wire.values import ConsumeResult
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk


class ComparedSlot(ReplySlot):
    """A slot that counts how often it is compared with another one."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        ComparedSlot.compared += 1
        return self is other

    __hash__ = object.__hash__


def test_thousands_of_calls_that_wait_take_a_look_each() -> None:
    """While they wait, and when their partitions have come: none is compared with all others."""
    clock, metrics = ManualClock(), Metrics()
    scheduler = ManualScheduler(clock)
    known: list[str] = []
    group: Any = SimpleNamespace(
        node=SimpleNamespace(awaits_partitions=lambda: True),
        has_queue=lambda _, qid: qid in known,
        note_client=lambda: None,
    )
    resumed: list[list[ReplySlot]] = []
    runtime = runtime_of(SimDisk(), clock, metrics=metrics, scheduler=scheduler)
    waits = PartitionWaits({"billing": group}, runtime, resumed.append)
    connection = SimpleNamespace(requests=1, received_at=0.0, closed=False, ended=False, hold=lambda _: None)
    slots = [ComparedSlot(cast("Any", connection), Call(COMPACT, "pull", 1, 0, b"frame")) for _ in range(CALLS_MAX)]
    for number, slot in enumerate(slots):
        waits.hold(slot, [ConsumeResult("billing", "orders", f"qid_{number % 2}", [1], [])])
    scheduler.advance(LOOK_SECONDS)
    assert resumed == []
    known.append("qid_0")
    scheduler.advance(LOOK_SECONDS)
    [first] = resumed
    assert first == slots[::2]
    assert metrics.value(HELD_CALLS) == CALLS_MAX // 2
    known.append("qid_1")
    scheduler.advance(LOOK_SECONDS)
    assert resumed[1] == slots[1::2]
    assert metrics.value(HELD_CALLS) == 0
    assert ComparedSlot.compared <= 4 * CALLS_MAX
