"""A consumer as a member: which queues it has, whose lock it trusts, and how it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.consumer import ConcurrentStatus, ConsumerOptions, OrderlyStatus
from broker.consumer.counters import FAILED, LOCKS_LOST, LOCKS_REFUSED, SKIPPED
from broker.consumer.member import LOCK_TRUSTED_SECONDS, REBALANCE_SECONDS, UNBALANCED_SECONDS, GroupConsumer
from broker.consumer.reading import UNITS_PER_TURN
from broker.consumer.strategies import averagely
from broker.log.put import Put
from broker.queues.message_queue import MessageQueue
from tests.unit.consumer_world import World


def queues(consumer: GroupConsumer) -> list[int]:
    """Queues that a member has."""
    return [each.name.queue_id for each in consumer.stats()]


def test_members_share_the_queues_without_a_rest() -> None:
    """Each queue is of one member; who comes or goes changes only what must change hands."""
    world = World(queues=4)
    one = world.orderly("a")
    assert queues(one) == [0, 1, 2, 3]
    other = world.orderly("b")
    assert (queues(one), queues(other)) == ([0, 1], [2, 3])
    other.stop()
    world.scheduler.run_until_idle()
    assert (queues(one), queues(other), other.stopped) == ([0, 1, 2, 3], [], True)


def test_member_without_a_queue_gets_one_when_another_leaves() -> None:
    """More members than queues: the last one waits, and need not be started again."""
    world = World(queues=1)
    one, other = world.orderly("a"), world.orderly("b")
    assert (queues(one), queues(other)) == ([0], [])
    one.stop()
    world.scheduler.run_until_idle()
    assert queues(other) == [0]


def test_member_for_whom_the_strategy_raises_has_not_joined() -> None:
    """A strategy by machine room knows no room of it: the others keep their queues, and one of its name may come."""
    world = World(queues=2)
    rooms = {"a": "one"}

    def by_room(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        assert all(rooms[each] for each in clients)
        return averagely(client, queues, clients)

    one = world.orderly("a", strategy=by_room)
    with pytest.raises(KeyError):
        world.orderly("b", strategy=by_room)
    world.advance(REBALANCE_SECONDS)
    world.send("x", queue=1)
    assert (queues(one), world.offsets(1)) == ([0, 1], [0])
    rooms["b"] = "one"
    assert queues(world.orderly("b", strategy=by_room)) == [1]


def test_strategy_that_raises_once_ends_no_rebalances() -> None:
    """A topic that is made again is found by the next ones alone."""
    world = World(queues=1)
    faults: list[Exception] = []

    def strategy(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        if faults:
            raise faults.pop()
        return averagely(client, queues, clients)

    world.orderly("a", strategy=strategy)
    faults.append(OSError("the table of rooms cannot be read"))
    with pytest.raises(OSError, match="table of rooms"):
        world.advance(REBALANCE_SECONDS)
    world.store.topic_changes.delete("t")
    world.advance(REBALANCE_SECONDS)
    world.store.create_topic("t", 1)
    world.advance(REBALANCE_SECONDS)
    world.send("x")
    assert len(world.seen) == 1


def test_queue_that_a_topic_gets_later_is_consumed_at_once() -> None:
    """Not only after the next look in 20 s."""
    world = World(queues=1)
    one = world.orderly("a")
    world.store.create_topic("t", 3)
    world.send("x", queue=2)
    assert queues(one) == [0, 1, 2]
    assert world.offsets(2) == [0]


@pytest.mark.parametrize("kind", ["orderly", "concurrent", "broadcasting"])
@pytest.mark.parametrize("where", ["last", "timestamp"])
def test_group_misses_nothing_in_a_queue_that_its_topic_gets_later(kind: str, where: str) -> None:
    """Only a new group begins elsewhere than at the first message, and then in all queues."""
    world = World(queues=2)
    world.send("before")
    world.send("before", queue=1)
    world.advance(1.0)
    begin = getattr(world, kind)
    begin(from_where=where, from_ms=world.clock.wall_ms())
    world.send("a")
    world.store.create_topic("t", 3)
    world.send("b", queue=2)
    assert [world.offsets(queue) for queue in range(3)] == [[1], [], [0]]


@pytest.mark.parametrize("kind", ["orderly", "concurrent", "broadcasting"])
def test_backlog_of_a_deleted_topic_is_no_damage(kind: str) -> None:
    """Nothing of it is read when its files are gone, and its locks are free at once."""
    world = World(queues=1, held=True)
    world.send(*("x" for _ in range(100)))
    consumer = getattr(world, kind)(**({"concurrency": 1} if kind == "concurrent" else {}))
    world.clock.advance(11)
    world.store.checkpoint()
    world.store.topic_changes.delete("t")
    while world.calls:
        world.end()
    assert not world.store.damage.left(0)
    assert world.count(SKIPPED, "g", "damaged") == 0
    assert ("t", 0) not in consumer.works
    assert "t" not in {each.topic for each in world.consumers.shared.locks.held()}
    world.store.create_topic("t", 1)
    world.advance(REBALANCE_SECONDS)
    world.send("y")
    world.end()
    assert world.offsets()[-1] == world.store.options.queue_file_units


def test_queue_that_somebody_else_has_locked_is_taken_when_it_is_free() -> None:
    """Asked for again every half second, counted, and never consumed meanwhile."""
    world = World(queues=1)
    one = world.orderly("a")
    locks = world.consumers.shared.locks
    assert locks.lock_batch("g", "foreign", [("t", 1)]) == {("t", 1)}
    world.store.create_topic("t", 2)
    world.send("x", queue=1)
    assert (queues(one), world.seen) == ([0], [])
    refused = world.count(LOCKS_REFUSED, "g")
    assert refused
    world.advance(UNBALANCED_SECONDS)
    assert world.count(LOCKS_REFUSED, "g") == refused + 1
    locks.unlock_batch("g", "foreign", [("t", 1)])
    world.advance(UNBALANCED_SECONDS)
    assert (queues(one), world.offsets(1)) == ([0, 1], [0])


@pytest.mark.parametrize("kind", ["orderly", "concurrent", "broadcasting"])
def test_backlog_that_is_not_wanted_is_passed_over_in_bounded_steps(kind: str) -> None:
    """A program reads one tag of a topic with millions of others: its loop serves all else meanwhile."""
    world = World(queues=1)
    topic, count = world.store.topics["t"], 5 * UNITS_PER_TURN
    puts = [Put(topic, 0, b"x", b"TAGS\x01other\x02", tags=b"other")] * count
    world.store.append(puts, born_ms=0, born_host=world.store.options.store_host)
    world.send("x", tags="wanted")
    make = getattr(world.consumers, kind)
    status = OrderlyStatus.SUCCESS if kind == "orderly" else ConcurrentStatus.SUCCESS
    got: list[int] = []

    def listener(batch: Any, context: Any) -> Any:
        got.extend(each.offset for each in batch)
        return status

    consumer: GroupConsumer = make("g", {"t": "wanted"}, listener)
    consumer.start()
    turns = 0
    while not got:
        world.scheduler.run_turn()
        turns += 1
    assert turns >= count // UNITS_PER_TURN
    world.scheduler.run_until_idle()
    assert (got, [each.committed for each in consumer.stats() if each.name.topic == "t"]) == ([count], [count + 1])


class UnshownError(Exception):
    """A program's, whose text needs what it lacks."""

    def __repr__(self) -> str:
        return f"UnshownError({self.code})"  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["orderly", "concurrent", "broadcasting"])
@pytest.mark.parametrize("raised", [UnshownError(), asyncio.CancelledError()], ids=lambda each: type(each).__name__)
def test_whatever_a_listener_raises_is_a_failure_of_its_batch(kind: str, raised: BaseException) -> None:
    """Also what cannot be shown, or is no Exception: else its queue would be busy for ever."""
    world = World(queues=1)
    status = OrderlyStatus.SUCCESS if kind == "orderly" else ConcurrentStatus.SUCCESS
    got: list[bytes] = []

    def listener(batch: Any, context: Any) -> Any:
        got.extend(each.body for each in batch)
        if batch[0].body == b"bad":
            raise raised
        return status

    make = getattr(world.consumers, kind)
    make("g", {"t": "*"}, listener, options=ConsumerOptions(reconsume_max=0)).start()
    world.send("bad", "good")
    assert (got, world.count(FAILED, "g", "raised")) == ([b"bad", b"good"], 1)
    if kind != "broadcasting":
        [letter] = world.dead_letters()
        assert type(raised).__name__ in letter["DLQ_REASON"]


@pytest.mark.parametrize(("kind", "name"), [("orderly", "suspend_ms"), ("concurrent", "delay_level")])
def test_context_that_a_listener_fills_with_nonsense_is_as_it_was(kind: str, name: str) -> None:
    """Else its queue, or a place of the consumer, would be busy for ever."""
    world = World(queues=1)
    got: list[bytes] = []

    def listener(batch: Any, context: Any) -> Any:
        got.extend(each.body for each in batch)
        setattr(context, name, "soon")
        return OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT if kind == "orderly" else ConcurrentStatus.RECONSUME_LATER

    getattr(world.consumers, kind)("g", {"t": "*"}, listener, options=ConsumerOptions(reconsume_max=1)).start()
    with capture_logs() as logs:
        world.send("x", "y")
        world.advance(60)
    assert f"context.{name} must be a number, got str" in {each.get("what") for each in logs}
    assert (set(got), world.committed()) == ({b"x", b"y"}, 2)


def test_lock_that_was_lost_ends_the_work_and_commits_nothing_more() -> None:
    """Another may consume the queue by now: what its listener says does not count any more."""
    world = World(queues=1, held=True)
    one = world.orderly("a")
    world.send("x")
    [work] = one.works.values()
    locks = world.consumers.shared.locks
    locks.unlock_batch("g", "a", [("t", 0)])
    assert locks.lock_batch("g", "foreign", [("t", 0)])
    world.clock.advance(LOCK_TRUSTED_SECONDS + 1)
    assert not one.still_holds(work)
    assert world.count(LOCKS_LOST, "g") == 1
    world.end()
    assert world.committed() in (None, 0)


def test_lock_is_trusted_for_30_seconds_and_asked_for_after_that() -> None:
    """Half of what the broker grants, so that a paused program never works on a lock that has run out."""
    world = World(queues=1, held=True)
    one = world.orderly("a")
    [work] = one.works.values()
    begin = work.locked_at
    world.clock.advance(LOCK_TRUSTED_SECONDS)
    assert one.still_holds(work)
    assert work.locked_at == begin
    world.clock.advance(1)
    assert one.still_holds(work)
    assert work.locked_at == begin + LOCK_TRUSTED_SECONDS + 1


def test_stopped_member_keeps_a_queue_while_its_listener_runs() -> None:
    """The next owner begins when the listener has answered: order holds over the change of hands."""
    world = World(queues=1, held=True)
    one = world.orderly("a")
    world.send("x", "y")
    one.stop()
    one.stop()
    assert (one.running, one.stopped, queues(one)) == (False, False, [0])
    other = world.orderly("b")
    assert queues(other) == []
    world.end()
    world.advance(UNBALANCED_SECONDS)
    assert (one.stopped, queues(one), queues(other)) == (True, [], [0])


def test_stopped_member_leaves_no_timer_and_no_listener() -> None:
    """A program may start and stop consumers for years."""
    world = World(queues=2)
    topic = world.store.topics["t"]
    before = len(topic.listeners)
    one = world.orderly("a")
    assert len(topic.listeners) == before + 1
    one.stop()
    world.advance(2 * REBALANCE_SECONDS)
    assert len(topic.listeners) == before
    one.schedule_rebalance()
    one.rebalance()
    world.scheduler.run_until_idle()
    assert queues(one) == []


@pytest.mark.parametrize(
    ("topics", "said"),
    [({}, "has no topic"), ({"SCHEDULE_TOPIC_XXXX": "*"}, "an internal topic"), ({"t": " || "}, "tag")],
)
def test_subscription_that_cannot_be_is_refused(topics: dict[str, str], said: str) -> None:
    """Before anything is joined or locked."""
    world = World(queues=1)
    with pytest.raises(ValueError, match=said):
        world.consumers.orderly("g", topics, lambda batch, context: None, client_id="a")
    assert queues(world.orderly("a")) == [0]


def test_topic_that_is_not_there_is_refused_at_the_start() -> None:
    """And the member has not joined: another of its name may."""
    world = World(queues=1)
    consumer = world.consumers.orderly("g", {"missing": "*"}, lambda batch, context: None, client_id="a")
    with pytest.raises(KeyError):
        consumer.start()
    assert not consumer.running
    assert queues(world.orderly("a")) == [0]
