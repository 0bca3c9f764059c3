"""What is finished above the committed offsets: what is kept, which checkpoint is believed, and what the log tells."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker.format.properties import encode_properties
from broker.log.decisions import DecisionRecord
from broker.log.put import Put
from broker.log.shared_walk import alone
from broker.queues.offsets import ConsumerOffsets
from broker.retry.finished import FILE, Finished
from broker.runtime.sealed_file import SealedFile
from broker.store import Store
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import HOST, ROOT, append, open_store

KEY = ("g", "t", 0)


class World:
    """A store with one topic and a group whose messages come back in `%RETRY%g`."""

    def __init__(self) -> None:
        self.disk, self.clock = SimDisk(), ManualClock()
        self.open()
        self.store.create_topic("t", 1)
        self.store.create_topic("%RETRY%g", 1, system=True)
        # No record replaces the one at 0, as that is what says that none is replaced.
        self.store.create_topic("filling", 1)
        append(self.store, b"first", topic="filling")

    def open(self, *, flush: str = "sync") -> None:
        """Open what the disk holds."""
        self.store: Store = open_store(self.disk, clock=self.clock, flush=flush)
        self.offsets = ConsumerOffsets.open(ROOT, disk=self.disk, clock=self.clock)

    def finished(self) -> Finished:
        """Return the table, as a start reads it."""
        table = Finished(self.store, self.offsets, disk=self.disk)
        for _ in alone(self.store, table.reading()):
            pass
        return table

    def publish(self, count: int = 1) -> list[int]:
        """Store messages in `t`; returns where they stand in the log."""
        places = [position.physical for position in append(self.store, *[b"x"] * count)]
        self.store.flush()
        return places

    def replace(self, physical: int, topic: str = "%RETRY%g") -> None:
        """Store the record that takes the place of another."""
        block = encode_properties([("REAL_TOPIC", "t")])
        put = Put(self.store.topics[topic], 0, b"again", block, prepared_offset=physical)
        self.store.append([put], born_ms=1, born_host=HOST)
        self.store.flush()

    def commit(self, offset: int, *, retries: int | None = 0) -> None:
        """Set the committed offset of `t`, and of the retry topic."""
        self.offsets.set("g", "t", 0, offset)
        if retries is not None:
            self.offsets.set("g", "%RETRY%g", 0, retries)

    def checkpoint(self) -> dict[str, Any]:
        """What the checkpoint says."""
        content: dict[str, Any] | None = SealedFile(self.disk, f"{ROOT}/{FILE}").load()
        assert content is not None
        return content


def test_offsets_are_kept_once_each_in_any_order() -> None:
    """Replicas of one group finish in the order of their syncs, not of their offsets; the same twice is once."""
    world = World()
    table = world.finished()
    for offset in (5, 1, 9, 5, 1):
        table.finish(KEY, offset)
    assert [offset for offset in range(12) if table.has(KEY, offset)] == [1, 5, 9]
    table.save()
    assert world.checkpoint()["queues"] == [[*KEY, [1, 5, 9]]]
    assert not table.has(("h", "t", 0), 5)
    assert not table.has(("g", "t", 1), 5)


def test_what_is_committed_is_dropped_and_no_more() -> None:
    """The offset itself is the next to be consumed, so it stays; an empty queue leaves the table."""
    world = World()
    table = world.finished()
    for offset in (1, 5, 9):
        table.finish(KEY, offset)
    table.forget_below(KEY, 5)
    assert [offset for offset in range(12) if table.has(KEY, offset)] == [5, 9]
    table.save()
    table.forget_below(KEY, 100)
    table.forget_below(KEY, 100)
    table.save()
    assert world.checkpoint()["queues"] == []


def test_log_is_durable_before_what_is_saved_of_it() -> None:
    """Under `async`, too: after a power loss the record is there by which a message counts as finished."""
    world = World()
    world.store.close()
    world.open(flush="async")
    table = world.finished()
    world.replace(world.publish()[0])
    table.finish(KEY, 0)
    table.save()
    world.store.abandon()
    world.disk.crash(Random(1), modes=("none",))
    world.open()
    assert world.finished().has(KEY, 0)
    assert world.store.topics["%RETRY%g"].queues[0].max_offset == 1


def test_log_tells_what_was_replaced_when_there_is_no_checkpoint() -> None:
    """Above the committed offset only: what lies below it is not asked about any more."""
    world = World()
    places = world.publish(4)
    world.commit(1)
    for place in (places[0], places[2], places[3]):
        world.replace(place)
    table = world.finished()
    assert [offset for offset in range(4) if table.has(KEY, offset)] == [2, 3]


def test_dead_letter_finishes_its_message_as_a_retry_does() -> None:
    """It names the record that it replaces in the same way."""
    world = World()
    world.store.create_topic("%DLQ%g", 1, system=True)
    [place] = world.publish()
    world.commit(0)
    world.replace(place, "%DLQ%g")
    assert world.finished().has(KEY, 0)


def test_record_of_another_topic_that_names_one_finishes_nothing() -> None:
    """As a released delay level does: it replaces its waiting record, and no group has that."""
    world = World()
    [place] = world.publish()
    world.commit(0)
    world.replace(place, "t")
    assert not world.finished().has(KEY, 0)


def test_checkpoint_spares_reading_the_log_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stood there is taken as it is, and what came after it is read."""
    world = World()
    places = world.publish(4)
    world.commit(0)
    world.replace(places[1])
    world.finished().save()
    assert world.checkpoint()["log_end"] == world.store.end
    world.replace(places[3])
    reads: list[int] = []
    table = Finished(world.store, world.offsets, disk=world.disk)
    decided = table._decided

    def note(decision: DecisionRecord) -> None:
        reads.append(decision.physical)
        decided(decision)

    monkeypatch.setattr(table, "_decided", note)
    for _ in alone(world.store, table.reading()):
        pass
    assert [offset for offset in range(4) if table.has(KEY, offset)] == [1, 3]
    assert len(reads) == 1


def test_save_without_a_change_writes_nothing() -> None:
    """It is called with every checkpoint of the store."""
    world = World()
    [place] = world.publish()
    world.commit(0)
    table = world.finished()
    table.save()
    assert not world.disk.exists(f"{ROOT}/{FILE}")
    world.replace(place)
    table.finish(KEY, 0)
    table.save()
    operations = world.disk.operations
    table.save()
    assert world.disk.operations == operations


@pytest.mark.parametrize(
    "content",
    [
        {"version": 2, "queues": [], "log_end": 0},
        {"version": 1, "queues": [["g", "t", 0, [0]]], "log_end": 1 << 40},
        {"version": 1, "log_end": 0},
        {"version": 1, "queues": [["g", "t", 0, [3]], "nonsense"], "log_end": 0},
        {"version": 1, "queues": [["g", "t", 0, ["three"]]], "log_end": 0},
    ],
    ids=["another version", "ahead of the log", "without its queues", "half nonsense", "not ascending numbers"],
)
def test_checkpoint_that_cannot_be_right_is_passed_over(content: dict[str, Any]) -> None:
    """The log is read instead, and nothing of the file is believed, its good part neither."""
    world = World()
    places = world.publish(4)
    world.commit(0)
    world.replace(places[1])
    SealedFile(world.disk, f"{ROOT}/{FILE}").save(content)
    table = world.finished()
    assert [offset for offset in range(4) if table.has(KEY, offset)] == [1]


def test_damaged_checkpoint_is_reported_and_costs_reading_the_log() -> None:
    """The start goes on, and says what it found."""
    world = World()
    [place] = world.publish()
    world.commit(0)
    world.replace(place)
    world.finished().save()
    world.disk.flip_bit(f"{ROOT}/{FILE}", 20)
    table = world.finished()
    assert table.damaged is not None
    assert table.has(KEY, 0)


def test_group_whose_committed_offsets_are_gone_is_known_after_all_of_the_log() -> None:
    """Until then nobody can say what it has consumed; read once, that is remembered with the checkpoint."""
    world = World()
    places = world.publish(2)
    world.commit(0)
    world.replace(places[0])
    table = world.finished()
    assert table.is_known_of("g")
    lost = ConsumerOffsets.open(ROOT, disk=SimDisk(), clock=world.clock)
    table._offsets = lost
    assert not table.is_known_of("g")
    for _ in table.read_all():
        pass
    assert (table.is_known_of("g"), table.has(KEY, 0), table.has(KEY, 1)) == (True, True, False)
    table.save()
    assert world.checkpoint()["anew"] == ["g"]
