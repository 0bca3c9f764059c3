"""The orderly consumer: order within a queue across failure, hand-over and restart; bounded retries; dead letters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

import pytest

from broker.consumer import ExecutorRunner, OrderlyStatus, QueuesOwned
from broker.consumer.member import UNBALANCED_SECONDS
from tests.patient import PATIENCE_SECONDS
from tests.unit.consumer_world import World

SUSPEND = OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


def test_messages_of_a_queue_come_in_order_and_are_committed() -> None:
    """All of a queue, in offset order, with the next offset committed; later ones as they arrive."""
    world = World()
    world.send("a", "b")
    world.orderly()
    world.send("c")

    assert world.offsets() == [0, 1, 2]
    assert world.committed() == 3
    assert world.committed(1) == 0


def test_batches_hold_as_many_messages_as_asked_for() -> None:
    """Up to `batch_max` at once, of one queue."""
    world = World(held=True)
    world.send(*"abcde")
    world.orderly(batch_max=3)

    world.end()
    assert (world.offsets(), world.committed()) == ([0, 1, 2], 3)
    world.end()
    assert (world.offsets(), world.committed()) == ([0, 1, 2, 3, 4], 5)


def test_a_suspended_batch_comes_again_before_anything_behind_it() -> None:
    """The queue pauses as long as it should; other queues go on; the failed one is not overtaken."""
    world = World()
    world.answers["a"] = [SUSPEND, SUSPEND]
    world.orderly()
    world.send("a", "b")
    world.send("c", queue=1)

    assert (world.offsets(), world.offsets(1), world.committed()) == ([0], [0], 0)
    world.advance(0.99)
    assert world.offsets() == [0]
    world.advance(0.02)
    assert world.offsets() == [0, 0]
    world.advance(1.0)
    assert world.offsets() == [0, 0, 0, 1]
    assert [times for _, queue, offset, times in world.seen if (queue, offset) == (0, 0)] == [0, 1, 2]
    assert world.committed() == 2


@pytest.mark.parametrize(("asked", "pause"), [(1, 0.010), (10, 0.010), (200, 0.2), (40_000, 30.0), (0, 0.010)])
def test_the_listener_says_how_long_the_queue_pauses(asked: int, pause: float) -> None:
    """Clamped to 10 to 30,000 ms."""
    world = World()
    world.answers["a"] = [SUSPEND]
    world.suspend_ms = asked
    world.orderly()
    world.send("a")

    world.advance(pause - 0.001)
    assert world.offsets() == [0]
    world.advance(0.002)
    assert world.offsets() == [0, 0]


@pytest.mark.parametrize(("answer", "how"), [(ValueError("x"), "raised"), (None, "nothing"), (SUSPEND, "answered")])
def test_an_exception_or_no_answer_suspends(answer: Any, how: str) -> None:
    """What is not a success is a failure, and counted by what it was."""
    world = World()
    world.answers["a"] = [answer]
    world.orderly()
    world.send("a")

    assert world.count("pyddmq_consumer_failures_total", "g", how) == 1
    assert world.committed() == 0
    world.advance(1.0)
    assert (world.offsets(), world.committed()) == ([0, 0], 1)


def test_exhausted_messages_become_dead_letters_and_the_queue_goes_on() -> None:
    """`reconsume_max` repetitions, then a record that names the message, then the next one."""
    world = World()
    world.answers["a"] = [SUSPEND, SUSPEND, ValueError("no good")]
    world.orderly(reconsume_max=2)
    world.send("a", "b")
    world.advance(5.0)

    assert world.offsets() == [0, 0, 0, 1]
    [letter] = world.dead_letters()
    assert letter["body"] == "a"
    assert (letter["DLQ_GROUP"], letter["DLQ_ORIGIN_TOPIC"], letter["DLQ_ORIGIN_QUEUE"]) == ("g", "t", "0")
    assert (letter["DLQ_ORIGIN_OFFSET"], letter["DLQ_ATTEMPTS"]) == ("0", "3")
    assert "no good" in letter["DLQ_REASON"]
    assert world.count("pyddmq_consumer_dead_letters_total", "g", "exhausted") == 1
    assert world.committed() == 2


def test_retry_counts_survive_a_kill() -> None:
    """A limit of 3 is 3 in all, however often the program is killed in between."""
    world = World()
    world.answers["a"] = [SUSPEND] * 10
    world.send("a", "b")
    for _ in range(2):
        world.orderly(reconsume_max=3)
        world.advance(1.5)
        world.kill()
    world.orderly(reconsume_max=3)
    world.advance(5.0)

    assert [times for *_, offset, times in world.seen if offset == 0] == [0, 1, 2, 3]
    assert len(world.dead_letters()) == 1


def test_a_kill_after_the_dead_letter_makes_no_second_one() -> None:
    """The record is durable and the committed offset is not yet: it is neither consumed nor dead-lettered again."""
    world = World()
    world.answers["a"] = [SUSPEND] * 10
    world.send("a", "b")
    world.orderly(reconsume_max=0)
    assert len(world.dead_letters()) == 1
    seen = len([1 for *_, offset, _ in world.seen if offset == 0])
    world.kill()
    assert world.committed() == 0
    world.orderly(reconsume_max=0)

    assert len([1 for *_, offset, _ in world.seen if offset == 0]) == seen == 1
    assert (len(world.dead_letters()), world.committed()) == (1, 2)


def test_a_refused_dead_letter_is_tried_again_and_the_queue_waits() -> None:
    """A full disk neither loses the message nor lets others pass it."""
    world = World()
    world.answers["a"] = [SUSPEND]
    world.send("a", "b")
    world.disk.fail("write", path_part="consumer_retries", error=28)
    world.orderly(reconsume_max=0)

    assert (world.offsets(), world.dead_letters()) == ([0], [])
    assert world.count("pyddmq_consumer_dead_letters_refused_total", "g") == 1
    world.advance(1.0)
    assert (world.offsets(), len(world.dead_letters()), world.committed()) == ([0, 1], 1, 2)


def test_a_dead_letter_that_fails_again_is_given_up_visibly() -> None:
    """There is no dead letter of a dead letter; the counter tells of it."""
    world = World()
    world.answers["a"] = [SUSPEND, SUSPEND]
    world.send("a")
    world.orderly(reconsume_max=0)
    world.orderly(group="h", topics={"%DLQ%g": "*"}, reconsume_max=0)

    assert world.count("pyddmq_consumer_skipped_total", "h", "dead_letter_exhausted") == 1
    assert world.dead_letters("h") == []
    assert world.consumers.shared.offsets.get("h", "%DLQ%g", 0) == 1


def test_without_auto_commit_success_is_committed_by_the_next_commit() -> None:
    """Consumed messages are not repeated meanwhile; a kill before COMMIT repeats all of them."""
    world = World()
    world.auto_commit = False
    world.answers["c"] = [OrderlyStatus.COMMIT]
    world.orderly()
    world.send("a", "b")
    assert (world.offsets(), world.committed()) == ([0, 1], 0)
    world.advance(30.0)
    assert world.committed() == 0
    world.send("c")
    assert (world.offsets(), world.committed()) == ([0, 1, 2], 3)


def test_rollback_goes_back_to_the_last_commit() -> None:
    """Everything consumed since comes again, in order, after the pause."""
    world = World()
    world.auto_commit = False
    world.answers = {"a": [OrderlyStatus.COMMIT], "c": [OrderlyStatus.ROLLBACK, OrderlyStatus.COMMIT]}
    world.orderly()
    world.send("a", "b", "c", "d")
    assert (world.offsets(), world.committed()) == ([0, 1, 2], 1)
    world.advance(1.0)
    assert (world.offsets(), world.committed()) == ([0, 1, 2, 1, 2, 3], 3)


@pytest.mark.parametrize("status", [OrderlyStatus.COMMIT, OrderlyStatus.ROLLBACK])
def test_commit_and_rollback_are_success_under_auto_commit(status: OrderlyStatus) -> None:
    """RocketMQ's rule, with a notice."""
    world = World()
    world.answers["a"] = [status]
    world.orderly()
    world.send("a")

    assert (world.offsets(), world.committed()) == ([0], 1)


def test_tags_choose_messages_and_the_others_are_passed_over() -> None:
    """The committed offset passes them, counted."""
    world = World()
    world.orderly(topics={"t": "x || y"})
    world.send("a", tags="x")
    world.send("b", tags="z")
    world.send("c")

    assert world.offsets() == [0]
    assert world.committed() == 3
    assert world.count("pyddmq_consumer_skipped_total", "g", "tag_filter") == 2


def test_queues_are_shared_and_move_when_a_member_comes_or_goes() -> None:
    """Each queue has one consumer; all of them are consumed after a change at once."""
    world = World(queues=3)
    first = world.orderly("a")
    assert len(first.works) == 3
    second = world.orderly("b")
    assert (sorted(place[1] for place in first.works), [place[1] for place in second.works]) == ([0, 1], [2])
    first.stop()
    world.scheduler.run_until_idle()
    assert (first.stopped, len(second.works)) == (True, 3)


def test_a_queue_is_handed_over_only_when_its_listener_has_ended() -> None:
    """The newcomer waits, and goes on behind what the running listener commits."""
    world = World(queues=1, held=True)
    world.send("x", "y")
    old = world.orderly("b")
    new = world.orderly("a")
    world.advance(90.0)
    assert (len(world.calls), len(old.works), len(new.works)) == (1, 1, 0)
    world.end()
    assert (len(old.works), len(new.works)) == (0, 1)
    world.end()
    assert [(client, offset) for client, _, offset, _ in world.seen] == [("b", 0), ("a", 1)]


def test_queue_is_not_taken_from_a_running_listener_by_a_program_that_stood_still() -> None:
    """Its lock has run out, and the member that waits for the queue is woken before the one that has it."""
    world = World(queues=1, held=True)
    world.send("x", "y")
    old = world.orderly("b")
    new = world.orderly("a")
    world.clock.advance(61.0)
    world.scheduler.run_until_idle()
    assert (len(world.calls), len(old.works), len(new.works)) == (1, 1, 0)
    world.end()
    world.advance(UNBALANCED_SECONDS)
    world.end()
    assert [(client, offset) for client, _, offset, _ in world.seen] == [("b", 0), ("a", 1)]


def test_failures_are_counted_on_across_a_change_of_owner() -> None:
    """The new owner begins with the failed message, and with its count."""
    world = World(queues=1)
    world.answers["x"] = [SUSPEND]
    world.orderly("b")
    world.send("x", "y")
    world.orderly("a")

    assert [(client, offset, times) for client, _, offset, times in world.seen] == [
        ("b", 0, 0),
        ("a", 0, 1),
        ("a", 1, 0),
    ]


def test_a_topic_that_grows_has_its_new_queues_consumed_at_once() -> None:
    """The first message in a new queue wakes the group."""
    world = World(queues=1)
    world.orderly()
    world.store.create_topic("t", 2)
    world.send("a", queue=1)

    assert world.offsets(1) == [0]


def test_queues_of_a_stranger_are_refused_with_its_name() -> None:
    """A group that somebody else consumes is not joined; once the locks are free, it is."""
    world = World()
    world.store.queue_locks.lock_batch("g", "proxy@node", [("t", 2)])
    with pytest.raises(QueuesOwned, match="proxy@node") as caught:
        world.orderly()
    assert (caught.value.owner, caught.value.place) == ("proxy@node", ("t", 2))
    world.store.queue_locks.unlock_batch("g", "proxy@node", [("t", 2)])
    assert len(world.orderly().works) == 4


def test_an_answer_after_the_lock_was_lost_commits_nothing() -> None:
    """A program that stood still for more than a minute finds its queue taken; the new owner reads from the commit."""
    world = World(queues=1, held=True)
    world.send("x")
    consumer = world.orderly()
    world.clock.advance(61.0)
    assert world.store.queue_locks.lock_batch("g", "other", [("t", 0)])
    world.scheduler.run_until_idle()
    world.end()

    assert world.committed() == 0
    assert consumer.works == {}
    assert world.count("pyddmq_consumer_locks_lost_total", "g") == 1


def test_locks_are_renewed_while_a_listener_runs() -> None:
    """Nobody takes a queue from a listener that takes minutes."""
    world = World(queues=1, held=True)
    world.send("x")
    world.orderly()
    world.advance(600.0)

    assert world.store.queue_locks.owner("g", ("t", 0)) == "a"
    assert world.store.queue_locks.lock_batch("g", "other", [("t", 0)]) == set()


def test_offsets_are_written_for_rocketmq_and_found_after_a_stop() -> None:
    """`config/consumerOffset.json` says topic@group and queue; a stop repeats nothing, a kill what 5 s held."""
    world = World(queues=1)
    world.send("a")
    world.orderly()
    world.advance(5.0)
    world.send("b")
    world.kill()
    world.orderly()
    assert world.offsets() == [0, 1, 1]
    world.stop()
    world.orderly()
    assert world.offsets() == [0, 1, 1]
    file = world.disk.open("/data/config/consumerOffset.json")
    assert b'"t@g":{"0":2}' in file.read(0, file.size())


@pytest.mark.parametrize(("where", "first"), [("first", 0), ("last", 2), ("timestamp", 1)])
def test_a_new_group_starts_where_it_is_told(where: str, first: int) -> None:
    """And that is fixed when it is first seen."""
    world = World(queues=1)
    world.send("a")
    world.advance(10.0)
    moment = world.clock.wall_ms()
    world.send("b")
    world.orderly(from_where=where, from_ms=moment)

    world.send("c")
    assert world.offsets() == [0, 1, 2][first:]


def test_an_offset_beyond_the_queue_is_set_back_to_its_end() -> None:
    """Otherwise what comes would be skipped without a word (D11)."""
    world = World(queues=1)
    world.consumers.shared.offsets.set("g", "t", 0, 7)
    world.orderly()
    world.send("a")

    assert world.offsets() == [0]
    assert world.count("pyddmq_consumer_offsets_clamped_total", "g") == 1


def test_a_damaged_file_of_counts_costs_the_counts_only() -> None:
    """Counted and said; messages are consumed."""
    world = World(queues=1)
    world.send("a")
    world.store.close()
    file = world.disk.open("/data/pyddmq/consumer_retries.json", create=True)
    file.write(0, [b"{"])
    world.open()
    world.orderly()

    assert world.offsets() == [0]
    assert world.count("pyddmq_consumer_save_errors_total", "pyddmq/consumer_retries.json") == 1


def test_listeners_may_run_in_an_executor_that_is_handed_in() -> None:
    """Their answers come back through the loop's thread, still one at a time per queue."""
    world = World(queues=1)
    back: Queue[Any] = Queue()
    with ThreadPoolExecutor(2) as pool:
        world.consumers.shared.run = ExecutorRunner(pool, lambda *call: back.put(call))
        world.answers["b"] = [ValueError("x")]
        world.orderly(suspend_ms=10)
        world.send("a", "b", "c")
        for _ in range(4):
            reported, *facts = back.get(timeout=PATIENCE_SECONDS)
            reported(*facts)
            world.advance(0.01)

    assert (world.offsets(), world.committed()) == ([0, 1, 1, 2], 3)


def test_members_of_one_name_or_another_kind_are_refused() -> None:
    """Two members of one client id would own each other's locks."""
    world = World()
    world.orderly()
    with pytest.raises(ValueError, match="each member needs its own id"):
        world.orderly()
    with pytest.raises(ValueError, match="an internal topic"):
        world.orderly(group="h", topics={"SCHEDULE_TOPIC_XXXX": "*"})
    with pytest.raises(KeyError):
        world.orderly(group="h", topics={"none": "*"})


def test_a_deleted_topic_is_let_go_and_one_made_again_is_consumed() -> None:
    """Nothing of the old queues is committed for the new ones, which begin with the next queue file."""
    world = World(queues=1)
    consumer = world.orderly()
    world.send("a")
    world.store.topic_changes.delete("t")
    world.advance(20.0)
    assert consumer.works == {}
    world.store.create_topic("t", 1)
    world.advance(20.0)
    world.send("b")
    assert world.offsets() == [0, world.store.options.queue_file_units]
