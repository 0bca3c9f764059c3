"""An operator's hand on stuck messages: what it may end, what it leaves alone, and that order and acks hold."""

from __future__ import annotations

import errno
from random import Random
from typing import ClassVar

import pytest

from actions.registry import BUILT_IN, Registry
from proxy.operate.live_node import DEAD_LETTER_REFUSED, stuck_messages
from pyddmq.actions import Action, Job, Status
from pyddmq.testing import ManualScheduler, PowerCut
from tests.insides import buffer_of, place_of
from tests.unit.upstream_world import Client, World
from upstream.figures.counters import DEAD_LETTERS, SKIPPED
from upstream.job import UpstreamJob
from upstream.operate import heads
from upstream.operate.heads import Handled, HeadRefused
from upstream.progress.progress import ProgressFull
from upstream.state import JobState
from upstream.views import StuckMessage
from upstream.waiting.buffer import PulledBatch

KEYED = {
    "topic": "t",
    "actions": ["Async", "PullServer"],
    "orderKey": "KEY",
    "timeout": 60_000,
    "retryIntervals": [100_000],
    "maxRetry": 2,
    "maxPullBatchSize": 10,
}


def keyed(**more: object) -> World:
    """A group ordered by key on one queue, whose retries are far away."""
    return World({**KEYED, **more}, queues=1)


def act(world: World, action: str, offset: int, *, force: bool = False, key: str | None = None) -> Handled:
    """Do what the admin port does: find the head, act, make it durable."""
    head = heads.find_head(world.group, world.group_queue(), offset, key=key)
    if action == "retry":
        handled = heads.retry_now(head, force=force, progress=world.progress, clock=world.clock)
    elif action == "skip":
        handled = heads.skip(head, force=force, progress=world.progress)
    else:
        handled = heads.dead_letter(head, force=force, who="10.9.9.9")
    world.settle()
    return handled


def offsets(jobs: list[UpstreamJob]) -> list[int]:
    """Offsets of jobs."""
    return [job.offset for job in jobs]


def stuck(world: World) -> list[StuckMessage]:
    """What the group names as stuck."""
    found, total = stuck_messages(world.group, clock=world.clock, count_max=100)
    assert total == len(found)
    return found


def failed_head(world: World) -> Client:
    """Publish two messages of key k and one of another; fail the first, so that it waits for its retry."""
    client = Client()
    world.publish("k", "k", "other")
    first, other = world.pull_all(client)
    world.answer(client, first, fail=True)
    world.answer(client, other)
    assert world.pull_all(client) == []
    return client


def test_retry_comes_at_once_and_keeps_its_attempts() -> None:
    """A waiting retry is due now, after a restart too; its failures stay counted; its successor still waits."""
    world = keyed()
    client = failed_head(world)
    assert act(world, "retry", 0, key="k").changed
    [again] = world.pull_all(client)
    assert (again.offset, again.attempts) == (0, 1)
    world.kill()
    [once_more] = world.pull_all(Client())
    assert (once_more.offset, once_more.attempts) == (0, 1)


def test_retry_forgets_the_earlier_due_time() -> None:
    """A message that fails again after a retry by hand waits its whole next interval."""
    world = keyed(retryIntervals=[100_000, 100_000, 100_000])
    client = failed_head(world)
    act(world, "retry", 0)
    [again] = world.pull_all(client)
    world.advance(50)
    world.answer(client, again, fail=True)
    world.advance(60)  # the first retry's own time
    assert world.pull_all(client) == []
    world.advance(41)
    assert offsets(world.pull_all(client)) == [0]


@pytest.mark.parametrize("action", ["skip", "dead-letter"])
def test_ended_head_lets_its_key_go_on(action: str) -> None:
    """The next of the key comes at once, the ended one never again, and it is counted and kept as the action says."""
    world = keyed()
    client = failed_head(world)
    assert act(world, action, 0).changed
    assert offsets(world.pull_all(client)) == [1]
    skipped, dead = world.count(SKIPPED, "g", "t", "operator"), world.count(DEAD_LETTERS, "g", "t", "operator")
    assert (skipped, dead) == ((1, 0) if action == "skip" else (0, 1))
    world.kill()
    assert offsets(world.pull_all(client)) == [1]
    letters = world.dead_letters()
    assert len(letters) == dead
    if letters:
        assert letters[0]["DLQ_ATTEMPTS"] == "1"
        said = "abandoned by an operator at 10.9.9.9; before: failed by 10.0.0.1:5000"
        assert letters[0]["DLQ_REASON"] == said
    world.advance(200)
    assert stuck(world) == [] or stuck(world)[0].offset == 1


@pytest.mark.parametrize("action", ["retry", "skip", "dead-letter"])
def test_message_that_is_out_is_left_alone_unless_forced(action: str) -> None:
    """Without force the refusal names its holder and nothing happens; with it a late success still counts."""
    world = keyed()
    client, other = Client("10.0.0.1:1"), Client("10.0.0.2:2")
    world.publish("k", "k")
    [out] = world.pull_all(client)
    with pytest.raises(HeadRefused, match=r"in flight with 10\.0\.0\.1:1"):
        act(world, action, 0)
    assert out.state is JobState.OUT
    assert world.pull_all(other) == []

    assert act(world, action, 0, force=True).changed
    subscription = place_of(world.group).subscription
    assert subscription is not None
    assert not subscription.deadlines.open, "nothing waits for its old holder's timeout"
    found = world.pull_all(other)
    assert offsets(found) == ([0] if action == "retry" else [1])
    late = world.answer(client, out)
    assert late.counted
    assert (late.finished, late.repeated) == ((1, 0) if action == "retry" else (0, 1))
    if action == "retry":
        # The key waits for its present holder's answer (D12).
        assert world.pull_all(client) == []
        assert world.answer(other, found[0]).repeated == 1
        assert offsets(world.pull_all(client)) == [1]


def test_wrong_head_is_refused_and_nothing_is_done() -> None:
    """Another key, a message behind its key, finished and unknown ones: a sentence each, and no change."""
    world = keyed()
    client = failed_head(world)
    for offset, key, sentence in [
        (0, "other", "has the order key 'k', not 'other'"),
        (1, None, "waits for an earlier message of key 'k': queue 0, offset 0"),
        (2, None, "is already finished"),
        (7, None, "has offsets 0 to 2"),
    ]:
        with pytest.raises(HeadRefused, match=sentence):
            act(world, "skip", offset, key=key)
    assert offsets([job for job in world.group_queue().live.values() if job.state is JobState.RETRYING]) == [0]
    assert world.count(SKIPPED) == 0
    world.group.begin_drain()
    with pytest.raises(HeadRefused, match="starts, drains or has ended"):
        act(world, "skip", 0)
    assert world.pull_all(client) == []


def test_head_of_an_empty_queue_is_refused_as_that() -> None:
    """No range of offsets that ends before it begins."""
    with pytest.raises(HeadRefused, match="Queue 0 of t has no message"):
        act(keyed(), "skip", 0)


def test_unordered_and_buffered_messages_are_reached_by_queue_and_offset() -> None:
    """A message without a key, ready for the next pull, can be passed over or given up before anybody gets it."""
    world = World({**KEYED, "orderKey": None}, queues=1)
    world.publish(None, None, None)
    assert not act(world, "retry", 1).changed
    act(world, "skip", 1)
    act(world, "dead-letter", 0)
    assert offsets(world.pull_all(Client())) == [2]
    subscription = place_of(world.group).subscription
    assert subscription is not None
    assert subscription.permits.used == 1
    assert buffer_of(world.group).jobs == 0


def test_message_without_a_permit_gives_none_back() -> None:
    """Skipping and dead-lettering what waits for a permit leaves the permits as they were."""
    world = World({**KEYED, "orderKey": None, "concurrency": 1}, queues=1)
    world.publish(None, None, None, None)
    subscription = place_of(world.group).subscription
    assert subscription is not None
    assert world.group_queue().live[1].state is JobState.READY
    act(world, "skip", 1)
    act(world, "dead-letter", 2)
    assert subscription.permits.used == 1
    client = Client()
    [first] = world.pull_all(client)
    world.answer(client, first)
    assert offsets(world.pull_all(client)) == [3]


def test_dead_letter_that_the_store_refuses_can_be_ended_by_a_skip() -> None:
    """With a full disk the key waits for its dead letter, and is named so; `skip` ends that, without a letter."""
    world = keyed(retryIntervals=[])
    client = Client()
    world.publish("k", "k")
    [job] = world.pull_all(client)
    world.fill_disk()
    world.answer(client, job, fail=True)
    [named] = stuck(world)
    assert (named.state, named.offset, named.waiting) == (DEAD_LETTER_REFUSED, 0, 1)
    with pytest.raises(HeadRefused, match="being moved to the dead letters"):
        act(world, "dead-letter", 0)
    act(world, "skip", 0)
    world.sim.capacity_bytes = None
    world.advance(5)
    assert world.dead_letters() == []
    assert offsets(world.pull_all(client)) == [1]


def test_key_goes_on_after_a_skip_that_a_full_journal_refused() -> None:
    """Where there is no room for acks either the operator is told; with space again nothing stays behind."""
    world = keyed(retryIntervals=[])
    client = Client()
    world.publish("k", "k")
    [job] = world.pull_all(client)
    world.fill_disk()
    world.answer(client, job, fail=True)
    world.sim.fail("write", error=errno.ENOSPC, path_part="/acks/")
    with pytest.raises(ProgressFull):
        act(world, "skip", 0)
    world.sim.heal()
    world.sim.capacity_bytes = None
    world.advance(5)
    assert offsets(world.pull_all(client)) == [1]


def test_dead_letter_under_way_is_left_to_itself() -> None:
    """Between the append of a dead letter and its flush nothing can be done any more."""
    world = keyed(retryIntervals=[])
    client = Client()
    world.publish("k")
    [job] = world.pull_all(client)
    world.group.apply("t", job.qid, [], [0], client)
    for action in ("skip", "retry", "dead-letter"):
        with pytest.raises(HeadRefused, match="dead letter"):
            act(world, action, 0)
        assert job.state is JobState.BURYING
    world.settle()
    assert len(world.dead_letters()) == 1


def test_dead_letter_under_way_is_not_stuck() -> None:
    """Neither the list of stuck messages nor the figures of the group name it while its record is flushed."""
    world = keyed()
    client = failed_head(world)
    assert (len(stuck(world)), world.group.stats().topics[0].stuck_keys_total) == (1, 1)
    head = heads.find_head(world.group, world.group_queue(), 0)
    heads.dead_letter(head, force=False, who="10.9.9.9")
    view = world.group.stats().topics[0]
    assert (head.job.state, view.burying) == (JobState.BURYING, 1)
    assert (stuck(world), view.stuck_keys_total, view.failing_total) == ([], 0, 0)
    world.settle()
    assert len(world.dead_letters()) == 1
    assert len(world.pull_all(client)) == 1


class Moody(Action):
    """Fails the bodies that are listed."""

    moods: ClassVar[set[str]] = set()

    def act(self, job: Job) -> Status:
        return Status.FAIL if bytes(job.body).decode() in self.moods else Status.CONTINUE


@pytest.mark.parametrize("action", ["retry", "skip", "dead-letter"])
def test_message_that_holds_the_gate_closed_is_reached(action: str) -> None:
    """A message that failed before its key was known holds up all reading; each action lets the rest come."""
    Moody.moods = {'{"k": 1}'}
    pipeline = ["Moody", "Json", "Async", "PullServer"]
    registry = Registry({**BUILT_IN, "Moody": Moody})
    world = World({**KEYED, "actions": pipeline, "orderKey": "$.k"}, queues=1, registry=registry)
    client = Client()
    for body in (b'{"k": 1}', b'{"k": 2}'):
        world.publish(None, body=body)
    assert world.pull_all(client) == []
    [named] = stuck(world)
    assert (named.offset, named.state, named.due_ms) == (0, "read", world.clock.wall_ms() + 100_000)
    Moody.moods = set()
    act(world, action, 0)
    assert offsets(world.pull_all(client)) == ([0, 1] if action == "retry" else [1])
    assert len(world.dead_letters()) == (action == "dead-letter")


def test_stuck_names_key_place_state_holder_and_next_try() -> None:
    """Heads with others behind them and failed messages are listed, the oldest first; those behind are not."""
    world = keyed()
    client = Client("10.0.0.1:1")
    world.publish("a", "a", "a", "b", None)
    first, second, third = world.pull_all(client)
    assert offsets([first, second, third]) == [0, 3, 4]
    world.advance(5)
    world.answer(client, second, fail=True)
    one, two = stuck(world)
    assert (one.key, one.queue, one.offset, one.state, one.holder) == ("a", 0, 0, "out", "10.0.0.1:1")
    assert (one.waiting, one.attempts) == (2, 1)
    assert one.due_ms == one.since_ms + 60_000
    assert (two.key, two.offset, two.state, two.holder, two.waiting) == ("b", 3, "retrying", None, 0)
    assert two.due_ms == world.clock.wall_ms() + 100_000
    assert one.id is not None
    assert len(one.id) == 32
    assert DEAD_LETTER_REFUSED == "dead letter refused"


@pytest.mark.parametrize("action", ["skip", "dead-letter"])
@pytest.mark.parametrize("seed", range(2))
def test_power_cut_at_every_change_keeps_order_and_the_answered_decision(action: str, seed: int) -> None:
    """Wherever the power goes: an answered decision holds, and the next of its key never came before it was kept."""
    cuts = 0
    for changes in range(100):
        world = keyed()
        client = failed_head(world)
        world.settle()
        got: list[PulledBatch] = []
        world.group.park(None, None, client, got.append)
        world.sim.stop_after(changes)
        decided = False
        try:
            act(world, action, 0)
            decided = True
            assert [offsets(batch.jobs) for batch in got] == [[1]]
            world.progress.commit()
        except PowerCut:
            cuts += 1
        world.group.stop()
        world.scheduler = ManualScheduler(world.clock)
        world.sim.crash(Random(seed))
        world.open()
        world.advance(150)
        first = world.pull_all(Client())[0].offset
        letters = len(world.dead_letters())
        if decided:
            assert first == 1
            assert letters == (action == "dead-letter")
        # A decision that was not answered may go either way, but the key is where the decision is.
        assert first == (1 if letters or (action == "skip" and first == 1) else 0)
        assert first == 1 or not got, "the next of the key went out before the decision was kept"
        if cuts <= changes:  # it came to its end
            break
    assert cuts >= 2
