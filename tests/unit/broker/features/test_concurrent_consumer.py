"""The concurrent consumer: many batches at one time, the smallest unfinished offset committed, failures sent back."""

from __future__ import annotations

import errno
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from broker.consumer import ConcurrentStatus, QueuesOwned
from broker.errors import DiskFull, MessageRefused
from broker.options import StoreOptions
from broker.query import at_offset
from broker.runtime.disk import RealDisk
from pyddmq.testing import SimDisk
from tests.unit.consumer_world import ROOT, World

LATER = ConcurrentStatus.RECONSUME_LATER


def test_new_group_whose_start_was_refused_reads_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has sent nothing back, and the loop would stand still for all of the log."""
    world = World(queues=1)
    world.store.queue_locks.lock_batch("g", "proxy@node", [("t", 0)])
    with pytest.raises(QueuesOwned):
        world.concurrent()
    world.store.queue_locks.unlock_batch("g", "proxy@node", [("t", 0)])
    monkeypatch.setattr(world.store, "decisions", lambda start: pytest.fail("it reads the log"))
    world.concurrent()
    world.send("x")
    assert world.offsets() == [0]


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


def test_backlog_leaves_the_loop_to_others_after_each_batch() -> None:
    """Listeners run in its thread unless the program says otherwise: locks, offsets and clients do not wait for all."""
    world = World(queues=1)
    world.send(*("x" for _ in range(100)))
    seen: list[int] = []

    def other() -> None:
        seen.append(len(world.seen))
        if len(world.seen) < 100:
            world.scheduler.call_soon(other)

    world.scheduler.call_soon(other)
    world.concurrent()
    assert seen == sorted(seen)
    assert max(after - before for before, after in pairwise(seen)) == 1
    assert (world.offsets(), world.committed()) == (list(range(100)), 100)


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


def test_failed_messages_come_again_from_the_retry_topic() -> None:
    """After 10 s, then 30 s; their own queue is committed at once; the listener sees the topic of the message."""
    world = World(queues=1)
    world.answers["a"] = [LATER, ValueError("x")]
    world.concurrent()
    world.send("a", "b")
    assert (world.got, world.committed()) == ([("t", "a", 0), ("t", "b", 0)], 2)
    world.advance(9.999)
    assert len(world.got) == 2
    world.advance(0.001)
    assert world.got[2:] == [("t", "a", 1)]
    world.advance(29.999)
    assert len(world.got) == 3
    world.advance(0.001)
    assert world.got[3:] == [("t", "a", 2)]
    assert world.consumers.shared.offsets.get("g", "%RETRY%g", 0) == 2
    world.advance(100_000)
    assert (len(world.got), world.dead_letters()) == (4, [])


def test_the_retry_is_rocketmqs_record() -> None:
    """Topic and queue of the delay level, the names of the origin, the failure counted, the replaced record named."""
    world = World(queues=2)
    world.store.put("t", b"x", queue_id=1)
    world.answers["a"] = [LATER]
    world.concurrent()
    world.store.put("t", b"a", queue_id=1, key="k", tags="T", properties={"color": "blue"})
    world.scheduler.run_until_idle()

    first, waiting = at_offset(world.store, "t", 1, 1), at_offset(world.store, "SCHEDULE_TOPIC_XXXX", 2, 0)
    assert {name: waiting.properties[name] for name in ("DELAY", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC")} == {
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "0",
        "RETRY_TOPIC": "t",
    }
    assert waiting.properties["ORIGIN_MESSAGE_ID"] == first.id
    assert (waiting.reconsume_times, waiting.prepared_offset) == (1, first.physical)
    world.advance(10)
    retried = at_offset(world.store, "%RETRY%g", 0, 0)
    assert (retried.reconsume_times, retried.unique_key, retried.born_ms) == (1, first.unique_key, first.born_ms)
    assert {name: retried.properties[name] for name in ("KEYS", "TAGS", "color")} == {
        "KEYS": "k",
        "TAGS": "T",
        "color": "blue",
    }
    assert "DELAY" not in retried.properties


def test_a_listener_chooses_the_delay_level_or_no_retry() -> None:
    """1 is a second; a negative one is a dead letter at once."""
    world = World(queues=1)
    world.answers = {"a": [LATER], "b": [LATER]}
    world.delay_level = 1
    world.concurrent()
    world.send("a")
    world.advance(1)
    assert world.got == [("t", "a", 0), ("t", "a", 1)]
    world.delay_level = -1
    world.send("b")
    world.advance(100_000)
    assert world.got[2:] == [("t", "b", 0)]
    [letter] = world.dead_letters()
    assert (letter["body"], letter["DLQ_ATTEMPTS"]) == ("b", "1")


@pytest.mark.parametrize("kill", [False, True])
def test_exhausted_messages_become_dead_letters(kill: bool) -> None:
    """Over a restart, too: the record has the count, and the delay goes on."""
    world = World(queues=1)
    world.answers["a"] = [LATER] * 9
    world.concurrent(reconsume_max=2)
    world.send("x", "a")
    world.advance(10.0)
    if kill:
        world.kill()
        world.concurrent(reconsume_max=2)
    world.advance(30.0)

    assert [times for _, body, times in world.got if body == "a"] == [0, 1, 2]
    [letter] = world.dead_letters()
    assert (letter["body"], letter["DLQ_ATTEMPTS"], letter["DLQ_RETRY_OFFSET"]) == ("a", "3", "1")
    assert (letter["DLQ_ORIGIN_TOPIC"], letter["DLQ_ORIGIN_QUEUE"], letter["DLQ_ORIGIN_OFFSET"]) == ("t", "0", "1")
    assert (world.committed(), world.consumers.shared.offsets.get("g", "%RETRY%g", 0)) == (2, 2)


def test_without_a_bound_sixteen_retries_are_the_bound() -> None:
    """RocketMQ's default for concurrent consumers: its levels 3 to 18, to the millisecond, 4 h 45 min 40 s in all."""
    world = World(queues=1)
    world.answers["a"] = [LATER] * 99
    world.concurrent()
    world.send("a")
    minutes = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
    waits = [10, 30, *(60 * each for each in minutes)]
    assert (len(waits), sum(waits)) == (16, 4 * 3600 + 45 * 60 + 40)
    for times, wait in enumerate(waits, 1):
        world.advance(wait - 0.001)
        assert (len(world.got), world.dead_letters()) == (times, [])
        world.advance(0.001)
        assert world.got[-1] == ("t", "a", times)

    assert (len(world.got), len(world.dead_letters())) == (17, 1)


@pytest.mark.parametrize("lost", [(), ("consumer_finished.json",), ("consumer_finished.json", "consumer_retries.json")])
def test_what_was_sent_back_or_dead_lettered_is_not_consumed_again_after_a_kill(lost: tuple[str, ...]) -> None:
    """The record in the log is the decision, whatever the committed offset says and whichever files are gone (D27)."""
    world = World(queues=1, held=True)
    world.answers = {"b": [LATER], "c": [LATER]}
    world.send(*"abcd")
    world.concurrent()
    world.end(1)
    world.delay_level = -1
    world.end(1)
    assert (world.committed(), len(world.dead_letters())) == (0, 1)
    if not lost:
        world.advance(5)
    world.kill_and_remove(*lost)
    world.delay_level = 0
    world.concurrent()
    while world.calls:
        world.end()
    assert [body for _, body, _ in world.got] == ["b", "c", "a", "d"]
    assert world.count("pyddmq_retries_known_finished_total", "g") == 2
    world.advance(10)
    world.end()
    assert world.got[4:] == [("t", "b", 1)]
    assert len(world.dead_letters()) == 1


def test_a_retry_that_no_store_takes_is_a_dead_letter_with_the_reason() -> None:
    """Its properties are so long that those of a retry do not fit besides."""
    world = World(queues=1)
    world.answers["a"] = [LATER]
    world.concurrent()
    world.store.put("t", b"a", properties={"long": "x" * 32_600})
    world.scheduler.run_until_idle()

    [letter] = world.dead_letters()
    assert letter["DLQ_REASON"].startswith("it cannot be stored for a retry: key, tags and properties have 32")
    assert world.count("pyddmq_retries_refused_total", "g", "unfit") == 1
    assert world.committed() == 1


def test_a_retry_waits_while_the_disk_is_full() -> None:
    """The message keeps its place in its queue, is tried again every second, and is not consumed meanwhile."""
    world = World(queues=1)
    world.answers["a"] = [LATER]
    world.send("a")
    world.disk.capacity_bytes = 0
    with pytest.raises(DiskFull):
        world.send(*("x" * 20_000 for _ in range(200)))
    with pytest.raises(DiskFull):
        world.send(*("x" for _ in range(200)))
    world.concurrent()
    assert (world.count("pyddmq_retries_refused_total", "g", "waits"), world.committed()) == (1, 0)
    world.advance(1)
    assert world.count("pyddmq_retries_refused_total", "g", "waits") == 2
    world.disk.capacity_bytes = None
    world.advance(1)
    assert (world.committed() or 0) > 1
    world.advance(10)
    assert [times for _, body, times in world.got if body == "a"] == [0, 1]


def test_queue_that_waited_for_room_goes_on_when_another_one_is_given_up() -> None:
    """A retry that the full disk refuses takes the only place; its queue goes to another member, and with it the retry.

    Nothing else would wake the queue that waits, since nothing is sent to a full disk.
    """
    world = World(queues=2)
    world.answers["a"] = [LATER]
    world.send("a")
    world.send("b", queue=1)
    world.disk.capacity_bytes = 0
    with pytest.raises(DiskFull):
        world.send(*("x" * 20_000 for _ in range(200)))
    with pytest.raises(DiskFull):
        world.send(*("x" for _ in range(200)))
    old = world.concurrent("b", concurrency=1)
    assert (world.offsets(), world.offsets(1)) == ([0], [])
    world.concurrent("a", concurrency=1)
    assert [each.name.queue_id for each in old.stats()] == [1]
    assert (world.offsets(1), world.committed(1)) == ([0], 1)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_offsets_are_not_saved_beside_a_log_that_could_not_be_made_durable(error: int) -> None:
    """Under `async` the log has the retry, and a second sync would succeed without it: the store has failed."""
    world = World(queues=1, held=True)
    world.options = StoreOptions(segment_bytes=1 << 20, flush="async")
    world.stop()
    world.answers["b"] = [LATER]
    world.concurrent()
    world.send("a", "b")
    world.end(1)
    world.disk.fail("sync", error=error, path_part="/commitlog/")
    world.advance(5.0)
    assert world.store.failed is not None


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
    """The newcomer starts at what was committed; what was sent back comes again there, with its count."""
    world = World(queues=1, held=True)
    world.answers["a"] = [LATER]
    world.send(*"abc")
    old = world.concurrent("b")
    world.end()
    new = world.concurrent("a")
    world.end()
    assert (("t", 0) in old.works, ("t", 0) in new.works) == (True, False)
    world.end()
    assert (("t", 0) in old.works, ("t", 0) in new.works) == (False, True)
    while world.calls:
        world.end()
    world.advance(10)
    world.end()
    assert [(client, body, times) for (client, *_), (_, body, times) in zip(world.seen, world.got, strict=True)] == [
        ("b", "a", 0),
        ("b", "b", 0),
        ("b", "c", 0),
        ("a", "a", 1),
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


def test_where_a_broadcast_began_is_kept_over_a_kill() -> None:
    """Else what came since would be behind the end at which it begins again."""
    world = World(queues=1, held=True)
    world.broadcasting(from_where="last")
    world.send("x")
    world.kill()
    world.broadcasting(from_where="last")
    world.end()

    assert world.offsets() == [0]


def test_broadcast_whose_names_no_file_can_have_is_refused(tmp_path: Path) -> None:
    """Its offsets could never be written, and each start would consume everything again; the longest names work."""
    group = "g" * 120
    world = World(queues=1, disk=cast("SimDisk", RealDisk()), root=str(tmp_path))
    world.send("x")
    with pytest.raises(MessageRefused, match="use up to 245"):
        world.broadcasting("c" * 126, group=group)
    for _ in range(2):
        world.broadcasting("c" * 125, group=group)
        world.stop()
    assert world.offsets() == [0]


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


def test_what_was_sent_back_is_known_without_any_file_of_offsets() -> None:
    """Committed offsets and the checkpoint are gone: the log alone says what is finished (D27)."""
    world = World(queues=1)
    world.concurrent()
    world.answers["a"] = [ConcurrentStatus.RECONSUME_LATER]
    world.send("a")
    world.consumers.shared.persist()
    for folder in ("config", "pyddmq"):
        for name in ("consumerOffset.json", "consumerOffset.json.bak", "consumer_finished.json"):
            if world.disk.exists(f"{ROOT}/{folder}/{name}"):
                world.disk.remove(f"{ROOT}/{folder}/{name}")
    world.kill()
    world.concurrent()
    world.advance(10)
    assert [(topic, body, times) for topic, body, times in world.got] == [("t", "a", 0), ("t", "a", 1)]
