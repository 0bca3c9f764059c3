"""Op records: what they name, how they are read in both forms, and that what is owed is written in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import DiskFull, StoreError, StoreFailed
from broker.log.put import LogPosition, Put
from broker.queues.topics import Topic
from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.store import Store
from broker.transaction.names import OP_TOPIC, Fate
from broker.transaction.ops import (
    BODY_CHARS_MAX,
    RETRY_SECONDS,
    HalfReference,
    OpPlaces,
    OpWriter,
    Reported,
    members_of,
    op_puts,
)
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk

TOPIC = Topic(OP_TOPIC, system=True)
FATES = list(Fate)


class Log:
    """What of a store an op writer uses."""

    closed = False
    is_driven = True
    failure: StoreError | None = None

    def __init__(self) -> None:
        self.options = type("Options", (), {"store_host": bytes(8)})
        self.appends: list[Sequence[Put]] = []
        self.done: list[Callable[[StoreError | None], None]] = []

    def append(self, puts: Sequence[Put], *, done: Callable[[StoreError | None], None], **_: Any) -> list[LogPosition]:
        """Take op records, or raise what was set."""
        if self.failure is not None:
            raise self.failure
        self.appends.append(puts)
        self.done.append(done)
        return [LogPosition(0, 100 + place, 0, b"") for place in range(len(puts))]


class Writer:
    """An op writer whose turns are run by hand."""

    def __init__(self) -> None:
        self.log, self.clock, self.metrics = Log(), ManualClock(), Metrics()
        self.scheduler = ManualScheduler(self.clock)
        self.reported: list[StoreError | None] = []
        self.ops = OpWriter(
            cast(Store, self.log),
            runtime_of(SimDisk(), self.clock, metrics=self.metrics, scheduler=self.scheduler),
            topic=lambda: TOPIC,
        )

    @property
    def report(self) -> Reported:
        """Notes what is told."""
        return self.reported.append

    @property
    def written(self) -> list[tuple[bytes, bytes]]:
        """Body and properties of all op records."""
        return [(bytes(put.body), put.properties) for puts in self.log.appends for put in puts]


@given(st.lists(st.builds(HalfReference, st.integers(0, 1 << 50), st.none() | st.sampled_from(FATES)), max_size=700))
def test_members_are_read_back_from_records_that_are_no_longer_than_allowed(members: list[HalfReference]) -> None:
    """In their order, over as many records as they take."""
    puts = op_puts(TOPIC, members)
    assert [member for put, _ in puts for member in members_of(bytes(put.body), put.properties)] == members
    assert [member for _, part in puts for member in part] == members
    assert all(len(put.body) <= BODY_CHARS_MAX for put, _ in puts)


def test_record_ends_before_the_member_that_would_make_it_too_long() -> None:
    """By a single character."""
    members = [HalfReference(10**15 + number, None) for number in range(241)]
    assert [len(put.body) for put, _ in op_puts(TOPIC, members)] == [240 * 17, 17]


@pytest.mark.parametrize(
    ("body", "block", "members"),
    [
        (b"5", b"TAGS\x01d\x02", [HalfReference(5, None)]),
        (b"5,6,", b"TAGS\x01d\x02", [HalfReference(5, None), HalfReference(6, None)]),
        (
            b"5,6,",
            b"__PYDDMQ_DECISIONS\x01cr\x02",
            [HalfReference(5, Fate.COMMITTED), HalfReference(6, Fate.ROLLED_BACK)],
        ),
        (b"5,6,", b"__PYDDMQ_DECISIONS\x01c\x02", [HalfReference(5, None), HalfReference(6, None)]),
        (
            b"5,x,-1,,7,",
            b"__PYDDMQ_DECISIONS\x01crrrm\x02",
            [HalfReference(5, Fate.COMMITTED), HalfReference(7, Fate.MOVED)],
        ),
        (b"5,", b"__PYDDMQ_DECISIONS\x01?\x02", [HalfReference(5, None)]),
        (b"", b"", []),
    ],
)
def test_record_of_another_writer_is_read_as_far_as_it_says_something(
    body: bytes, block: bytes, members: list[HalfReference]
) -> None:
    """RocketMQ up to 5.0 wrote one number without a comma; letters that do not fit the numbers are no fates."""
    assert members_of(body, block) == members


def test_what_is_decided_in_a_turn_is_one_append() -> None:
    """A half that is named twice stands there once, with the last fate."""
    made = Writer()
    made.ops.add(3, Fate.MOVED)
    made.ops.add(4, Fate.ROLLED_BACK, made.report)
    made.ops.add(3, Fate.COMMITTED)
    assert made.log.appends == []
    made.scheduler.run_until_idle()
    assert made.written == [(b"3,4,", b"TAGS\x01d\x02__PYDDMQ_DECISIONS\x01cr\x02")]
    assert (made.ops.in_flight, made.reported) == (1, [])


def test_only_a_durable_record_pays_what_is_owed_and_tells_who_waits() -> None:
    """A rollback is decided by its op record alone, so nothing is owed for it."""
    made = Writer()
    made.ops.add(3, Fate.COMMITTED)
    made.ops.add(4, Fate.ROLLED_BACK, made.report)
    made.scheduler.run_until_idle()
    assert made.ops.owed == {3: Fate.COMMITTED}
    made.log.done.pop()(None)
    assert (made.ops.owed, made.reported, made.ops.in_flight) == ({}, [None], 0)
    assert made.ops.places.first(4) == 100
    assert made.metrics.value("pyddmq_transactions_op_records_total") == 1


def test_record_that_is_not_durable_leaves_what_it_named_owed() -> None:
    """It is named again when somebody asks for all that is owed."""
    made, error = Writer(), StoreFailed("a sync", OSError(5, "EIO"))
    made.ops.add(3, Fate.DISCARDED)
    made.ops.add(4, Fate.ROLLED_BACK, made.report)
    made.scheduler.run_until_idle()
    made.log.done.pop()(error)
    assert (made.ops.owed, made.reported) == ({3: Fate.DISCARDED}, [error])
    made.ops.write_owed()
    made.scheduler.run_until_idle()
    assert made.written[1][0] == b"3,"


def test_full_disk_tells_who_waits_and_writes_what_is_owed_when_there_is_space() -> None:
    """What is owed is decided already; a rollback that was refused is the producer's to repeat."""
    made = Writer()
    made.log.failure = DiskFull("/s", 1024)
    made.ops.add(3, Fate.COMMITTED)
    made.ops.add(4, Fate.ROLLED_BACK, made.report)
    made.scheduler.run_until_idle()
    assert made.reported == [made.log.failure]
    made.log.failure = None
    made.scheduler.advance(RETRY_SECONDS / 2)
    assert made.written == []
    made.scheduler.advance(RETRY_SECONDS)
    assert [body for body, _ in made.written] == [b"3,"]


def test_failed_store_and_stopped_writer_write_nothing_by_themselves() -> None:
    """A store that has failed takes nothing until it is opened anew."""
    made = Writer()
    made.log.failure = StoreFailed("a write", OSError(5, "EIO"))
    made.ops.add(3, Fate.COMMITTED)
    made.scheduler.run_until_idle()
    made.log.failure = None
    made.scheduler.advance(10 * RETRY_SECONDS)
    assert made.written == []
    made.ops.stop()
    made.ops.add(4, Fate.COMMITTED)
    made.scheduler.run_until_idle()
    assert made.written == []
    made.ops.write()
    assert made.written[0][0] == b"3,4,"


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60), st.integers(0, 320), st.sampled_from([2, 3, 4096]))
def test_place_is_at_or_before_the_first_record_that_names_such_a_half(
    highest: list[int], position: int, blocks_max: int
) -> None:
    """Records below it name only halves that are decided; with few blocks it may be earlier, and never later."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("broker.transaction.ops._BLOCKS_MAX", blocks_max)
        places = OpPlaces()
        for offset, member in enumerate(highest):
            places.note(offset, member)
        exact = next((offset for offset, member in enumerate(highest) if member >= position), len(highest))
        found = places.first(position)
    assert found <= exact
    if blocks_max > len(highest):
        assert found == exact
