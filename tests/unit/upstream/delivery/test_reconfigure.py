"""Live changes and generations of a group's configuration (D22)."""

from __future__ import annotations

from itertools import pairwise
from time import process_time
from typing import Any

import pytest

from actions.registry import BUILT_IN, ActionError, Registry
from pyddmq.actions import Action, Job, Status
from tests.unit.upstream_world import QID, Client, World
from upstream.delivery.generations import TOPICS_AT_ONCE
from upstream.group_parts import GroupLimits
from upstream.job import UpstreamJob
from upstream.operate.heads import find_head, retry_now
from upstream.state import JobState
from upstream.waiting.buffer import PulledBatch


class Refuses(Action):
    """Does not open."""

    opened = 0

    def open(self) -> None:
        """Count, and fail."""
        Refuses.opened += 1
        raise RuntimeError("the target is away")

    def act(self, job: Job) -> Status:
        """Never asked."""
        raise AssertionError


def test_limits_change_live_without_disturbing_deliveries() -> None:
    """Concurrency, batch size, timeout and rate change under what is out; no generation ends."""
    world = World({"topic": "t", "concurrency": 1, "timeout": 60_000}, queues=1)
    client = Client()
    world.publish(*[None] * 10)
    [first] = world.pull_all(client)
    new = {"topic": "t", "concurrency": 8, "timeout": 1000, "maxPullBatchSize": 3}
    world.group.reconfigure(world.config(new))
    batch = world.pull(client)
    assert batch is not None
    assert len(batch.jobs) == 3
    world.advance(1)
    assert first in world.pull_all(client)
    assert world.answer(client, first).finished == 1


def test_changed_order_key_starts_a_new_generation_after_the_old_one_drained() -> None:
    """While something is out nothing new is read; its ack counts, and the new generation reads on from there."""
    world = World({"topic": "t"}, queues=1)
    client = Client()
    world.publish("a", "a", "a")
    batch = world.pull(client, count=1)
    assert batch is not None
    world.group.reconfigure(world.config({"topic": "t", "orderKey": "KEY"}))
    world.advance(1)
    assert world.pull_all(client) == []
    assert world.group.stats().topics[0].state == "draining"
    world.answer(client, batch.jobs[0])
    world.advance(0.1)
    assert world.group.stats().topics[0].state == "running"
    assert [world.body(job) for job in world.pull_all(client)] == [2]


def test_generation_that_does_not_drain_is_replaced_and_what_is_out_stays_out() -> None:
    """After 30 s the new generation starts; a delivery whose timeout has not passed is not handed out again (D12)."""
    world = World({"topic": "t", "timeout": 100_000}, queues=1)
    client, other = Client(), Client("10.0.0.7:1")
    world.publish("a", "a", "b")
    batch = world.pull(client, count=1)
    assert batch is not None
    world.group.reconfigure(world.config({"topic": "t", "orderKey": "KEY", "timeout": 100_000}))
    world.advance(31)
    assert [world.body(job) for job in world.pull_all(other)] == [3]
    applied = world.group.apply("t", batch.qid, [batch.jobs[0].offset], [], client)
    assert applied.finished == 1
    assert [world.body(job) for job in world.pull_all(other)] == [2]


def test_adopted_delivery_times_out_at_its_own_deadline() -> None:
    """What an old generation handed out comes again when that delivery's timeout passes, and not later."""
    world = World({"topic": "t", "timeout": 40_000}, queues=1)
    client = Client()
    world.publish("a")
    assert world.pull(client) is not None
    world.group.reconfigure(world.config({"topic": "t", "orderKey": "KEY", "timeout": 40_000}))
    world.advance(39)
    assert world.pull_all(client) == []
    world.advance(1.1)
    assert [world.body(job) for job in world.pull_all(client)] == [1]


def test_other_topic_and_parked_pulls_are_not_disturbed() -> None:
    """A new generation of one topic leaves the other's delivery and a parked pull alone."""
    world = World({"topic": "a"}, {"topic": "b"}, queues=1)
    client, waiting = Client(), Client()
    world.publish(None, topic="b")
    [job] = world.pull_all(client)
    woken: list[PulledBatch] = []
    world.group.park(None, None, waiting, woken.append)
    world.group.reconfigure(world.config({"topic": "a", "tags": ["x"]}, {"topic": "b"}))
    world.publish(None, topic="a", tag="x")
    assert [batch.topic for batch in woken] == ["a"]
    assert world.answer(client, job).finished == 1


def test_last_topic_taken_out_or_disabled_really_stops() -> None:
    """Taking the last topic out ends its consumption (W24); putting it back goes on where it stood."""
    world = World({"topic": "t"}, queues=1)
    client = Client()
    world.publish(None, None)
    batch = world.pull(client, count=1)
    assert batch is not None
    world.group.reconfigure(world.config({"topic": "t", "enabled": False}))
    assert not world.group.has_topic("t")
    world.answer(client, batch.jobs[0])
    world.advance(1)
    assert world.pull_all(client) == []
    assert world.group.stats().topics == []
    world.publish(None)
    assert world.pull_all(client) == []
    world.group.reconfigure(world.config({"topic": "t"}))
    assert [world.body(job) for job in world.pull_all(client)] == [2, 3]


def test_result_for_a_disabled_topic_still_counts() -> None:
    """A success that arrives after the topic was taken out finishes its offset."""
    world = World({"topic": "t"}, queues=1)
    client = Client()
    world.publish(None)
    [job] = world.pull_all(client)
    world.group.reconfigure(world.config({"topic": "t", "enabled": False}))
    world.advance(31)
    applied = world.group.apply("t", job.qid, [0, 0, 9], [0], client)
    assert (applied.finished, applied.repeated, applied.ignored) == (1, 1, 2)


def test_action_that_cannot_be_made_changes_nothing() -> None:
    """A bad reload leaves the running configuration in force (promise 7)."""
    world = World({"topic": "t"}, queues=1)
    with pytest.raises(ActionError, match="Nope"):
        world.group.reconfigure(world.config({"topic": "t", "actions": ["Nope", "PullServer"]}))
    world.publish(None)
    assert len(world.pull_all(Client())) == 1


def test_added_topic_starts_and_unknown_one_is_tried_again() -> None:
    """A topic that is not in the store yet keeps nobody else from running, and starts once it is there."""
    world = World({"topic": "t"}, queues=1)
    world.group.reconfigure(world.config({"topic": "t"}, {"topic": "later"}))
    assert [topic.state for topic in world.group.stats().topics] == ["running", "starting"]
    world.store.create_topic("later", 1)
    world.publish(None, topic="later")
    world.advance(5)
    assert [job.topic for job in world.pull_all(Client())] == ["later"]


def test_batch_that_comes_back_while_its_generation_starts_is_there_at_once() -> None:
    """What a starting generation hands to a pull whose client has gone is neither lost nor waited for."""
    world = World({"topic": "t"}, queues=1)
    gone, client = Client(), Client("10.0.0.2:1")
    world.group.reconfigure(world.config({"topic": "t", "enabled": False}))
    world.publish(None)
    world.group.park(None, None, gone, lambda batch: world.group.give_back(batch, gone))
    world.group.reconfigure(world.config({"topic": "t"}))
    assert [(world.body(job), job.deliveries, job.attempts) for job in world.pull_all(client)] == [(1, 1, 0)]


def test_held_key_outlasts_a_forced_change() -> None:
    """A key that waits for its present holder is not lost when the old generation is over its time (D12)."""
    old = {"topic": "t", "orderKey": "KEY", "timeout": 50_000}
    world = World(old, queues=1)
    slow, present = Client(), Client("10.0.0.2:1")
    world.publish("a", "a")
    [job] = world.pull_all(slow)
    world.advance(50)
    assert world.pull_all(present) == [job]
    world.answer(slow, job)
    world.group.reconfigure(world.config({**old, "pressureTraffic": True}))
    world.advance(45)
    assert world.pull_all(slow) == []
    world.advance(5.2)
    assert [world.body(each) for each in world.pull_all(slow)] == [2]


def test_drain_bound_of_the_node_changes_live() -> None:
    """After a reload with a shorter drainSeconds a generation that does not drain is replaced after that time."""
    world = World({"topic": "t", "timeout": 100_000}, queues=1)
    client = Client()
    world.publish("a", "b")
    assert world.pull(client, count=1) is not None
    changed = world.config({"topic": "t", "orderKey": "KEY", "timeout": 100_000})
    world.group.reconfigure(changed, GroupLimits(drain_seconds=2))
    world.advance(1.5)
    assert world.group.stats().topics[0].state == "draining"
    world.advance(1)
    assert [world.body(job) for job in world.pull_all(client)] == [2]


ORDERED = {"topic": "t", "orderKey": "KEY", "timeout": 3_600_000}


def held(world: World) -> tuple[UpstreamJob, Client, Client]:
    """Let the first message of key "a" be finished by an earlier holder's success while another has it."""
    slow, present = Client(), Client("10.0.0.2:1")
    [job] = world.pull_all(slow)
    world.advance(3600)
    assert world.pull_all(present) == [job]
    world.answer(slow, job)
    assert job.state is JobState.HELD
    return job, slow, present


@pytest.mark.parametrize("change", [{"pressureTraffic": True}, {"tags": ["x"]}, {"orderKey": "QID"}])
def test_held_key_holds_up_nobody_else_after_a_reload(change: dict[str, Any]) -> None:
    """The new generation starts at the bound; the held key waits in it for the holder's answer, others go on."""
    world = World(ORDERED, queues=1)
    world.publish("a", "a", tag="x")
    _, _, present = held(world)
    world.group.reconfigure(world.config({**ORDERED, **change}))
    world.publish("b", tag="x")
    world.advance(29)
    assert world.pull_all(Client()) == []
    world.advance(1.1)
    other = Client("10.0.0.3:1")
    assert [world.body(job) for job in world.pull_all(other)] == ([] if "orderKey" in change else [3])
    assert world.group_queue().in_flight == (1 if "orderKey" in change else 2)
    world.group.apply("t", f"{QID}0", [0], [], present)
    assert [world.body(job) for job in world.pull_all(other)] == [2]


@pytest.mark.parametrize("end", ["success", "fail", "timeout"])
@pytest.mark.parametrize("paused", [False, True])
def test_held_key_of_an_earlier_generation_goes_on_when_its_holder_is_done(end: str, paused: bool) -> None:
    """Its answer of either kind, also one that comes before the new generation has read on, or its timeout."""
    world = World(ORDERED, queues=1)
    world.publish("a", "a")
    _, slow, present = held(world)
    if paused:
        world.pause()
    world.group.reconfigure(world.config({**ORDERED, "pressureTraffic": True}))
    world.advance(31)
    world.group.apply("t", f"{QID}0", [0], [0], slow)
    if not paused:
        assert world.pull_all(slow) == []
    if end == "timeout":
        world.advance(3569)
    else:
        done: tuple[list[int], list[int]] = ([0], []) if end == "success" else ([], [0])
        world.group.apply("t", f"{QID}0", *done, present)
    if paused:
        world.resume()
    assert [world.body(job) for job in world.pull_all(slow)] == [2]


def test_held_key_is_kept_over_two_reloads_and_an_offset_far_behind_the_watermark() -> None:
    """Each generation takes it over, whatever was finished after it."""
    world = World(ORDERED, queues=1)
    world.publish("a", "a")
    _, _, present = held(world)
    world.publish(*[None] * 1000)
    other = Client("10.0.0.3:1")
    for job in world.pull_all(other):
        world.answer(other, job)
    for flag in (True, False):
        world.group.reconfigure(world.config({**ORDERED, "pressureTraffic": flag}))
        world.advance(30.1)
        assert world.pull_all(other) == []
    world.group.apply("t", f"{QID}0", [0], [], present)
    assert [world.body(job) for job in world.pull_all(other)] == [2]
    assert world.count("pyddmq_skipped_messages_total") == 0


def test_topic_taken_out_before_it_ran_is_given_up() -> None:
    """Its slot goes, with its queue locks: the topic can be deleted, and others may consume it."""
    world = World({"topic": "t"}, queues=1)
    world.group.reconfigure(world.config({"topic": "t"}, {"topic": "later"}))
    assert world.group.works_on("later")
    world.group.reconfigure(world.config({"topic": "t"}))
    assert not world.group.works_on("later")
    assert [topic.topic for topic in world.group.stats().topics] == ["t"]
    world.store.create_topic("later", 1)
    world.advance(60)
    assert not world.group.works_on("later")


def test_topic_whose_actions_do_not_open_gives_its_queues_up_when_it_is_taken_out() -> None:
    """The locks were taken before the action raised."""
    world = World({"topic": "t"}, queues=1, registry=Registry({**BUILT_IN, "Refuses": Refuses}))
    world.store.create_topic("u", 1)
    world.group.reconfigure(world.config({"topic": "t"}, {"topic": "u", "actions": ["Refuses", "PullServer"]}))
    assert world.store.queue_locks.owner("g", ("u", 0)) == "proxy"
    world.group.reconfigure(world.config({"topic": "t"}))
    assert world.store.queue_locks.owner("g", ("u", 0)) is None


def test_reloads_leave_one_attempt_to_start_at_a_time() -> None:
    """Each reload tries at once and puts off the next attempt; it begins no further chain of them."""
    Refuses.opened = 0
    world = World({"topic": "t"}, queues=1, registry=Registry({**BUILT_IN, "Refuses": Refuses}))
    refusing = {"topic": "t", "actions": ["Refuses", "PullServer"]}
    world.group.reconfigure(world.config(refusing))
    world.advance(0.1)
    for number in range(10):
        world.group.reconfigure(world.config({**refusing, "tags": [f"x{number}"]}))
    assert Refuses.opened == 11
    world.advance(60)
    assert Refuses.opened == 11 + 12
    world.group.stop()
    world.advance(60)
    assert Refuses.opened == 11 + 12


def test_many_topics_start_change_and_are_read_in_steps() -> None:
    """No step of the loop begins to read more than TOPICS_AT_ONCE topics; each ends as at once."""
    names = [f"t{number}" for number in range(8 * TOPICS_AT_ONCE)]
    world = World({"topic": "t"}, queues=1)
    for name in names:
        world.store.create_topic(name, 1)

    def running() -> int:
        return sum(each.state == "running" for each in world.group.stats().topics)

    counts = [running()]
    for _ in world.group.reconfiguring(world.config({"topic": "t"}, *({"topic": name} for name in names))):
        counts.append(running())
    assert counts[-1] > counts[0] == 1
    assert max(after - before for before, after in pairwise(counts)) <= TOPICS_AT_ONCE
    assert {each.state for each in world.group.stats().topics} == {"running"}
    assert len(list(world.group.reading_stats(details_max=1))) >= 2
    for _ in world.group.reconfiguring(world.config({"topic": "t"})):
        counts.append(running())
    assert [each.topic for each in world.group.stats().topics] == ["t"]
    assert max(before - after for before, after in pairwise(counts)) <= TOPICS_AT_ONCE


def test_message_that_a_client_has_is_not_pushed_by_the_next_generation() -> None:
    """A group that is pulled becomes one that pushes: what is out stays so until its timeout, with its key (D12)."""
    pushed: list[int] = []

    class Push(Action):
        may_be_last = True

        def act(self, job: Job) -> Status:
            pushed.append(job.offset)
            return Status.FINISH

    settings = {"topic": "t", "orderKey": "KEY", "timeout": 100_000}
    registry = Registry({**BUILT_IN, "Push": Push})
    world = World({**settings, "actions": ["Async", "PullServer"]}, queues=1, registry=registry)
    world.publish("k", "k", "j", "l")
    client = Client()
    first, third, fourth = world.pull_all(client)
    assert [each.offset for each in (first, third, fourth)] == [0, 2, 3]
    world.group.reconfigure(world.config({**settings, "actions": ["Async", "Push"]}))
    world.advance(80)
    assert pushed == []
    world.answer(client, third)
    world.answer(client, fourth, fail=True)
    world.advance(10)
    assert pushed == [3]
    world.advance(20)
    assert pushed == [3, 0, 1]


def test_shorter_timeout_holds_beside_what_an_earlier_generation_has_out() -> None:
    """A delivery that has minutes left keeps none of the next generation out for longer than its own timeout."""
    world = World({"topic": "t", "timeout": 600_000}, queues=1)
    client, other = Client(), Client("10.0.0.7:1")
    world.publish("a", "b", "c")
    assert world.pull(client, count=1) is not None
    world.group.reconfigure(world.config({"topic": "t", "orderKey": "KEY", "timeout": 2000, "concurrency": 9}))
    world.advance(31)
    assert [world.body(job) for job in world.pull_all(other)] == [2, 3]
    world.advance(1)
    world.publish("d")
    assert [world.body(job) for job in world.pull_all(other)] == [4]
    world.advance(2.1)
    assert [world.body(job) for job in world.pull_all(other)] == [2, 3, 4]


def test_timeout_that_changes_while_adopted_deliveries_are_out_ends_them_in_time() -> None:
    """Each delivery ends when its timeout has passed since it was handed out, whichever generation did that."""
    world = World({"topic": "t", "timeout": 600_000}, queues=1)
    client, other = Client(), Client("10.0.0.7:1")
    world.publish("k", "k", "b")
    batch = world.pull(client, count=2)
    assert batch is not None
    ordered = {"topic": "t", "orderKey": "KEY"}
    world.group.reconfigure(world.config({**ordered, "timeout": 100_000}))
    world.advance(31)
    assert [world.body(job) for job in world.pull_all(other)] == [3]
    world.answer(client, batch.jobs[0])
    world.group.reconfigure(world.config({**ordered, "timeout": 40_000}))
    world.advance(10)
    assert [world.body(job) for job in world.pull_all(other)] == [2]


def test_many_deliveries_are_taken_over_in_short_steps() -> None:
    """What an earlier generation has out costs the next one a step for each, not one for each other."""
    count = 20_000
    settings = {"topic": "t", "timeout": 600_000, "concurrency": count, "maxPullBatchSize": 1000}
    world = World(settings, queues=1)
    world.publish(*[None] * count)
    assert len(world.pull_all(Client())) == count
    world.group.reconfigure(world.config({**settings, "tags": ["*"]}))
    began = process_time()
    world.advance(32)
    assert process_time() - began < 5
    assert world.group.out_count == count


@pytest.mark.parametrize("forced", [True, False])
def test_message_that_an_operator_retries_is_pushed_by_a_group_that_was_pulled(forced: bool) -> None:
    """What a client had, or failed for good, does not come back for pulls that will never be."""
    pushed: list[int] = []

    class Push(Action):
        may_be_last = True

        def act(self, job: Job) -> Status:
            pushed.append(job.offset)
            return Status.FINISH

    settings = {"topic": "t", "orderKey": "KEY", "timeout": 100_000, "onExhausted": "stopKey", "retryIntervals": []}
    registry = Registry({**BUILT_IN, "Push": Push})
    world = World({**settings, "actions": ["Async", "PullServer"]}, queues=1, registry=registry)
    world.publish("k", "k")
    client = Client()
    [job] = world.pull_all(client)
    world.group.reconfigure(world.config({**settings, "actions": ["Async", "Push"]}))
    world.advance(31)
    if not forced:
        world.answer(client, job, fail=True)
    head = find_head(world.group, world.group_queue(), 0)
    retry_now(head, force=forced, progress=world.progress, clock=world.clock)
    world.settle()
    assert pushed == [0, 1]


def test_message_that_a_client_has_is_left_alone_by_new_actions_of_a_group_that_is_pulled() -> None:
    """A filter that would drop it does not let the next of its key out beside it; if it comes again, it is asked."""
    seen: list[int] = []

    class DropsFirst(Action):
        def act(self, job: Job) -> Status:
            seen.append(job.offset)
            return Status.CONTINUE if job.offset else Status.FINISH

    settings = {"topic": "t", "orderKey": "KEY", "timeout": 100_000}
    world = World(settings, queues=1, registry=Registry({**BUILT_IN, "DropsFirst": DropsFirst}))
    world.publish("k", "k", "j")
    client, other = Client(), Client("10.0.0.7:1")
    batch = world.pull(client, count=1)
    assert batch is not None
    world.group.reconfigure(world.config({**settings, "actions": ["Async", "DropsFirst", "PullServer"]}))
    world.advance(31)
    assert [job.offset for job in world.pull_all(other)] == [2]
    assert seen == [2]
    world.advance(70)
    assert seen == [2, 0, 1]
    assert [job.offset for job in world.pull_all(other)] == [1]


def test_message_whose_client_does_not_answer_goes_to_a_waiting_pull_once() -> None:
    """Of a message from before a reload that is: the pull has it before its timeout is dealt with to the end."""

    class Passes(Action):
        def act(self, job: Job) -> Status:
            return Status.CONTINUE

    settings = {"topic": "t", "orderKey": "KEY", "timeout": 100_000}
    world = World(settings, queues=1, registry=Registry({**BUILT_IN, "Passes": Passes}))
    world.publish("k")
    assert world.pull(Client()) is not None
    world.group.reconfigure(world.config({**settings, "actions": ["Async", "Passes", "PullServer"]}))
    world.advance(31)
    taken: list[PulledBatch] = []
    for number in range(2):
        world.group.park(None, None, Client(f"10.0.0.7:{number}"), taken.append)
    world.advance(70)
    assert [job.offset for batch in taken for job in batch.jobs] == [0]
