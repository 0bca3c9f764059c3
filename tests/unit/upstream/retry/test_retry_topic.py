"""The retry topic of a group: what goes there, how it comes back, and what is retried in place instead (D37)."""

from __future__ import annotations

from random import Random

import pytest

from broker.retry.puts import FailureCounts, read_counts
from proxy.operate.live_node import stuck_messages
from tests.unit.retry_world import USED, RetryWorld
from tests.unit.upstream.delivery.test_expiry import Aging as ExpiryWorld
from tests.unit.upstream_world import ROOT, Client
from upstream.job import GroupQueue
from upstream.operate import heads
from upstream.operate.heads import HeadRefused
from upstream.state import JobState

RETRIES = "%RETRY%g"


def test_failed_message_comes_again_from_the_retry_topic() -> None:
    """It is finished where it was, waits in a timer to the millisecond, and comes as a message of its own topic."""
    world = RetryWorld()
    client = Client()
    world.publish("a", tag="red", properties=[("color", "blue")], queue=0)
    job = world.failed(client)
    assert (job.group_queue.tracker.watermark, world.group.live_jobs, world.waiting) == (1, 0, 1)
    world.advance(0.099)
    assert world.pull(client) is None
    world.advance(0.001)
    batch = world.pull(client, "t")
    assert batch is not None
    assert (batch.topic, batch.qid) == ("t", "c_b_retry_0")
    [again] = batch.jobs
    assert (again.message.key, again.message.tag, dict(again.message.properties)) == ("a", "red", {"color": "blue"})
    assert (world.body(again), again.attempts) == (1, 1)
    assert world.answer(client, again).finished == 1
    assert (world.pending, world.generation(job).permits.used) == (0, 0)
    assert world.count("pyddmq_retries_sent_back_total", "g") == 1


@pytest.mark.parametrize("seed", range(12))
def test_power_loss_takes_no_message_that_was_sent_back(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `flush: async`, too: its retry record is there, or it is unfinished."""
    monkeypatch.setattr(RetryWorld, "flush", "async")
    world = RetryWorld()
    client = Client()
    world.publish("a", "b", queue=0)
    world.store.make_durable()
    for job in world.pull_all(client):
        world.answer(client, job, fail=True)
    world.sim.crash(Random(seed))
    world.open()
    world.advance(1.0)
    assert {world.body(job) for job in world.pull_all(client)} == {1, 2}


def test_last_failure_is_a_dead_letter_with_the_original_place() -> None:
    """Attempts go on counting from record to record; the dead letter names topic, queue and offset of the message."""
    world = RetryWorld()
    client = Client()
    world.publish("x", "y", queue=2)
    for each in world.pull_all(client):
        world.answer(client, each)
    world.publish("b", queue=2)
    job = world.failed(client)
    world.advance(0.1)
    world.failed(client)
    world.advance(1.9)
    assert world.pull(client) is None
    world.advance(0.1)
    world.failed(client)
    [letter] = world.dead_letters()
    assert letter["DLQ_REASON"] == "failed 3 times: failed by 10.0.0.1:5000"
    assert (letter["DLQ_ORIGIN_TOPIC"], letter["DLQ_ORIGIN_QUEUE"], letter["DLQ_ORIGIN_OFFSET"]) == ("t", "2", "2")
    assert (letter["DLQ_ATTEMPTS"], letter["DLQ_RETRY_OFFSET"], job.offset) == ("3", "1", 2)
    assert "__PYDDMQ_RETRY_COUNTS" not in letter
    assert world.pending == 0


def test_same_offset_of_topic_and_retry_topic_are_two_messages() -> None:
    """Both out at once, an answer ends the one that it names and not the other (W31)."""
    world = RetryWorld()
    client = Client()
    world.publish("a", queue=0)
    world.failed(client)
    world.advance(0.1)
    retried = world.pull(client)
    world.store.create_topic("u", 1)
    world.group.reconfigure(world.config({"topic": "t", **USED}, {"topic": "u", **USED}))
    world.publish("b", topic="u", queue=0)
    fresh = world.pull(client, "u")
    assert retried is not None
    assert fresh is not None
    assert [job.offset for job in (*retried.jobs, *fresh.jobs)] == [0, 0]
    assert (retried.qid, fresh.qid) == ("c_b_retry_0", "c_b_0")
    assert world.group.apply("u", "c_b_0", [0], [], client).finished == 1
    assert retried.jobs[0].state is JobState.OUT
    assert world.answer(client, retried.jobs[0]).finished == 1


def test_other_messages_do_not_wait_and_the_committed_offset_moves_on() -> None:
    """A thousand failed messages hold no permit and no memory, and the group reads on."""
    world = RetryWorld(concurrency=4, retryIntervals=[60_000])
    client = Client()
    world.publish(*["k"] * 1000)
    for _ in range(1000):
        world.failed(client)
    assert world.group.live_jobs == 0
    assert (
        sum(group_queue.tracker.unfinished(group_queue.queue.max_offset) for group_queue in world.group.group_queues())
        == 0
    )
    world.publish("new")
    assert [world.body(each) for each in world.pull_all(client)] == [1001]
    world.advance(60)
    assert world.pending == 1000


def test_subscriptions_of_a_group_share_the_retry_topic() -> None:
    """Each gets what was sent to its topic; a tag that it wants is not asked for again, nor its pressure flag."""
    world = RetryWorld("t", "u", tags=["red"])
    client = Client()
    world.publish("a", topic="t", tag="red")
    world.publish("b", topic="u", tag="red")
    for topic in ("t", "u"):
        [job] = world.pull_all(client, topic)
        world.answer(client, job, fail=True)
    world.advance(0.1)
    found = {topic: [world.body(each) for each in world.pull_all(client, topic)] for topic in ("u", "t")}
    assert found == {"t": [1], "u": [2]}
    assert world.pending == 2


def test_timeout_is_retried_in_place_and_so_is_what_follows_it() -> None:
    """Who had it first may still answer, and that success must count (D12): it never leaves its queue."""
    world = RetryWorld(timeout=1000)
    first, second = Client(), Client("10.0.0.2:5000")
    world.publish("a")
    [job] = world.pull_all(first)
    world.advance(1)
    [again] = world.pull_all(second)
    assert again is job
    world.answer(second, again, fail=True)
    assert world.waiting == 0
    assert world.count("pyddmq_retries_kept_in_place_total", "g", "t") == 1
    assert world.answer(first, job).finished == 1
    world.advance(10)
    assert world.pull_all(second) == []


def test_message_that_may_have_been_delivered_before_a_restart_is_retried_in_place() -> None:
    """Its earlier holder may still answer; what comes after the restart goes to the retry topic."""
    world = RetryWorld()
    client = Client()
    world.publish("a", queue=0)
    [job] = world.pull_all(client)
    world.kill()
    assert [each.offset for each in world.pull_all(client)] == [0]
    group_queue = world.group_queue(0)
    world.group.apply("t", group_queue.qid, [], [0], client)
    world.turn_end()
    assert world.waiting == 0
    world.publish("b", queue=0)
    world.failed(client)
    assert (world.waiting, job.offset) == (1, 0)


def test_backlog_of_a_new_group_goes_to_the_retry_topic() -> None:
    """Nobody of the group was given anything before, so nobody else can answer for it."""
    world = RetryWorld()
    world.store.create_topic("v", 1)
    world.publish("a", topic="v")
    world.group.reconfigure(world.config({"topic": "v", **USED}))
    world.advance(1)
    world.failed(Client())
    assert world.waiting == 1


def test_full_disk_retries_in_place() -> None:
    """The store takes no record: counted, said, and the message comes again from its own queue when it is due."""
    world = RetryWorld()
    client = Client()
    world.publish("a", queue=0)
    world.fill_disk()
    job = world.failed(client)
    assert world.count("pyddmq_retries_refused_total", "g", "full") == 1
    world.advance(0.1)
    [again] = world.pull_all(client)
    assert (again, again.qid, again.attempts) == (job, "c_b_0", 1)
    world.sim.capacity_bytes = None
    world.answer(client, again, fail=True)
    world.advance(2)
    [last] = world.pull_all(client)
    assert (last.qid, last.attempts) == ("c_b_retry_0", 2)


@pytest.mark.parametrize("when", ["waiting", "delivered"])
def test_kill_before_the_journal_knows_doubles_nothing(when: str) -> None:
    """A durable retry record finishes what it replaces, also when the journal's entry is lost; once per record."""
    world = RetryWorld()
    client = Client()
    world.publish("a", queue=0)
    [job] = world.pull_all(client)
    world.group.apply("t", job.qid, [], [0], client)
    while world.store.pending:
        world.store.flush()
    world.kill()
    assert world.count("pyddmq_retries_recovered_total", "g") == 1
    if when == "delivered":
        world.advance(0.1)
        world.kill()
        assert world.count("pyddmq_retries_recovered_total", "g") == 0
    world.advance(0.1)
    [again] = world.pull_all(client)
    assert (again.qid, again.attempts) == ("c_b_retry_0", 1)
    world.group.apply("t", again.qid, [0], [], client)
    world.turn_end()
    world.kill()
    world.advance(10)
    assert world.pull_all(client) == []


def test_without_the_ack_journal_what_was_sent_back_comes_once() -> None:
    """Its record says what it replaces; above the committed offset nothing else does."""
    world = RetryWorld()
    client = Client()
    world.publish("a", "b", queue=0)
    jobs = world.pull_all(client)
    world.answer(client, jobs[1], fail=True)
    world.turn_end()
    world.progress.commit()
    for name in world.sim.list(f"{ROOT}/pyddmq/acks"):
        world.sim.remove(f"{ROOT}/pyddmq/acks/{name}")
    world.kill()
    world.advance(1)
    assert sorted((each.qid, world.body(each)) for each in world.pull_all(client)) == [("c_b_0", 1), ("c_b_retry_0", 2)]


def test_counts_of_both_kinds_go_with_the_message() -> None:
    """Errors walk their own schedule and limit, failures theirs (D17), over records and restarts."""
    assert read_counts(b"__PYDDMQ_RETRY_COUNTS\x011,2,3\x02", 6) == FailureCounts(1, 2, 3)
    assert read_counts(b"__PYDDMQ_RETRY_COUNTS\x011,2,3\x02", 8) == FailureCounts(3, 2, 3)
    assert read_counts(b"", 4) == FailureCounts(4, 0, 0)
    assert read_counts(b"__PYDDMQ_RETRY_COUNTS\x011,x\x02", 2) == FailureCounts(2, 0, 0)


def test_setting_that_is_taken_out_leaves_nothing_behind() -> None:
    """What pends is delivered still, and fails in place; a topic that is taken out and comes back finds its own."""
    world = RetryWorld("t", "u")
    client = Client()
    world.publish("a", topic="t")
    world.publish("b", topic="u")
    for topic in ("t", "u"):
        [job] = world.pull_all(client, topic)
        world.answer(client, job, fail=True)
    world.group.reconfigure(world.config({"topic": "t", "retryIntervals": [100, 2000]}))
    world.advance(1)
    [again] = world.pull_all(client)
    assert (again.qid, world.body(again)) == ("c_b_retry_0", 1)
    world.answer(client, again, fail=True)
    world.advance(2)
    [last] = world.pull_all(client)
    assert last is again
    world.answer(client, last)
    [stats] = [each for each in world.group.stats().topics if each.topic == RETRIES]
    assert [(each.qid, each.produced - each.committed) for each in stats.queues] == [("c_b_retry_0", 1)]
    world.group.reconfigure(world.config({"topic": "t"}, {"topic": "u", **USED}))
    world.advance(1)
    assert [world.body(each) for each in world.pull_all(client)] == [2]


def test_switching_it_on_takes_effect_with_the_next_generation() -> None:
    """What fails from then on leaves its queue; messages that were not yet handed out do so too."""
    world = RetryWorld(retryTopic=False)
    client = Client()
    world.publish("a", queue=0)
    world.failed(client)
    assert world.waiting == 0
    world.advance(1)
    [job] = world.pull_all(client)
    world.answer(client, job)
    world.group.reconfigure(world.config({"topic": "t", **USED}))
    world.advance(1)
    world.publish("b", queue=0)
    world.failed(client)
    assert world.waiting == 1


def test_late_success_while_the_record_is_written_is_not_taken() -> None:
    """The fail came first, and a record that may not be there yet is no reason to say that it is finished."""
    world = RetryWorld()
    client = Client()
    world.publish("a", queue=0)
    [job] = world.pull_all(client)
    world.group.apply("t", job.qid, [], [0], client)
    assert world.group.stats().topics[0].retrying == 0
    assert world.group.apply("t", job.qid, [0], [], client).ignored == 1
    world.turn_end()
    world.advance(0.1)
    assert len(world.pull_all(client)) == 1


class Aging(ExpiryWorld, RetryWorld):
    """One whose log files go by size."""


def test_retention_dead_letters_what_is_in_the_retry_topic() -> None:
    """It was tried: read, out or never handed out again, it goes to the dead letters before its file does (D29)."""
    world = Aging("t", "u", retryIntervals=[0])
    client = Client()
    for topic in ("t", "u"):
        world.publish("a", topic=topic)
    for job in world.pull_all(client):
        world.answer(client, job, fail=True)
    assert world.pending == 2
    world.pull(client, "t")
    world.fill(*[None] * 8, topic="t")
    world.expire(1)
    letters = world.dead_letters()
    assert [each["DLQ_ORIGIN_TOPIC"] for each in letters] == ["t", "u"]
    assert [(each["DLQ_RETRY_OFFSET"], each["DLQ_ATTEMPTS"]) for each in letters] == [("0", "1"), ("1", "1")]
    assert world.pending == 0


def test_operator_finds_a_message_that_is_being_sent_back_busy() -> None:
    """It is finished in a moment: nothing is done to it by hand meanwhile."""
    world = RetryWorld()
    client = Client()
    world.publish("a", queue=0)
    [job] = world.pull_all(client)
    world.group.apply("t", job.qid, [], [0], client)
    with pytest.raises(HeadRefused, match="being moved to the retry topic"):
        heads.skip(world.head(job), force=True, progress=world.progress)
    with pytest.raises(HeadRefused, match="being moved to the retry topic"):
        heads.retry_now(world.head(job), force=True, progress=world.progress, clock=world.clock)


def test_operator_names_a_message_in_the_retry_topic() -> None:
    """With that topic and its offset there, whichever subscription it belongs to; from its queue the way is told."""
    world = RetryWorld("t", "u")
    client = Client()
    for topic in ("t", "u"):
        world.publish("a", topic=topic, queue=0)
        world.failed(client)
    with pytest.raises(HeadRefused, match=r"timers list --topic '%RETRY%g'.*reschedule ID --at now"):
        heads.find_head(world.group, the(world, "t", 0), 0)
    world.advance(0.1)
    for topic, offset in (("t", 0), ("u", 1)):
        group_queue = the(world, RETRIES, offset)
        assert group_queue.line.topic == topic
        head = heads.find_head(world.group, group_queue, offset)
        assert heads.skip(head, force=True, progress=world.progress).changed
    assert world.pending == 0
    with pytest.raises(HeadRefused, match="has offsets 0 to 1"):
        heads.find_head(world.group, the(world, RETRIES, 9), 9)
    assert world.group.group_queue(RETRIES, 1) is None
    world.advance(5)
    assert world.pull_all(client) == []


def test_stuck_message_of_the_retry_topic_is_retried_at_once() -> None:
    """What is retried in place there stands in the list under the name that the change takes."""
    world = RetryWorld(timeout=100)
    client = Client()
    world.publish("a", queue=0)
    world.failed(client)
    world.advance(0.1)
    [job] = world.pull_all(client)
    world.advance(0.2)
    other = Client("10.0.0.2:1")
    [again] = world.pull_all(other)
    world.answer(other, again, fail=True)
    assert job is again
    stuck, _ = stuck_messages(world.group, clock=world.clock, count_max=9)
    [found] = [(each.topic, each.queue, each.offset) for each in stuck]
    assert found == (RETRIES, 0, 0)
    head = heads.find_head(world.group, the(world, RETRIES, 0), 0)
    assert heads.retry_now(head, force=False, progress=world.progress, clock=world.clock).changed
    world.turn_end()
    assert world.pull_all(client) == [job]


def the(world: RetryWorld, topic: str, offset: int) -> GroupQueue:
    """The group queue of queue 0 that has an offset."""
    group_queue = world.group.group_queue(topic, 0, offset)
    assert group_queue is not None
    return group_queue


def test_retry_topic_that_somebody_else_consumes_keeps_the_subscription_waiting() -> None:
    """Queue locks hold for the retry topic, too (D36); nothing of the group's own topic is held meanwhile."""
    world = RetryWorld()
    world.publish("a", queue=0)
    world.failed(Client())
    world.group.stop()
    places = [(RETRIES, 0)]
    assert world.store.queue_locks.lock_batch("g", "other", places) == set(places)
    world.group = world.make_group(world.config())
    world.group.start()
    assert world.group.stats().topics[0].state == "waiting"
    assert world.store.queue_locks.lock_batch("g", "other", [("t", 0)]) == {("t", 0)}
    world.store.queue_locks.unlock_batch("g", "other", {("t", 0), (RETRIES, 0)})
    world.advance(1)
    assert world.group.stats().topics[0].state == "running"
