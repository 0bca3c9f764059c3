"""Answers that cross a redelivery: whose they are, and what waits for the others (D12, D40)."""

from __future__ import annotations

from typing import Any

import pytest

from pyddmq.actions import Status
from tests.unit.actions.test_actions import Probe, probe, scripted, send
from tests.unit.upstream_world import QID, Client, World
from upstream.delivery.results import Applied
from upstream.job import EARLIER_MAX, UpstreamJob
from upstream.state import JobState

__all__ = ["probe"]

FINISHED = Applied(finished=1)
REPEATED = Applied(repeated=1)


def keyed(**settings: object) -> World:
    """Make a group with order by message key on one queue, whose deliveries end after a second."""
    return World({"topic": "t", "orderKey": "KEY", "timeout": 1000, **settings}, queues=1)


def bodies(world: World, jobs: list[UpstreamJob]) -> list[Any]:
    """Return the numbers of messages."""
    return [world.body(job) for job in jobs]


def delivered_twice(world: World, client: Client) -> UpstreamJob:
    """Hand a message out to a client, let that time out, and hand it out to the same client again."""
    world.publish("a", "a")
    [job] = world.pull_all(client)
    world.advance(1)
    assert world.pull_all(client) == [job]
    return job


def test_first_success_after_a_redelivery_to_the_same_client_keeps_the_key() -> None:
    """It may be of the delivery that timed out: the offset is finished, the key waits for the second answer."""
    world, client, other = keyed(), Client(), Client("10.0.0.2:1")
    job = delivered_twice(world, client)
    assert world.answer(client, job) == FINISHED
    assert job.group_queue.tracker.watermark == 1
    assert world.pull_all(other) == []
    assert world.answer(client, job) == REPEATED
    assert bodies(world, world.pull_all(other)) == [2]


def test_key_of_a_crossed_success_goes_on_at_the_timeout() -> None:
    """A client that never answers the first delivery (SKIP) costs one timeout, and no retry."""
    world, client = keyed(), Client()
    job = delivered_twice(world, client)
    world.answer(client, job)
    world.advance(0.9)
    assert world.pull_all(client) == []
    world.advance(0.1)
    assert bodies(world, world.pull_all(client)) == [2]
    assert world.dead_letters() == []
    assert not job.group_queue.unanswered


def test_first_fail_after_a_redelivery_to_the_same_client_is_of_the_earlier_one() -> None:
    """Taken for the present delivery it would hand the message out a third time beside the second."""
    world, client, other = keyed(retryIntervals=[0]), Client(), Client("10.0.0.2:1")
    job = delivered_twice(world, client)
    assert world.answer(client, job, fail=True) == Applied(ignored=1)
    assert world.pull_all(other) == []
    assert world.answer(client, job, fail=True) == Applied(failed=1)
    world.advance(0.1)
    assert world.pull_all(other) == [job]


def test_answer_between_two_deliveries_is_of_the_first() -> None:
    """A late fail while nobody has the message is that of the delivery that timed out: then nothing is owed."""
    world, client = keyed(), Client()
    world.publish("a", "a")
    [job] = world.pull_all(client)
    world.advance(1)
    assert world.answer(client, job, fail=True) == Applied(ignored=1)
    assert world.pull_all(client) == [job]
    assert world.answer(client, job) == FINISHED
    assert bodies(world, world.pull_all(client)) == [2]


def test_earlier_delivery_to_somebody_else_asks_nothing_of_the_holder() -> None:
    """The holder's first answer counts; the other one's late success finishes and keeps the key, as ever."""
    world, slow, client = keyed(), Client(), Client("10.0.0.2:1")
    world.publish("a", "a")
    [job] = world.pull_all(slow)
    world.advance(1)
    assert world.pull_all(client) == [job]
    assert world.answer(client, job) == FINISHED
    assert bodies(world, world.pull_all(client)) == [2]
    assert world.answer(slow, job) == REPEATED


def test_late_answer_over_a_new_connection_of_the_same_client_is_of_the_earlier_delivery() -> None:
    """What was handed out over a connection that closed may be answered over the client's next one."""
    world, old, new = keyed(), Client("10.0.0.1:1"), Client("10.0.0.1:2")
    world.publish("a", "a")
    [job] = world.pull_all(old)
    old.closed = True
    world.advance(1)
    assert world.pull_all(new) == [job]
    assert world.answer(new, job) == FINISHED
    assert world.pull_all(new) == []
    assert world.answer(new, job) == REPEATED
    assert bodies(world, world.pull_all(new)) == [2]


def test_message_taken_back_by_an_operator_waits_for_both_answers() -> None:
    """A forced retry leaves the first delivery unanswered too."""
    from upstream.operate import heads

    world, client = keyed(), Client()
    world.publish("a", "a")
    [job] = world.pull_all(client)
    heads.retry_now(world.head(job), force=True, progress=world.progress, clock=world.clock)
    assert world.pull_all(client) == [job]
    assert world.answer(client, job) == FINISHED
    assert world.pull_all(client) == []
    assert world.answer(client, job) == REPEATED
    assert bodies(world, world.pull_all(client)) == [2]


@pytest.mark.parametrize("fail", [False, True])
def test_answer_before_the_reply_has_left_is_of_an_earlier_delivery(fail: bool) -> None:
    """After a restart: a result that was sent before the reply with the present delivery left is not of that."""
    world, client = keyed(retryIntervals=[0]), Client()
    world.publish("a", "a")
    world.pull_all(client)
    world.kill()
    batch = world.pull(client)
    assert batch is not None
    [job] = batch.jobs
    assert job.delivery is not None
    job.delivery.reply = client.carried = 7
    client.heard = 6
    assert world.answer(client, job, fail=fail) == (Applied(ignored=1) if fail else FINISHED)
    assert world.pull_all(client) == []
    client.heard = 7
    assert world.answer(client, job) == (FINISHED if fail else REPEATED)
    assert bodies(world, world.pull_all(client)) == [2]


def test_plain_answers_count_while_a_later_reply_is_on_its_way() -> None:
    """A client that pulls ahead: what it answers came with a reply that had left."""
    world, client = keyed(), Client()
    world.publish("a", "b", "a")
    first, second = world.pull(client, count=1), world.pull(client, count=1)
    for number, batch in enumerate((first, second), 1):
        assert batch is not None
        assert batch.jobs[0].delivery is not None
        batch.jobs[0].delivery.reply = client.carried = number
    client.heard = 1
    assert first is not None
    assert world.answer(client, first.jobs[0]) == FINISHED
    assert bodies(world, world.pull_all(client)) == [3]


@pytest.mark.parametrize("reloaded", [False, True])
def test_success_over_a_new_connection_of_the_present_holder_counts_at_once(reloaded: bool) -> None:
    """As its fail does: the old connection closed and the address is the same. After a reload, too."""
    world = keyed(timeout=100_000)
    slow, old, new = Client("10.0.0.9:1"), Client("10.0.0.1:1"), Client("10.0.0.1:2")
    world.publish("a", "a")
    [job] = world.pull_all(slow)
    world.advance(100)
    assert world.pull_all(old) == [job]
    if reloaded:
        world.group.reconfigure(world.config({**world.subscriptions[0], "pressureTraffic": True}))
        world.advance(31)
    old.closed = True
    assert world.answer(new, job) == FINISHED
    assert bodies(world, world.pull_all(new)) == [2]


def test_success_of_the_only_delivery_counts_at_once_after_a_reload() -> None:
    """Nobody but its holder was ever handed the message, so whoever says that it is done can speak of that alone."""
    world, client, other = keyed(timeout=100_000), Client(), Client("10.0.0.2:1")
    world.publish("a", "a")
    [job] = world.pull_all(client)
    world.group.reconfigure(world.config({**world.subscriptions[0], "pressureTraffic": True}))
    world.advance(31)
    assert world.answer(other, job) == FINISHED
    assert bodies(world, world.pull_all(other)) == [2]


def test_unanswered_deliveries_outlive_a_reload() -> None:
    """A delivery that timed out in one generation, and one whose timeout passed between two, may still be answered."""
    world, client = keyed(timeout=40_000, maxRetry=5), Client()
    world.publish("a", "a")
    [job] = world.pull_all(client)
    world.advance(40)
    assert world.pull_all(client) == [job]
    world.group.reconfigure(world.config({**world.subscriptions[0], "pressureTraffic": True}))
    world.advance(41)
    [again] = world.pull_all(client)
    assert again is not job
    assert world.answer(client, again) == FINISHED
    for _ in range(2):
        assert world.pull_all(client) == []
        assert world.answer(client, again) == REPEATED
    assert bodies(world, world.pull_all(client)) == [2]


def test_what_is_remembered_of_a_message_is_bounded_and_ends_with_it() -> None:
    """A message that times out for ever costs no more than its latest deliveries."""
    world, client = keyed(maxRetry=-1), Client()
    world.publish("a")
    for _ in range(EARLIER_MAX + 9):
        [job] = world.pull_all(client)
        world.advance(1)
    assert len(job.group_queue.unanswered[0]) == EARLIER_MAX
    world.answer(client, job)
    assert not job.group_queue.unanswered


def test_late_success_while_an_action_has_the_message_is_its_end(probe: type[Probe]) -> None:
    """It is answered as done, so it is not delivered again when the action lets it go on; its key waits till then."""
    world = scripted(probe, "Probe", "PullServer", orderKey="KEY")
    send(world, 1, "a")
    send(world, 2, "a")
    probe.script = {1: [Status.ASYNCHRONIZED]}
    world.kill()
    [job] = probe.kept
    assert isinstance(job, UpstreamJob)
    client = Client()
    assert world.group.apply("t", job.qid, [0], [], client) == FINISHED
    assert job.state is JobState.HELD
    assert world.pull_all(client) == []
    job.resume()
    assert [each.offset for each in world.pull_all(client)] == [1]
    job.resume()
    assert world.pull_all(client) == []


def test_success_of_what_was_out_before_a_reload_ends_its_adoption() -> None:
    """Also where the next generation has not come to it again: nothing is left that counts as out."""
    world, client = keyed(timeout=100_000, concurrency=1), Client()
    world.publish("a", "b")
    [first] = world.pull_all(client)
    world.group.reconfigure(world.config({**world.subscriptions[0], "concurrency": 9}))
    [second] = world.pull_all(client)
    config = {**world.subscriptions[0], "concurrency": 1, "pressureTraffic": True}
    world.group.reconfigure(world.config(config))
    world.advance(31)
    group_queue = world.group_queue()
    assert [job.state for job in group_queue.live.values()] == [JobState.OUT, JobState.READY]
    assert group_queue.in_flight == 2
    assert world.group.apply("t", f"{QID}0", [second.offset], [], client) == FINISHED
    assert not group_queue.adopted
    assert group_queue.in_flight == 1
    assert world.answer(client, first) == FINISHED
    assert group_queue.in_flight == 0


@pytest.mark.parametrize("end", ["answer", "timeout"])
def test_late_success_of_what_waits_for_its_turn_after_a_reload_keeps_its_key(end: str) -> None:
    """A client still has the message from before the reload: the next of its key waits for that one."""
    world = keyed(timeout=100_000, concurrency=9)
    slow, holder, other = Client("10.0.0.7:1"), Client("10.0.0.8:1"), Client("10.0.0.9:1")
    world.publish("b", "a", "a")
    first, job = world.pull_all(slow)
    world.advance(100)
    assert world.pull_all(holder) == [first, job]
    world.group.reconfigure(world.config({**world.subscriptions[0], "concurrency": 1, "pressureTraffic": True}))
    world.advance(31)
    group_queue = world.group_queue()
    assert group_queue.live[job.offset].state is JobState.READY
    assert world.answer(slow, job) == FINISHED
    assert world.answer(holder, first) == FINISHED
    assert world.pull_all(other) == []
    assert group_queue.live[job.offset].state is JobState.HELD
    if end == "answer":
        assert world.answer(holder, job) == REPEATED
    else:
        world.advance(70)
    assert bodies(world, world.pull_all(other)) == [3]
    assert not group_queue.apart
    assert not group_queue.adopted


def say(
    world: World, client: Client, job: UpstreamJob, deliveries: dict[int, int], *, fail: bool = False, why: bytes = b""
) -> Applied:
    """Answer as a client that names deliveries."""
    success, failed = ([], [job.offset]) if fail else ([job.offset], [])
    applied = world.group.apply(job.topic, job.qid, success, failed, client, deliveries, {job.offset: why})
    world.turn_end()
    return applied


def number_of(job: UpstreamJob) -> int:
    """Return the number of a message's present delivery."""
    assert job.delivery is not None
    return job.delivery.number


def test_only_what_may_have_been_delivered_before_has_a_number() -> None:
    """First deliveries have none; each later one has its own, over a restart too."""
    world, client = keyed(), Client()
    world.publish("a", "b")
    first, second = world.pull_all(client)
    assert [number_of(first), number_of(second)] == [0, 0]
    world.answer(client, second)
    world.advance(1)
    [first] = world.pull_all(client)
    numbers = {number_of(first)}
    world.advance(1)
    [first] = world.pull_all(client)
    numbers.add(number_of(first))
    for _ in range(2):
        # Within one millisecond, as after a clock that was set back.
        world.kill()
        [first] = world.pull_all(client)
        numbers.add(number_of(first))
    assert len(numbers) == 4
    assert all(0 < number < 1 << 62 for number in numbers)
    world.publish("c")
    assert [number_of(job) for job in world.pull_all(client)] == [0]


def test_client_that_names_deliveries_is_taken_at_its_word() -> None:
    """The first answer of the present delivery counts at once; one of the earlier delivery never does."""
    world, client, other = keyed(retryIntervals=[0, 0]), Client(), Client("10.0.0.2:1")
    job = delivered_twice(world, client)
    assert say(world, client, job, {}, fail=True) == Applied(ignored=1)
    assert say(world, client, job, {}) == FINISHED
    assert world.pull_all(other) == []
    assert say(world, client, job, {0: number_of(job) + 1}) == REPEATED
    assert world.pull_all(other) == []
    assert say(world, client, job, {0: number_of(job)}) == REPEATED
    [job] = world.pull_all(other)
    assert world.body(job) == 2
    world.advance(1)
    assert world.pull_all(other) == [job]
    number = number_of(job)
    assert say(world, client, job, {job.offset: number}, fail=True) == Applied(failed=1), "over any connection"
    world.advance(0.1)
    assert world.pull_all(other) == [job]
    assert say(world, other, job, {job.offset: number}, fail=True) == Applied(ignored=1)
    other.carried = 9
    assert say(world, other, job, {job.offset: number_of(job)}) == FINISHED, "whatever else is on its way"
    assert not job.group_queue.unanswered


def test_answer_from_before_a_restart_is_told_from_the_present_one() -> None:
    """Also where the first delivery had no number: the present one has."""
    world, client = keyed(), Client()
    world.publish("a", "a")
    world.pull_all(client)
    world.kill()
    [job] = world.pull_all(client)
    assert say(world, client, job, {}) == FINISHED
    assert world.pull_all(client) == []
    assert say(world, client, job, {0: number_of(job)}) == REPEATED
    assert bodies(world, world.pull_all(client)) == [2]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (b"ValueError: no such account", ": ValueError: no such account"),
        (b" two\nlines\x1b[31m\x00 and \xff ", ": two lines [31m and \N{REPLACEMENT CHARACTER}"),
        (b"x" * 2_000, ": " + "x" * 299 + "\N{HORIZONTAL ELLIPSIS}"),
        (b" \n", ""),
    ],
)
def test_reason_of_a_client_stands_in_the_dead_letter_in_one_line(said: bytes, kept: str) -> None:
    """With the address that it came from; whatever bytes are sent."""
    world, client = keyed(retryIntervals=[]), Client()
    world.publish("a")
    [job] = world.pull_all(client)
    assert say(world, client, job, {}, fail=True, why=said) == Applied(failed=1)
    [letter] = world.dead_letters()
    assert letter["DLQ_REASON"] == "failed 1 times: failed by 10.0.0.1:5000" + kept
