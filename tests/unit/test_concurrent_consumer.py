"""The concurrent consumer: many batches at one time, the smallest unfinished offset committed, retries in place."""

from __future__ import annotations

import pytest

from broker.consumer import ConcurrentStatus
from tests.unit.consumer_world import World

LATER = ConcurrentStatus.RECONSUME_LATER


def test_batches_of_one_queue_run_at_one_time_up_to_the_bound() -> None:
    """`concurrency` listeners; the next message goes out when one has ended."""
    world = World(queues=2, held=True)
    world.send(*"abc")
    world.send(*"de", queue=1)
    world.concurrent(concurrency=3)

    assert len(world.calls) == 3
    world.end()
    assert len(world.calls) == 3
    for _ in range(4):
        world.end()
    assert (sorted(world.offsets()), sorted(world.offsets(1))) == ([0, 1, 2], [0, 1])
    assert (world.committed(), world.committed(1)) == (3, 2)


def test_the_smallest_unfinished_offset_is_committed() -> None:
    """A message that runs holds the commit back; a kill repeats what was above it."""
    world = World(queues=1, held=True)
    world.send(*"abc")
    world.concurrent()
    world.end(1)
    world.end(1)
    assert world.committed() == 0
    world.advance(5.0)
    world.kill()
    world.concurrent()
    assert len(world.calls) == 3


def test_failed_messages_are_repeated_in_place_after_their_delay() -> None:
    """10 s, then 30 s; others go on meanwhile, and the commit waits."""
    world = World(queues=1)
    world.answers["a"] = [LATER, ValueError("x")]
    world.concurrent()
    world.send("a", "b")
    assert (world.offsets(), world.committed()) == ([0, 1], 0)
    world.advance(9.9)
    assert world.offsets() == [0, 1]
    world.advance(0.2)
    assert world.offsets() == [0, 1, 0]
    world.advance(30.1)
    assert (world.offsets(), world.committed()) == ([0, 1, 0, 0], 2)
    assert [times for *_, offset, times in world.seen if offset == 0] == [0, 1, 2]


@pytest.mark.parametrize("kill", [False, True])
def test_exhausted_messages_become_dead_letters(kill: bool) -> None:
    """Over a restart, too: the count is kept, the delay begins anew at once."""
    world = World(queues=1)
    world.answers["a"] = [LATER] * 9
    world.concurrent(reconsume_max=2)
    world.send("a")
    world.advance(10.0)
    if kill:
        world.kill()
        world.concurrent(reconsume_max=2)
    else:
        world.advance(30.0)

    assert [times for *_, times in world.seen] == [0, 1, 2]
    [letter] = world.dead_letters()
    assert (letter["body"], letter["DLQ_ATTEMPTS"]) == ("a", "3")
    assert world.committed() == 1


def test_without_a_bound_sixteen_repetitions_are_the_bound() -> None:
    """RocketMQ's default for concurrent consumers, about 4 h 46 min of delays."""
    world = World(queues=1)
    world.answers["a"] = [LATER] * 99
    world.concurrent()
    world.send("a")
    world.advance(10 + 30 + 60 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10 + 20 + 30 + 60 + 120) + 1)

    assert (len(world.seen), len(world.dead_letters())) == (17, 1)


def test_reading_stops_so_far_ahead_of_an_unfinished_message() -> None:
    """What a queue holds in memory is bounded by `span_max` and one read."""
    world = World(queues=1, held=True)
    world.send(*("x" for _ in range(200)))
    world.concurrent(span_max=10, concurrency=1000)
    held = len(world.calls)
    assert 10 <= held <= 10 + 32
    for _ in range(held - 1):
        world.end(1)
    assert len(world.calls) == 1
    while world.calls:
        world.end()
    assert (sorted(world.offsets()), world.committed()) == (list(range(200)), 200)


def test_a_queue_changes_hands_when_all_its_listeners_have_ended() -> None:
    """The newcomer starts at what was committed; what waits for a repetition comes again there, with its count."""
    world = World(queues=1, held=True)
    world.answers["a"] = [LATER]
    world.send(*"abc")
    old = world.concurrent("b")
    world.end()
    new = world.concurrent("a")
    world.end()
    assert (len(old.works), len(new.works)) == (1, 0)
    world.end()
    assert (len(old.works), len(new.works)) == (0, 1)
    while world.calls:
        world.end()
    assert [(client, offset, times) for client, _, offset, times in world.seen if client == "a"] == [
        ("a", 0, 1),
        ("a", 1, 0),
        ("a", 2, 0),
    ]


def test_kinds_do_not_mix_in_a_group() -> None:
    """An orderly consumer's order would be nobody's if a concurrent one shared its group."""
    world = World()
    world.orderly()
    with pytest.raises(ValueError, match="orderly members"):
        world.concurrent("b")


def test_broadcasting_gives_everything_to_everyone_with_offsets_of_their_own() -> None:
    """Two consumers, all messages each; a stop repeats nothing, and the group's committed offsets stay untouched."""
    world = World(queues=2)
    world.broadcasting("a")
    world.broadcasting("b")
    world.send("x", "y")
    world.send("z", queue=1)
    for client in "ab":
        assert sorted((queue, offset) for who, queue, offset, _ in world.seen if who == client) == [
            (0, 0),
            (0, 1),
            (1, 0),
        ]
    world.stop()
    world.broadcasting("a")
    assert len(world.seen) == 6
    world.broadcasting("c")
    assert len(world.seen) == 9
    assert world.committed() is None
    assert world.store.queue_locks.held() == []


def test_a_failed_broadcast_is_dropped_and_counted() -> None:
    """As RocketMQ does, but never without a trace."""
    world = World(queues=1)
    world.answers = {"x": [LATER], "y": [ValueError("x")]}
    world.broadcasting()
    world.send("x", "y", "z")

    assert world.offsets() == [0, 1, 2]
    assert world.count("pyddmq_consumer_skipped_total", "g", "broadcast_failed") == 2
    assert world.dead_letters() == []


def test_damaged_offsets_of_a_broadcast_cost_the_offsets_only() -> None:
    """The consumer starts as a new one; counted."""
    world = World(queues=1)
    world.send("x")
    world.broadcasting()
    world.consumers.close()
    world.store.close()
    world.disk.open("/data/pyddmq/broadcast/g@a.json").write(0, [b"?"])
    world.open()
    world.broadcasting()

    assert world.offsets() == [0, 0]
    assert world.count("pyddmq_consumer_save_errors_total", "pyddmq/broadcast") == 1
