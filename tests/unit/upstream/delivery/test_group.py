"""Consumer group: deliveries, answers, timeouts, order, limits, drain."""

from __future__ import annotations

import pytest

from tests.insides import place_of
from tests.unit.upstream_world import QID, Client, World
from upstream.delivery.results import Applied
from upstream.delivery.subscription import READ_AHEAD_JOBS, READ_JOBS
from upstream.progress.progress import ProgressFailed


def keyed(**settings: object) -> World:
    """Make a group with order by message key on one queue."""
    return World({"topic": "t", "orderKey": "KEY", "concurrency": 20_000, **settings}, queues=1)


def test_ack_finishes_and_releases_the_key() -> None:
    """The next message of a key comes after the ack of the one before, and not earlier."""
    world = keyed()
    client = Client()
    world.publish("a", "a", "b")
    first, other = world.pull_all(client)
    assert [world.body(first), world.body(other)] == [1, 3]
    assert world.answer(client, first) == Applied(finished=1)
    assert [world.body(job) for job in world.pull_all(client)] == [2]
    assert world.count("pyddmq_finished_messages_total", "g", "t") == 1


def test_fail_is_retried_in_place_and_then_dead_lettered() -> None:
    """A failed message comes after each of its retryIntervals, before any later one of its key; then the DLQ (W57)."""
    world = keyed(retryIntervals=[100, 200])
    client = Client()
    world.publish("a", "a")
    for wait in (0.1, 0.2):
        [job] = world.pull_all(client)
        assert world.body(job) == 1
        assert world.answer(client, job, fail=True) == Applied(failed=1)
        world.advance(wait - 0.01)
        assert world.pull_all(client) == []
        world.advance(0.01)
    [job] = world.pull_all(client)
    world.answer(client, job, fail=True)
    [letter] = world.dead_letters()
    assert letter["body"] == "1"
    assert letter["DLQ_ATTEMPTS"] == "3"
    assert "failed 3 times" in letter["DLQ_REASON"]
    assert [world.body(each) for each in world.pull_all(client)] == [2]
    assert world.count("pyddmq_failed_attempts_total", "g", "t") == 3
    assert world.count("pyddmq_dead_letters_total", "g", "t", "fails") == 1


def test_unanswered_delivery_comes_again_and_is_dead_lettered_after_max_retry() -> None:
    """1 + maxRetry deliveries by timeout, then the DLQ and never a silent drop (R43, W14)."""
    world = keyed(timeout=1000, maxRetry=2)
    client = Client()
    world.publish("a", "a")
    for _ in range(3):
        assert [world.body(job) for job in world.pull_all(client)] == [1]
        world.advance(0.9)
        assert world.pull_all(client) == []
        world.advance(0.1)
    assert [letter["body"] for letter in world.dead_letters()] == ["1"]
    assert [world.body(job) for job in world.pull_all(client)] == [2]
    assert world.count("pyddmq_timeout_attempts_total", "g", "t") == 3
    assert world.count("pyddmq_dead_letters_total", "g", "t", "timeouts") == 1


def test_max_retry_of_zero_leaves_the_retries_of_fails_alone() -> None:
    """A group that has nothing tried again after a timeout still has its fails retried (D17, W19)."""
    world = keyed(timeout=1000, maxRetry=0, retryIntervals=[100])
    client = Client()
    world.publish("a", "b")
    failed, silent = world.pull_all(client)
    world.answer(client, failed, fail=True)
    world.advance(0.1)
    [again] = world.pull_all(client)
    assert again is failed
    assert world.answer(client, again) == Applied(finished=1)
    world.advance(1)
    assert [letter["body"] for letter in world.dead_letters()] == [str(world.body(silent))]


def test_unkeyed_messages_that_come_back_go_to_the_front_by_offset() -> None:
    """Without a key retries and timeouts stand before what was never delivered, in the order of their offsets."""
    world = World({"topic": "t", "maxPullBatchSize": 2}, queues=1)
    client = Client()
    world.publish(*[None] * 6)
    assert world.pull(client) is not None
    assert world.pull(client) is not None
    world.advance(5)
    assert [job.offset for job in world.pull_all(client)] == [0, 1, 2, 3, 4, 5]


def test_one_key_that_never_answers_leaves_all_others_to_finish() -> None:
    """10,000 messages of other keys in the same queue finish while one key never answers (D15)."""
    world = keyed(maxRetry=-1, concurrency=64)
    client, silent = Client(), Client()
    world.publish("stuck")
    assert world.pull(silent) is not None
    keys = [f"key-{number % 500}" for number in range(10_000)]
    for start in range(0, 10_000, 500):
        world.stage(*keys[start : start + 500], "stuck")
    world.turn_end()
    finished = 0
    while (batch := world.group.pull(None, 32, client)) is not None:
        offsets = [job.offset for job in batch.jobs]
        finished += world.group.apply("t", batch.qid, offsets, [], client).finished
        world.scheduler.run_turn()
    world.turn_end()
    assert finished == 10_000
    [stuck] = world.group.stats().topics[0].stuck_keys
    assert (stuck.key, stuck.offset, stuck.waiting, stuck.holder) == ("stuck", 0, 20, silent.address)


@pytest.mark.parametrize("order_key", [None, "KEY"])
def test_backlog_is_read_no_further_than_pulls_need(order_key: str | None) -> None:
    """However far a group is behind, a few hundred jobs are in memory; pulls without an ack get all the others too."""
    world = World({"topic": "t", "orderKey": order_key, "concurrency": 100_000}, queues=1)
    for start in range(0, 20_000, 1000):
        world.stage(*[f"key-{number % 1500}" for number in range(start, start + 1000)])
    world.turn_end()
    world.scheduler.run_until_idle()
    [group_queue] = (group_queues["c_b_0"] for group_queues in world.group.queues_by_topic.values())
    assert len(group_queue.live) <= 2 * READ_AHEAD_JOBS + READ_JOBS
    client, offsets = Client(), list[int]()
    while (batch := world.group.pull(None, 32, client)) is not None:
        offsets += [job.offset for job in batch.jobs]
    assert sorted(offsets) == list(range(1500 if order_key else 20_000))


def test_waiting_jobs_at_their_cap_stop_the_reading_and_are_named() -> None:
    """At the cap of waiting jobs reading stops, says so once, and goes on when the key does (D15)."""
    world = World({"topic": "t", "orderKey": "KEY"}, queues=1, waiting_max=10)
    client = Client()
    world.publish("a")
    job = world.pull_all(client)[0]
    for _ in range(3):
        world.publish(*["a"] * 300)
    world.scheduler.run_until_idle()
    stats = world.group.stats().topics[0]
    assert stats.reading_stopped
    assert stats.waiting <= 10 + 300
    assert stats.stuck_keys[0].key == "a"
    assert world.count("pyddmq_reading_stopped_total", "g", "t") == 1
    done = 0
    while job:
        world.answer(client, job)
        done += 1
        world.scheduler.run_until_idle()
        jobs = world.pull_all(client)
        assert len(jobs) <= 1
        if not jobs:
            break
        job = jobs[0]
    assert done == 901


def test_success_from_another_connection_of_a_single_delivery_releases_at_once() -> None:
    """Delivered once, by this process: a success over a new connection can only be of that delivery."""
    world = keyed()
    first, second = Client(), Client("10.0.0.2:1")
    world.publish("a", "a")
    [job] = world.pull_all(first)
    assert world.answer(second, job) == Applied(finished=1)
    assert [world.body(each) for each in world.pull_all(second)] == [2]
    assert world.count("pyddmq_late_successes_total", "g", "t") == 1


def test_late_success_while_a_newer_delivery_is_out_holds_the_key() -> None:
    """The offset is finished at once, but the next of the key waits for the present holder's answer (D12, W3)."""
    world = keyed(timeout=1000)
    slow, present = Client(), Client("10.0.0.2:1")
    world.publish("a", "a")
    [job] = world.pull_all(slow)
    world.advance(1)
    assert world.pull_all(present) == [job]
    assert world.answer(slow, job) == Applied(finished=1)
    assert job.group_queue.tracker.watermark == 1
    assert world.pull_all(slow) == []
    assert world.answer(slow, job) == Applied(repeated=1)
    assert world.pull_all(slow) == []
    assert world.answer(present, job) == Applied(repeated=1)
    assert [world.body(each) for each in world.pull_all(slow)] == [2]


@pytest.mark.parametrize("how", ["timeout", "fail", "give_back"])
def test_held_key_goes_on_however_its_holder_ends(how: str) -> None:
    """A held key is released by the holder's timeout, by its fail, and by a reply that never left."""
    world = keyed(timeout=1000)
    slow, present = Client(), Client("10.0.0.2:1")
    world.publish("a", "a")
    [job] = world.pull_all(slow)
    world.advance(1)
    batch = world.pull(present)
    assert batch is not None
    world.answer(slow, job)
    if how == "timeout":
        world.advance(1)
    elif how == "fail":
        assert world.answer(present, job, fail=True) == Applied(ignored=1)
    else:
        world.group.give_back(batch, present)
    assert [world.body(each) for each in world.pull_all(slow)] == [2]
    assert world.dead_letters() == []


def test_late_success_of_a_waiting_retry_or_buffered_job_finishes_it() -> None:
    """A success counts while nobody has the message; it is not delivered again."""
    world = keyed(timeout=1000, retryIntervals=[500])
    client = Client()
    world.publish("a", "b")
    one, two = world.pull_all(client)
    world.answer(client, one, fail=True)
    world.advance(0.1)
    assert world.answer(client, one) == Applied(finished=1)
    world.advance(0.9)
    assert world.answer(client, two) == Applied(finished=1)
    world.advance(5)
    assert world.pull_all(client) == []
    assert world.group.stats().buffered_bytes == 0
    assert world.count("pyddmq_late_successes_total", "g", "t") == 2


def test_fail_counts_only_for_the_present_delivery() -> None:
    """A fail of an earlier delivery, from another connection, changes nothing and is counted (W3)."""
    world = keyed(timeout=1000)
    slow, present = Client(), Client("10.0.0.2:1")
    world.publish("a")
    [job] = world.pull_all(slow)
    world.advance(1)
    world.pull_all(present)
    assert world.answer(slow, job, fail=True) == Applied(ignored=1)
    assert world.count("pyddmq_stale_results_total", "g", "t", "stale_fail") == 1
    assert world.answer(present, job, fail=True) == Applied(failed=1)


def test_fail_resent_over_a_new_connection_of_the_same_client_counts() -> None:
    """SDKs send a result again after a reconnect (S2): it counts if the holder closed and the address is equal."""
    world = keyed()
    old, new, other = Client("10.0.0.1:1"), Client("10.0.0.1:2"), Client("10.0.0.9:2")
    world.publish("a")
    [job] = world.pull_all(old)
    assert world.answer(new, job, fail=True).ignored == 1
    old.closed = True
    assert world.answer(other, job, fail=True).ignored == 1
    assert world.answer(new, job, fail=True).failed == 1


def test_results_for_what_was_never_delivered_are_counted_by_reason() -> None:
    """Unknown queue, topic and offset, a message never handed out, a repeated ack: told apart (W2, W46)."""
    world = World({"topic": "t", "orderKey": "KEY"}, queues=1)
    client = Client()
    world.publish("a", "a")
    world.pull_all(client)
    apply = world.group.apply
    assert apply("t", f"{QID}7", [0], [1], client) == Applied(ignored=2)
    assert apply("nope", f"{QID}0", [0], [], client) == Applied(ignored=1)
    assert apply("t", f"{QID}0", [-5, 2, 10**15], [-5, 99], client) == Applied(ignored=5)
    assert apply("t", f"{QID}0", [1], [], client) == Applied(ignored=1)
    assert apply("t", f"{QID}0", [0, 0], [0], client) == Applied(finished=1, repeated=1, ignored=1)
    assert apply("t", f"{QID}0", [0], [], client).counted
    assert not apply("t", f"{QID}0", [77], [], client).counted
    assert apply("t", f"{QID}0", [], [], client).counted
    assert world.count("pyddmq_unknown_queue_results_total", "g") == 3
    stale = {
        reason: world.count("pyddmq_stale_results_total", "g", "t", reason)
        for reason in ("unknown_offset", "never_delivered", "already_finished")
    }
    assert stale == {"unknown_offset": 6, "never_delivered": 1, "already_finished": 1}


def test_given_back_reply_comes_at_once_and_burns_no_retry() -> None:
    """A reply that never left the node is no delivery (W9); a second give-back of it changes nothing."""
    world = World({"topic": "t", "maxRetry": 0, "timeout": 1000}, queues=1)
    client = Client()
    world.publish(None, None)
    for _ in range(5):
        batch = world.pull(client)
        assert batch is not None
        assert [job.offset for job in batch.jobs] == [0, 1]
        world.group.give_back(batch, client)
        world.group.give_back(batch, client)
    assert [job.offset for job in world.pull_all(client)] == [0, 1]
    assert world.dead_letters() == []


def test_restart_brings_back_only_what_was_not_acked_and_keeps_retries_waiting() -> None:
    """After a kill: unacked at once, retries after the rest of their wait with their counts, acked never (D12)."""
    world = keyed(retryIntervals=[1000, 1000], timeout=60_000)
    client = Client()
    world.publish("a", "b", "c", "d")
    jobs = world.pull_all(client)
    world.answer(client, jobs[1])
    world.answer(client, jobs[2], fail=True)
    world.advance(0.4)
    world.kill()
    assert [world.body(job) for job in world.pull_all(client)] == [1, 4]
    world.advance(0.5)
    assert world.pull_all(client) == []
    world.advance(0.1)
    [job] = world.pull_all(client)
    assert (world.body(job), job.attempts) == (3, 1)
    world.answer(client, job, fail=True)
    world.advance(1)
    [job] = world.pull_all(client)
    world.answer(client, job, fail=True)
    assert [letter["DLQ_ATTEMPTS"] for letter in world.dead_letters()] == ["3"]


def test_success_of_a_delivery_before_the_restart_counts_everywhere() -> None:
    """After a kill a success of the old delivery counts: read again or not, behind its key or already out (D12)."""
    world = keyed(concurrency=2, timeout=1000)
    client = Client("10.0.0.5:1")
    world.publish("a", "a", "b", "c")
    world.kill()
    apply = world.group.apply
    # Offset 0 is buffered, 1 waits behind its key, 3 was not read for want of permits or stands ready.
    assert apply("t", f"{QID}0", [1, 3], [], client) == Applied(finished=2)
    jobs = world.pull_all(client)
    assert [job.offset for job in jobs] == [0, 2]
    assert world.answer(client, jobs[0]) == Applied(finished=1)
    assert world.answer(Client("10.0.0.6:1"), jobs[1]) == Applied(finished=1)
    assert world.pull_all(client) == []
    assert jobs[0].group_queue.tracker.watermark == 4
    world.publish("b")
    assert world.pull_all(client) == [], "the present holder of b has not answered yet"
    world.advance(1)
    assert [world.body(job) for job in world.pull_all(client)] == [5]


def test_concurrency_counts_only_jobs_past_the_gate() -> None:
    """Two permits: two jobs out, however many wait behind their keys (R67, D15); each comes back exactly once."""
    world = keyed(concurrency=2)
    client = Client()
    world.publish(*["a"] * 50, "b", "c", "d")
    jobs = world.pull_all(client)
    assert [world.body(job) for job in jobs] == [1, 51]
    for _ in range(100):
        if not jobs:
            break
        assert len(jobs) <= 2
        world.answer(client, jobs.pop(0))
        jobs += world.pull_all(client)
    assert world.group.stats().topics[0].queues[0].lag == 0
    subscription = place_of(world.group).subscription
    assert subscription is not None
    assert subscription.permits.used == 0


def test_rate_limit_starts_no_more_than_max_tps() -> None:
    """MaxTps bounds what is started per second; time brings the rest without any other event (W42)."""
    world = World({"topic": "t", "maxTps": 10}, queues=1)
    client = Client()
    world.publish(*[None] * 35)
    assert len(world.pull_all(client)) == 10
    world.advance(0.5)
    assert len(world.pull_all(client)) == 5
    world.advance(1.0)
    assert len(world.pull_all(client)) == 10
    world.advance(1.0)
    assert len(world.pull_all(client)) == 10


def test_consume_lag_bounds_reading_from_the_first_message_on() -> None:
    """MaxConsumeLag messages are read ahead of the committed offset, also while nothing is finished yet (W32)."""
    world = World({"topic": "t", "maxConsumeLag": 5}, queues=1)
    client = Client()
    world.publish(*[None] * 20)
    jobs = world.pull_all(client)
    assert [job.offset for job in jobs] == [0, 1, 2, 3, 4]
    for job in reversed(jobs[1:]):
        world.answer(client, job)
    assert world.pull_all(client) == []
    world.answer(client, jobs[0])
    assert [job.offset for job in world.pull_all(client)] == [5, 6, 7, 8, 9]


def test_refused_acks_change_nothing_while_the_journal_cannot_be_written() -> None:
    """With the ack journal failed no ack counts and keys wait (D5)."""
    world = keyed()
    client = Client()
    world.publish("a", "a", "b")
    job, other = world.pull_all(client)
    world.sim.fail("write", path_part="acks")
    world.group.apply("t", other.qid, [other.offset], [], client)
    with pytest.raises(ProgressFailed):
        world.progress.flush()
    assert world.group.apply("t", job.qid, [0], [], client) == Applied(ignored=1)
    assert world.group.pull(None, None, client) is None


def test_drain_hands_out_nothing_and_ends_when_the_last_is_answered() -> None:
    """A drain waits for what is out; its answers count, and no successor follows."""
    world = keyed()
    client = Client()
    world.publish("a", "a", "b")
    jobs = world.pull_all(client)
    world.group.begin_drain()
    drained_at_once = world.group.drained
    assert not drained_at_once
    assert world.answer(client, jobs[0]) == Applied(finished=1)
    assert world.pull_all(client) == []
    assert world.answer(client, jobs[1], fail=True) == Applied(failed=1)
    assert world.group.drained
    world.kill()
    world.advance(1)
    assert sorted(world.body(job) for job in world.pull_all(client)) == [2, 3]


def test_stats_count_lag_and_age() -> None:
    """Lag is produced minus committed, its seconds the age of the oldest unfinished message (R72)."""
    world = World(queues=1)
    client = Client()
    world.publish(None)
    world.advance(2)
    world.publish(None)
    world.advance(1)
    [queue] = world.group.stats().topics[0].queues
    assert (queue.committed, queue.produced, queue.lag, queue.lag_seconds) == (0, 2, 2, 3.0)
    world.answer(client, world.pull_all(client)[0])
    [queue] = world.group.stats().topics[0].queues
    assert (queue.lag, queue.lag_seconds) == (1, 1.0)


def test_new_group_starts_where_the_configuration_says() -> None:
    """First, last and timestamp; fixed when first seen (D6)."""
    world = World({"topic": "t"}, queues=1)
    world.publish(None)
    world.advance(10)
    moment = world.clock.wall_ms()
    world.publish(None, None)
    client = Client()
    for name, settings, expected in (
        ("g1", {}, [1, 2, 3]),
        ("g2", {"consumeFromWhere": "last"}, []),
        ("g3", {"consumeFromWhere": "timestamp", "consumeTimestamp": moment}, [2, 3]),
    ):
        world.group_name = name
        group = world.make_group(world.config({"topic": "t", **settings}))
        group.start()
        batch = group.pull(None, None, client)
        assert [world.body(job) for job in (batch.jobs if batch else [])] == expected
        group.stop()


@pytest.mark.parametrize("restarted", [False, True])
def test_queue_that_a_topic_gets_later_is_read_from_its_first_message(restarted: bool) -> None:
    """Wherever the group began: what has it look at the queue is in it, and what came while it was stopped."""
    world = World({"topic": "t", "consumeFromWhere": "last"}, queues=2)
    world.publish("a")
    world.turn_end()
    if restarted:
        world.group.stop()
    world.store.create_topic("t", 4)
    world.publish("a", "b", queue=3)
    if restarted:
        world.group = world.make_group(world.config({"topic": "t", "consumeFromWhere": "last"}))
        world.group.start()
    client = Client()
    assert [world.body(job) for job in world.pull_all(client)] == [1, 2, 3]
    world.group_name = "new"
    group = world.make_group(world.config({"topic": "t", "consumeFromWhere": "last"}))
    group.start()
    assert group.pull(None, None, client) is None


def test_queues_added_to_a_running_topic_are_read() -> None:
    """A topic that grows is read in full without a restart (D14)."""
    world = World({"topic": "t", "orderKey": "KEY"}, queues=1)
    world.publish("a")
    world.store.create_topic("t", 3)
    world.publish("a", "b", queue=2)
    client = Client()
    jobs = world.pull_all(client)
    assert [world.body(job) for job in jobs] == [1, 3]
    world.answer(client, jobs[0])
    assert [world.body(job) for job in world.pull_all(client)] == [2]
