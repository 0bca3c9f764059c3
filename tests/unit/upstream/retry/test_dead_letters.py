"""Dead letters: what they carry, when they count, and what happens when they cannot be written."""

from __future__ import annotations

import errno
from random import Random
from time import process_time
from typing import Any

import pytest

from broker.format.properties import PROPERTIES_BYTES_MAX, encode_properties
from broker.log.put import Put
from tests.unit.upstream_world import ROOT, Client, World
from upstream.embedded.broker import EmbeddedBroker
from upstream.embedded.retries import read_origin
from upstream.job import UpstreamJob
from upstream.progress.ack_writer import ProgressFailed
from upstream.state import JobState


def impatient(**settings: object) -> World:
    """Make an ordered group whose messages are dead-lettered at their first fail."""
    return World({"topic": "t", "orderKey": "KEY", "retryIntervals": [], **settings}, queues=1)


def assert_dead_letter_is_recovered(world: World, client: Client) -> None:
    """The second of three messages is not redelivered after two kills; its dead letter is recovered once."""
    for recovered in (1, 0):
        world.kill()
        assert [each.offset for each in world.pull_all(client)] == [0, 2]
        assert world.count("pyddmq_dead_letters_recovered_total", "g") == recovered
    assert len(world.dead_letters()) == 1


def test_dead_letter_carries_message_and_origin() -> None:
    """Key, tag, properties, body and UNIQ_KEY stay; origin, reason and attempts are added (D27)."""
    world = impatient()
    client = Client()
    world.publish("a", tag="red", properties=[("color", "blue")])
    [job] = world.pull_all(client)
    assert (job.message.key, job.message.tag, dict(job.message.properties)) == ("a", "red", {"color": "blue"})
    world.answer(client, job, fail=True)
    [letter] = world.dead_letters()
    assert (letter["KEYS"], letter["TAGS"], letter["color"], letter["body"]) == ("a", "red", "blue", "1")
    assert letter["DLQ_GROUP"] == "g"
    assert (letter["DLQ_ORIGIN_TOPIC"], letter["DLQ_ORIGIN_QUEUE"], letter["DLQ_ORIGIN_OFFSET"]) == ("t", "0", "0")
    assert letter["DLQ_ORIGIN_MESSAGE_ID"] == letter["UNIQ_KEY"]
    assert letter["DLQ_REASON"] == "failed 1 times: failed by 10.0.0.1:5000"
    assert (letter["DLQ_ACTION"], letter["DLQ_ATTEMPTS"]) == ("PullServer", "1")
    [(physical, size, _)] = world.store.topics["%DLQ%g"].queues[0].read(0, 1)
    origin = read_origin(world.store, world.store.read(physical, size))
    assert origin == ("g", "t", 0, 0, job.physical)


def test_key_waits_until_the_dead_letter_is_durable() -> None:
    """The next message of the key comes in the flush that makes the record durable, not before (D16)."""
    world = impatient()
    client = Client()
    world.publish("a", "a")
    [job] = world.pull_all(client)
    world.group.apply("t", job.qid, [], [0], client)
    assert world.group.pull(None, None, client) is None
    assert job.group_queue.tracker.watermark == 0
    world.turn_end()
    assert job.group_queue.tracker.watermark == 1
    assert [world.body(each) for each in world.pull_all(client)] == [2]


@pytest.mark.parametrize("seed", range(12))
def test_power_loss_takes_no_message_that_became_a_dead_letter(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `flush: async`, too: its dead letter is there, or it is unfinished."""
    monkeypatch.setattr(World, "flush", "async")
    world = impatient()
    client = Client()
    world.publish("a", "b")
    world.store.make_durable()
    for job in world.pull_all(client):
        world.answer(client, job, fail=True)
    world.sim.crash(Random(seed))
    world.open()
    left = {int(letter["DLQ_ORIGIN_OFFSET"]) for letter in world.dead_letters()}
    assert left | {job.offset for job in world.pull_all(client)} == {0, 1}


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_dead_letter_that_cannot_be_made_durable_finishes_nothing_that_a_power_loss_keeps(
    error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acks are refused from then on, also where the disk is full: a second sync would succeed without the record."""
    monkeypatch.setattr(World, "flush", "async")
    world = impatient()
    client = Client()
    world.publish("a")
    world.store.make_durable()
    [job] = world.pull_all(client)
    world.sim.fail("sync", error=error, path_part="/commitlog/")
    for _ in range(2):
        with pytest.raises(ProgressFailed):
            world.answer(client, job, fail=True)
    world.sim.crash(Random(1), modes=("none",))
    world.open()
    assert (len(world.dead_letters()), len(world.pull_all(client))) == (0, 1)


def test_without_the_ack_journal_nothing_is_dead_lettered_twice() -> None:
    """Dead letters above the committed offset say themselves what they took the place of."""
    world = impatient()
    client = Client()
    world.publish("a", "b", "c")
    jobs = world.pull_all(client)
    world.answer(client, jobs[1], fail=True)
    world.turn_end()
    world.progress.commit()
    assert len(world.dead_letters()) == 1
    for name in world.sim.list(f"{ROOT}/pyddmq/acks"):
        world.sim.remove(f"{ROOT}/pyddmq/acks/{name}")
    assert_dead_letter_is_recovered(world, client)


def test_without_journal_and_offsets_nothing_is_dead_lettered_twice() -> None:
    """What is known of a group is its dead letters: the rest comes again, they do not."""
    world = impatient()
    client = Client()
    world.publish("a", "b", "c")
    jobs = world.pull_all(client)
    world.answer(client, jobs[0])
    world.answer(client, jobs[1], fail=True)
    world.turn_end()
    world.progress.commit()
    for folder in ("pyddmq/acks", "config", "pyddmq"):
        for name in world.sim.list(f"{ROOT}/{folder}"):
            if folder.endswith("acks") or name.startswith("consumerOffset"):
                world.sim.remove(f"{ROOT}/{folder}/{name}")
    assert_dead_letter_is_recovered(world, client)


def test_refused_dead_letter_is_tried_again_and_the_key_waits() -> None:
    """With the disk full the job stays, counted and seen; with space free again it is settled (D5, D16)."""
    world = impatient()
    client = Client()
    world.publish("a", "a", "b")
    jobs = world.pull_all(client)
    world.fill_disk()
    world.answer(client, jobs[0], fail=True)
    assert world.count("pyddmq_dead_letters_refused_total", "g", "t") == 1
    stats = world.group.stats().topics[0]
    assert (stats.burying, stats.stuck_keys[0].state) == (1, "burying")
    world.advance(1.9)
    assert world.pull_all(client) == []
    world.sim.capacity_bytes = None
    world.advance(0.1)
    assert [letter["body"] for letter in world.dead_letters()] == ["1"]
    assert [world.body(each) for each in world.pull_all(client)] == [2]


def test_many_refused_dead_letters_leave_the_loop_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk few of them are tried at a time, and shown in no time; with space all are settled."""
    world = World({"topic": "t", "retryIntervals": [], "concurrency": 3000, "maxPullBatchSize": 1000}, queues=1)
    client = Client()
    world.publish(*[None] * 3000)
    jobs = world.pull_all(client)
    world.fill_disk()
    for job in jobs:
        world.answer(client, job, fail=True)
    tries: list[int] = []
    append = EmbeddedBroker.append_dead_letter

    def counted(broker: EmbeddedBroker, group: str, job: UpstreamJob, *more: Any) -> None:
        tries.append(job.offset)
        append(broker, group, job, *more)

    monkeypatch.setattr(EmbeddedBroker, "append_dead_letter", counted)
    world.advance(5)
    assert len(tries) == len(set(tries)) == 5, "each time another one"
    before = process_time()
    assert world.group.stats().topics[0].dead_letters_refused == 3000
    assert process_time() - before < 0.5
    world.sim.capacity_bytes = None
    world.advance(1)
    assert len(world.dead_letters()) == 3000
    assert world.group.stats().topics[0].burying == 0


def test_first_dead_letter_of_a_group_is_kept_on_a_full_disk() -> None:
    """Neither the topic's entry in its file nor a byte of log can be had: the reserve takes it, and a kill keeps it."""
    world = impatient()
    client = Client()
    world.publish("a", "a")
    [job] = world.pull_all(client)
    world.fill_disk(reserve=False)
    world.answer(client, job, fail=True)
    assert [letter["body"] for letter in world.dead_letters()] == ["1"]
    world.kill()
    assert [letter["body"] for letter in world.dead_letters()] == ["1"]
    assert [world.body(each) for each in world.pull_all(client)] == [2]
    world.sim.capacity_bytes = None
    world.kill()
    assert "%DLQ%g" in world.store.topics


def test_message_above_a_limit_of_today_is_dead_lettered_all_the_same() -> None:
    """The limit is for producers: what is in the log already, from before or by RocketMQ, blocks no key."""
    world = impatient()
    world.publish("a", body=b"x" * 5000)
    world.publish("a", body=b"y")
    world.message_bytes_max = 1024
    world.kill()
    client = Client()
    [job] = world.pull_all(client)
    world.answer(client, job, fail=True)
    world.advance(1)
    assert len(world.read_all("%DLQ%g")) == 1
    assert [each.offset for each in world.pull_all(client)] == [1]


def test_success_calls_a_refused_dead_letter_off() -> None:
    """A late success of a message whose dead letter was refused so far finishes it without a dead letter."""
    world = impatient()
    client = Client()
    world.publish("a", "a")
    [job] = world.pull_all(client)
    world.fill_disk()
    world.answer(client, job, fail=True)
    assert world.answer(client, job).finished == 1
    world.sim.capacity_bytes = None
    world.advance(2)
    assert world.dead_letters() == []
    assert [world.body(each) for each in world.pull_all(client)] == [2]


def test_success_while_a_dead_letter_is_written_counts() -> None:
    """The dead letter may be there or not after a failed disk; the success finishes the message either way (D13)."""
    world = impatient()
    client = Client()
    world.publish("a")
    [job] = world.pull_all(client)
    world.group.apply("t", job.qid, [], [0], client)
    assert world.answer(client, job).finished == 1
    assert len(world.dead_letters()) == 1
    world.kill()
    assert world.pull_all(client) == []
    assert len(world.dead_letters()) == 1


@pytest.mark.parametrize("written", [False, True])
def test_success_while_a_dead_letter_is_written_counts_whatever_a_kill_leaves_of_it(written: bool) -> None:
    """The message never comes again and its key goes on; the dead letter stays where it was written by then."""
    world = impatient()
    client = Client()
    world.publish("a", "a")
    [job] = world.pull_all(client)
    world.group.apply("t", job.qid, [], [0], client)
    assert job.state is JobState.BURYING
    assert world.group.apply("t", job.qid, [0], [], client).finished == 1
    if written:
        world.store.flush()
    world.progress.flush()
    world.kill()
    assert [world.body(each) for each in world.pull_all(client)] == [2]
    assert len(world.dead_letters()) == written


def test_restart_between_record_and_journal_entry_writes_no_dead_letter_twice() -> None:
    """The durable record is the commit point: recovery finishes its origin (D16)."""
    world = impatient()
    client = Client()
    world.publish("a", "a")
    [job] = world.pull_all(client)
    world.group.apply("t", job.qid, [], [0], client)
    world.store.flush()
    world.kill()
    assert [world.body(each) for each in world.pull_all(client)] == [2]
    assert len(world.dead_letters()) == 1
    assert world.count("pyddmq_dead_letters_recovered_total", "g") == 1
    world.kill()
    assert world.count("pyddmq_dead_letters_recovered_total", "g") == 0


def test_dead_letter_topic_is_read_like_any_other_and_has_none_of_its_own() -> None:
    """A group may read a dead-letter topic; what fails there is skipped and counted, and gets no dead letter (D16)."""
    world = impatient()
    client = Client()
    world.publish("a")
    world.answer(client, world.pull_all(client)[0], fail=True)
    world.group_name = "undertaker"
    group = world.make_group(world.config({"topic": "%DLQ%g", "retryIntervals": []}))
    group.start()
    batch = group.pull(None, None, client)
    assert batch is not None
    assert batch.jobs[0].message.properties["DLQ_REASON"].startswith("failed 1 times")
    group.apply("%DLQ%g", batch.qid, [], [0], client)
    world.turn_end()
    assert "%DLQ%undertaker" not in world.store.topics
    assert group.stats().topics[0].queues[0].lag == 0
    assert world.count("pyddmq_skipped_messages_total", "undertaker", "%DLQ%g", "dead_letter_exhausted") == 1


def test_group_may_read_a_dead_letter_topic_that_is_not_there_yet() -> None:
    """The topic is made on demand, so nothing is missed."""
    world = impatient()
    world.group_name = "undertaker"
    group = world.make_group(world.config({"topic": "%DLQ%g"}))
    group.start()
    client = Client()
    world.publish("a")
    world.group_name = "g"
    world.answer(client, world.pull_all(client)[0], fail=True)
    assert group.pull(None, None, client) is not None


def test_properties_that_would_not_fit_are_cut_and_marked() -> None:
    """A message whose property block is nearly full still gets its dead letter, with key, tag and origin."""
    world = impatient()
    client = Client()
    pairs = [("big", "x" * (PROPERTIES_BYTES_MAX - 200)), ("KEYS", "a"), ("TAGS", "red")]
    put = Put(world.store.topics["t"], 0, b"1", encode_properties(pairs), b"red")
    world.store.append([put], born_ms=0, born_host=bytes(8))
    world.turn_end()
    world.answer(client, world.pull_all(client)[0], fail=True)
    [letter] = world.dead_letters()
    assert (letter["KEYS"], letter["TAGS"], letter["DLQ_CUT"], letter["DLQ_ORIGIN_OFFSET"]) == ("a", "red", "true", "0")
    assert "big" not in letter


def test_reason_is_made_harmless() -> None:
    """Control characters in a reason cannot damage the property block; long ones are cut."""
    world = World({"topic": "t", "actions": ["Json", "PullServer"]}, queues=1)
    world.publish(None, body=b"\x01\x02")
    world.publish(None, body=b'["' + b"y" * 3000)
    letters = world.dead_letters()
    assert len(letters) == 2
    assert all(letter["DLQ_REASON"].startswith("body is not JSON") for letter in letters)
    assert {letter["DLQ_ACTION"] for letter in letters} == {"Json"}
    assert all(len(letter["DLQ_REASON"]) <= 500 for letter in letters)
