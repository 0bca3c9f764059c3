"""What RocketMQ's POP consumers had in hand is read back, and becomes unfinished in place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.queues.offsets import REVIVE_GROUP, ConsumerOffsets
from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.runtime.steps import run_now
from broker.scheduled.pop_records import TIMER_TOPIC, popped
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.integration.store_tools import HOST, ROOT, append, open_store
from upstream.embedded.queues import EmbeddedQueues
from upstream.embedded.taking_over import make_unfinished
from upstream.progress.progress import Progress
from upstream.progress.tracker import OffsetTracker

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
GROUP = "poppers"
POP_MS, INVISIBLE_MS = 1_700_000_000_000, 60_000


def checkpoint(start: int, *gaps: int, pop_ms: int = POP_MS, **others: Any) -> tuple[str, dict[str, Any]]:
    """A checkpoint as 5.3.3 writes it."""
    names = {"bm": 0, "bn": "broker-0", "c": GROUP, "d": list(gaps), "it": INVISIBLE_MS, "n": len(gaps), "ro": 0}
    return "ck", {**names, "pt": pop_ms, "q": 0, "so": start, "t": "t", **others}


def ack(start: int, *offsets: int, pop_ms: int = POP_MS) -> tuple[str, dict[str, Any]]:
    """An acknowledgement, of one offset or of several."""
    names = {"bn": "broker-0", "c": GROUP, "pt": pop_ms, "q": 0, "so": start, "t": "t"}
    return ("ack", {**names, "ao": offsets[0]}) if len(offsets) == 1 else ("bAck", {**names, "ao": 0, "aol": offsets})


def put(store: Store, topic: str, tags: str, body: dict[str, Any] | bytes, *, target: str = REVIVE) -> None:
    """Write a record of RocketMQ's into a topic of its own."""
    properties = {"TAGS": tags} | ({"REAL_TOPIC": target, "REAL_QID": "0"} if topic == TIMER_TOPIC else {})
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    made = Put(store.topics[topic], 0, content, encode_properties(properties), tags.encode())
    store.append([made], born_ms=POP_MS, born_host=HOST)
    store.flush()


def filled(disk: SimDisk, count: int = 50) -> Store:
    """A store with messages to pop, and RocketMQ's topics."""
    store = open_store(disk, segment_bytes=1 << 18)
    store.create_topic("t", 1)
    for topic in (REVIVE, TIMER_TOPIC):
        store.create_topic(topic, 1, system=True)
    for number in range(count):
        append(store, b"%d" % number)
    store.flush()
    return store


def committed(disk: SimDisk, offset: int, revived: int | None = None) -> ConsumerOffsets:
    """`consumerOffset.json` as RocketMQ leaves it."""
    offsets = ConsumerOffsets.open(ROOT, disk=disk, clock=ManualClock())
    offsets.set(GROUP, "t", 0, offset)
    if revived is not None:
        offsets.set(REVIVE_GROUP, REVIVE, 0, revived)
    offsets.save()
    for name in ("consumerOffset.json", "topics.json"):
        if disk.exists(f"{ROOT}/pyddmq/{name}"):
            disk.remove(f"{ROOT}/pyddmq/{name}")
    return offsets


def in_hand(store: Store, offsets: ConsumerOffsets) -> dict[tuple[str, str, int], list[int]]:
    """What is read back."""
    *_, found = popped(store, offsets)
    assert found is not None
    return found.in_hand


def test_timers_and_revive_records_are_read_together() -> None:
    """Acknowledgements count wherever they stand; what the revive group has done is in nobody's hand."""
    disk = SimDisk()
    store = filled(disk)
    put(store, REVIVE, *checkpoint(0, 0, 1, 2))
    put(store, REVIVE, *checkpoint(3, 0, 1, 2))
    put(store, REVIVE, *ack(3, 4))
    for made in (checkpoint(3, 0, 1, 2), checkpoint(10, 0, 2, 5), checkpoint(20, 0, 1, bm=1), ack(10, 10, 15)):
        put(store, TIMER_TOPIC, *made)
    put(store, TIMER_TOPIC, *checkpoint(30, 0), target="t")
    assert in_hand(store, committed(disk, 40, revived=0)) == {(GROUP, "t", 0): [3, 5, 12, 21]}


@pytest.mark.parametrize(("revived", "left"), [(-1, [0, 1, 7]), (0, [7]), (1, [])])
def test_revive_group_commits_the_last_record_that_is_done(revived: int, left: list[int]) -> None:
    """Minus one while there is none: RocketMQ writes that, too."""
    disk = SimDisk()
    store = filled(disk)
    put(store, REVIVE, *checkpoint(0, 0, 1))
    put(store, REVIVE, *checkpoint(7, 0))
    committed(disk, 40, revived=revived)
    offsets = ConsumerOffsets.open(ROOT, disk=disk, clock=ManualClock())
    assert in_hand(store, offsets).get((GROUP, "t", 0), []) == left


def test_checkpoint_without_gaps_names_offsets_in_a_row() -> None:
    """The form of earlier versions."""
    disk = SimDisk()
    store = filled(disk)
    put(store, REVIVE, *checkpoint(7, n=3, d=None))
    assert in_hand(store, committed(disk, 40)) == {(GROUP, "t", 0): [7, 8, 9]}


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"[]", b"[" * 9000, b'{"c": 1}', {"t": "t"}, {"so": -1}, {"d": "x"}, {"n": 1 << 40, "d": None}],
    ids=str,
)
def test_nonsense_is_in_nobodys_hand(body: bytes | dict[str, Any]) -> None:
    """Whoever wrote it: the store opens, and at most offsets that the queue has are taken."""
    disk = SimDisk()
    store = filled(disk)
    content = body if isinstance(body, bytes) else {**checkpoint(0, 0)[1], **body}
    if content == {**checkpoint(0, 0)[1]}:
        content = {"t": "t"}
    put(store, REVIVE, "ck", content)
    put(store, REVIVE, "ack", content)
    store.close()
    committed(disk, 5)
    store = open_store(disk, segment_bytes=1 << 18)
    progress = run_now(
        Progress.opening(
            ROOT,
            queues=EmbeddedQueues(store),
            runtime=runtime_of(disk, ManualClock(), metrics=Metrics(), scheduler=ManualScheduler(ManualClock())),
        )
    )
    assert progress.tracker(GROUP, "t", 0, first_offset=lambda: 0).watermark == (
        0 if isinstance(body, dict) and "n" in body else 5
    )


def test_hand_over_makes_them_unfinished_once_and_for_the_way_back() -> None:
    """The committed offset goes down, the revive group's up; after that they are acknowledged like any other."""
    disk = SimDisk()
    store = filled(disk)
    put(store, REVIVE, *checkpoint(10, *range(8)))
    put(store, REVIVE, *ack(10, 12))
    put(store, TIMER_TOPIC, *checkpoint(30, 0, 1))
    store.close()
    committed(disk, 40)
    metrics = Metrics()
    for again in range(3):
        store = open_store(disk, segment_bytes=1 << 18)
        clock = ManualClock()
        progress = run_now(
            Progress.opening(
                ROOT,
                queues=EmbeddedQueues(store),
                runtime=runtime_of(disk, clock, metrics=metrics, scheduler=ManualScheduler(clock)),
            )
        )
        tracker = progress.trackers[GROUP, "t", 0]
        wanted = [10, 11, 13, 14, 15, 16, 17, 30, 31][again:]
        assert [offset for offset in range(40) if not tracker.is_finished(offset)] == wanted
        offsets = ConsumerOffsets.open(ROOT, disk=disk, clock=clock)
        assert (offsets.get(GROUP, "t", 0), offsets.get(REVIVE_GROUP, REVIVE, 0)) == ((10, 11, 11)[again], 1)
        tracker.finish(wanted[0])
        if again == 1:
            progress.flush()
            disk.kill()
        else:
            progress.close()
            store.close()
    assert metrics.value("pyddmq_popped_taken_over_total", GROUP) == 9


@given(st.integers(0, 20), st.sets(st.integers(0, 40)), st.sets(st.integers(0, 45)))
def test_everything_else_stays_finished(watermark: int, ahead: set[int], again: set[int]) -> None:
    """Below the watermark and above it."""
    tracker = OffsetTracker("g", "t", 0, watermark=watermark)
    for offset in ahead:
        tracker.finish(offset)
    before = {offset for offset in range(60) if tracker.is_finished(offset)}
    assert make_unfinished(tracker, sorted(again)) == len(before & again)
    assert {offset for offset in range(60) if tracker.is_finished(offset)} == before - again
