"""What is remembered of topics that were deleted: where the next life of a name begins, and the file that says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import StoreUnreadable
from broker.queues.topic_lives import TopicLife, TopicLives
from broker.runtime.file_writes import at_once
from broker.runtime.sealed_file import SealedFile
from pyddmq.testing import SimDisk

UNITS = 10
"""Offsets in one queue file."""
PATH = "/s/pyddmq/topic_lives.json"


def opened(disk: SimDisk | None = None) -> tuple[SimDisk, TopicLives]:
    """What is on a disk, which is empty unless given."""
    disk = disk or SimDisk()
    disk.make_folder("/s/pyddmq")
    lives = TopicLives("/s", disk=disk, queue_file_units=UNITS)
    lives.load()
    return disk, lives


def delete(disk: SimDisk, lives: TopicLives, name: str, begins_at: int, *ends: int) -> None:
    """Delete a topic whose queues ended there."""
    at_once(disk, lives.deleting(name, begins_at, ends))


def test_name_that_nothing_is_known_of_has_an_ordinary_life() -> None:
    """It begins at 0 in all its queues, and no file is needed for that."""
    disk, lives = opened()
    assert lives.of("t") == TopicLife()
    assert (lives.base("t", 3), lives.deleted, lives.served, lives.begins) == (0, [], [], {})
    assert not disk.exists(PATH)


def test_next_life_begins_with_the_queue_file_behind_the_end() -> None:
    """What a file holds before its queue's first unit would be messages to RocketMQ."""
    disk, lives = opened()
    delete(disk, lives, "t", 5000, 0, 1, 10, 11)
    assert [lives.base("t", queue) for queue in range(5)] == [0, 10, 10, 20, 0]
    assert [lives.of("t").end(queue) for queue in range(5)] == [0, 1, 10, 11, 0]
    assert lives.begins == {b"t": 5000}


def test_deletion_is_known_to_the_next_process_and_to_this_one_only_when_it_is_durable() -> None:
    """Writing the entry is what decides it: a stop before leaves the topic as it was."""
    disk, lives = opened()
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        delete(disk, lives, "t", 5000, 5)
    assert (lives.deleted, opened(disk)[1].deleted) == ([], [])
    delete(disk, lives, "t", 5000, 5)
    assert (lives.deleted, opened(disk)[1].deleted) == (["t"], ["t"])
    assert opened(disk)[1].of("t") == lives.of("t")


def test_topic_that_is_made_again_keeps_where_it_begins() -> None:
    """It is no deleted one any more; it is served only if somebody asked for that."""
    disk, lives = opened()
    delete(disk, lives, "t", 5000, 5)
    lives.serve("t")
    assert lives.served == []
    lives.revive(["t"])
    again = opened(disk)[1]
    assert (again.deleted, again.served, again.base("t", 0), again.begins) == ([], ["t"], 10, {b"t": 5000})


def test_what_is_known_already_is_not_written_again() -> None:
    """Reviving a topic that lives, serving one that is served, a log that ends behind all lives."""
    disk, lives = opened()
    lives.serve("t")
    before = disk.operations
    lives.serve("t")
    lives.revive(["t"])
    lives.revive(["other"])
    lives.cut(5)
    assert disk.operations == before


def test_life_without_a_message_does_not_forget_where_the_one_before_ended() -> None:
    """Nor does one of fewer queues: offsets that were used never come again."""
    disk, lives = opened()
    delete(disk, lives, "t", 5000, 5, 13)
    lives.revive(["t"])
    delete(disk, lives, "t", 6000, 10)
    assert (lives.of("t").bases, lives.of("t").ends) == ((10, 20), (5, 13))
    lives.revive(["t"])
    delete(disk, lives, "t", 7000, 12, 20)
    assert (lives.of("t").bases, lives.of("t").ends) == ((20, 20), (12, 13))


def test_log_that_ends_earlier_moves_where_lives_begin() -> None:
    """What is appended next belongs to the present life, though it stands where records of it stood before."""
    disk, lives = opened()
    delete(disk, lives, "t", 5000, 5)
    delete(disk, lives, "u", 3000, 5)
    lives.cut(4000)
    assert opened(disk)[1].begins == lives.begins == {b"t": 4000, b"u": 3000}


def test_first_offsets_within_a_file_move_behind_it_where_nothing_stands() -> None:
    """Stores of format 1 have them there; a queue that has messages stays as it is, and ends are what bases were."""
    disk, _ = opened()
    life = {"deleted": False, "served": False, "begins_at": 7, "bases": [5, 15]}
    at_once(disk, SealedFile(disk, PATH).writing({"t": life, "u": {**life, "bases": [10]}}))
    _, lives = opened(disk)
    assert lives.align(lambda name, queue_id: queue_id == 0) == ["t"]
    assert lives.of("t") == TopicLife(begins_at=7, bases=(10, 15), ends=(5, 15))
    assert opened(disk)[1].of("t") == lives.of("t")
    assert lives.align(lambda name, queue_id: queue_id == 0) == []


@pytest.mark.parametrize(
    "entry",
    [
        7,
        {},
        {"bases": 7},
        {"bases": [-1]},
        {"bases": ["1"]},
        {"bases": [True]},
        {"bases": [], "begins_at": 1 << 63},
        {"bases": [], "colour": "blue"},
    ],
)
def test_file_of_another_shape_is_refused_with_what_to_do(entry: object) -> None:
    """Its sum is right, so a program wrote it: nothing in it is guessed."""
    disk, _ = opened()
    at_once(disk, SealedFile(disk, PATH).writing({"t": entry}))
    with pytest.raises(StoreUnreadable, match=r"topic_lives\.json has an invalid structure .*store check"):
        opened(disk)


def test_name_that_leads_out_of_the_store_is_refused() -> None:
    """Folders are made and deleted by these names."""
    disk, _ = opened()
    at_once(disk, SealedFile(disk, PATH).writing({"../t": {"bases": []}}))
    with pytest.raises(StoreUnreadable, match=r"topic_lives\.json"):
        opened(disk)


@given(st.lists(st.lists(st.integers(0, 25), min_size=1, max_size=3), min_size=1, max_size=6))
def test_offsets_of_a_name_never_come_again(lives_of: list[list[int]]) -> None:
    """Whatever lives follow each other, with so many messages in each of their queues."""
    disk, lives = opened()
    used: dict[int, int] = {}
    for sent in lives_of:
        lives.revive(["t"])
        ends = []
        for queue_id, count in enumerate(sent):
            base = lives.base("t", queue_id)
            assert base % UNITS == 0
            assert base >= used.get(queue_id, 0)
            ends.append(base + count)
            if count:
                used[queue_id] = base + count
        delete(disk, lives, "t", 100, *ends)
        assert all(lives.of("t").end(queue_id) == end for queue_id, end in used.items())
    assert opened(disk)[1].of("t") == lives.of("t")
