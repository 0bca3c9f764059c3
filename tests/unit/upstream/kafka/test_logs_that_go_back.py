"""Logs in Kafka that lose their end, or their beginning, and topics that are created again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.contract.grounds import KafkaGround
from tests.unit.upstream_world import Client
from upstream.kafka.link import KafkaPartition
from upstream.kafka.partitions import MemberSettings

T = KafkaPartition("t", 0)


def _expired(ground: KafkaGround) -> int:
    return ground.progress.losses.of("g", "t").messages


def _put(ground: KafkaGround, *bodies: str) -> None:
    for body in bodies:
        ground.cluster().append(T, None, body.encode(), gap=0)
    ground.advance(0.1)


def _read_and_hold(ground: KafkaGround, client: Client, count: int) -> list[tuple[str, int]]:
    """Have messages handed out, and all but the last two finished."""
    _put(ground, *(f"old {number}" for number in range(count)))
    taken = sorted(ground.drain(client, 1))
    ground.ack(client, *taken[:-2])
    ground.advance(0.5)
    return taken[-2:]


def _lose(ground: KafkaGround, goes: str) -> None:
    """Cut the log at 10, or delete its topic and create it again."""
    if goes != "made again":
        ground.cluster().cut(T, 10)
    else:
        ground.cluster().delete("t")
        ground.advance(2)
        ground.cluster().make_again("t")
    ground.advance(3)


@pytest.mark.parametrize("goes", ["cut", "cut, no epochs", "made again"])
@pytest.mark.parametrize("where", ["first", "last"])
def test_log_that_becomes_shorter_than_where_the_group_stands(goes: str, where: str) -> None:
    """What is new is read; what was lost is counted, and no late answer is taken for the new log.

    Without leader epochs nobody knows since where it is new: a node begins as a plain consumer does.
    """
    ground = KafkaGround({"topic": "t", "consumeFromWhere": where}, queues=1)
    ground.cluster().has_epochs = goes != "cut, no epochs"
    client = Client()
    held = _read_and_hold(ground, client, 30)
    _lose(ground, goes)
    new = [f"new {number}" for number in range(50)]
    _put(ground, *new)
    assert ground.ack(client, *held) == 0
    kept = [f"old {number}" for number in range(10)] if (goes, where) == ("cut, no epochs", "first") else []
    taken = ground.drain(client, 3)
    assert [taken[each].decode() for each in sorted(taken)] == [*kept, *new]
    ground.ack(client, *taken)
    ground.advance(1)
    assert ground.committed() == ground.cluster().topics["t"][0].high
    assert _expired(ground) == 2
    assert ground.count("pyddmq_kafka_logs_went_back_total", "g") == 1
    assert "was truncated" in ground.member.partitions.topic_troubles.texts()["t"]


@pytest.mark.parametrize("goes", ["cut", "made again"])
def test_answer_about_a_log_that_is_gone_finishes_nothing_of_the_new_one(goes: str) -> None:
    """Its offset names another record by now, be that in the buffer or out with another client."""
    ground = KafkaGround({"topic": "t", "maxPullBatchSize": 8}, queues=1)
    client, other = Client(), Client("10.0.0.2:1")
    held = _read_and_hold(ground, client, 30)
    _lose(ground, goes)
    _put(ground, *(f"new {number}" for number in range(50)))
    ground.advance(1)
    taken = ground.take(other)
    named: dict[int, int] = {}
    for deliveries in (named, None):
        for qid, offset in [*taken, *held]:
            assert not ground.group.apply("t", qid, [offset], [], client, deliveries).finished, (offset, deliveries)
            assert not ground.group.apply("t", qid, [], [offset], client, deliveries).failed
    taken |= ground.drain(other, 3)
    assert len(taken) == 50
    assert ground.ack(other, *taken) == 50


def test_partition_that_rested_is_read_after_its_topic_was_created_again() -> None:
    """It rests while more has come than was read; its log begins anew, and nothing of the old one is left to read."""
    settings = MemberSettings(session_seconds=10, waiting_bytes=1 << 16)
    ground = KafkaGround({"topic": "t", "timeout": 600_000}, queues=1, settings=settings)
    client = Client()
    for number in range(500):
        ground.cluster().append(T, None, b"old %d" % number + bytes(1_000), gap=0)
    ground.advance(1)
    assert T in ground.client.members[-1]._resting
    ground.cluster().delete("t")
    ground.advance(2)
    ground.cluster().make_again("t")
    ground.advance(3)
    new = [f"new {number}" for number in range(50)]
    _put(ground, *new)
    taken = ground.drain(client, 3)
    assert [taken[each].decode() for each in sorted(taken)] == new


@pytest.mark.parametrize("epochs", [True, False])
def test_log_that_goes_back_and_grows_beyond_before_it_is_looked_at(*, epochs: bool) -> None:
    """The client begins where it is another log, or at its first record: nothing of that is passed over."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": "first"}, queues=1)
    ground.cluster().has_epochs = epochs
    client = Client()
    _read_and_hold(ground, client, 30)
    ground.cluster().cut(T, 5)
    ground.advance(0.05)
    _put(ground, *(f"new {number}" for number in range(50)))
    taken = ground.drain(client, 3)
    bodies = [taken[each].decode() for each in sorted(taken)]
    assert bodies[0 if epochs else 5 :] == [f"new {number}" for number in range(50)]


@pytest.mark.parametrize("where", ["first", "last"])
def test_log_that_goes_back_and_grows_beyond_while_no_node_ran(where: str) -> None:
    """The commit says of which leader its records were: what is new is read, though some of it is below the offset."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": where}, queues=1)
    client = Client()
    _read_and_hold(ground, client, 30)
    ground.client.kill()
    ground.cluster().cut(T, 10)
    new = [f"new {number}" for number in range(50)]
    _put(ground, *new)
    ground.kill()
    taken = ground.drain(client, 3)
    assert [taken[each].decode() for each in sorted(taken)] == new
    assert ground.count("pyddmq_kafka_logs_went_back_total", "g") == 1


def test_log_that_goes_back_to_between_what_was_answered_out_of_order() -> None:
    """Above the committed offset single ones are finished, of which some are other records now: these are read."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": "first"}, queues=1)
    client = Client()
    _put(ground, *(f"old {number}" for number in range(30)))
    taken = sorted(ground.drain(client, 1))
    ground.ack(client, *taken[:5], *taken[8:12], *taken[18:25])
    ground.advance(0.5)
    assert ground.committed() == 5
    ground.client.kill()
    ground.cluster().cut(T, 20)
    new = [f"new {number}" for number in range(20, 40)]
    _put(ground, *new)
    ground.kill()
    found = ground.drain(client, 3)
    left = [*range(5, 8), *range(12, 18)]
    bodies = [found[each].decode() for each in sorted(found)]
    assert bodies == [*(f"old {number}" for number in left), *new]
    ground.ack(client, *found)
    ground.advance(1)
    assert ground.committed() == 40


def test_log_whose_client_does_not_find_where_it_went_back_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever: it begins as a plain consumer does."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": "first"}, queues=1)
    client = Client()
    _read_and_hold(ground, client, 30)
    monkeypatch.setattr(ground.client.members[-1], "_fetch", lambda _: None)
    ground.cluster().cut(T, 10)
    ground.advance(9)
    assert ground.count("pyddmq_kafka_logs_went_back_total", "g") == 0
    ground.advance(5)
    assert ground.count("pyddmq_kafka_logs_went_back_total", "g") == 1


@pytest.mark.parametrize("where", ["first", "last"])
@pytest.mark.parametrize("over", ["still", "killed"])
def test_topic_that_is_created_again_unseen_and_grows_beyond(over: str, where: str) -> None:
    """All of it is read, though the group's offset is in it, and was committed to it by a node that did not know."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": where}, queues=1)
    client = Client()
    ground.advance(2)
    _read_and_hold(ground, client, 30)
    ground.advance(0.5)
    said = ground.cluster().group("g").committed[T]
    if over == "killed":
        ground.client.kill()
    else:
        ground.client.members[-1].paused = True
    ground.cluster().delete("t")
    ground.cluster().make_again("t")
    new = [f"new {number}" for number in range(50)]
    _put(ground, *new)
    ground.advance(2)
    ground.cluster().group("g").committed[T] = said
    if over == "killed":
        ground.kill()
    else:
        ground.client.members[-1].wake()
    ground.advance(25)
    taken = ground.drain(client, 3)
    assert {body.decode() for body in taken.values()} == set(new)
    ground.ack(client, *taken)
    ground.advance(1)
    assert ground.committed() == 50
    assert "created again" in ground.member.partitions.topic_troubles.texts()["t"]


def test_topic_that_brokers_do_not_know_for_a_moment_is_the_same() -> None:
    """As those do that were restarted: nothing comes again, what is out is answered, and what waits is not lost."""
    ground, client, out = _dropped_bodies(300)
    ground.advance(2)
    ground.cluster().unseen.add("t")
    ground.advance(1.5)
    ground.ack(client, *out)
    ground.advance(1.5)
    ground.cluster().unseen.clear()
    seen: list[int] = []
    for _ in range(400):
        taken = ground.take(client)
        seen += [int(body.rstrip(b"\0")) for body in taken.values()]
        ground.ack(client, *taken)
        ground.advance(0.1)
    assert seen == list(range(len(out), 300))
    assert ground.committed() == 300
    assert ground.count("pyddmq_kafka_logs_went_back_total", "g") == 0


def test_ids_that_the_cluster_does_not_have_are_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers before Kafka 2.8, and a topic that may not be described: what is known stays."""
    ground = KafkaGround({"topic": "t"}, queues=1)
    client = Client()
    ground.advance(2)
    held = _read_and_hold(ground, client, 30)
    monkeypatch.setattr(ground.cluster(), "topic_id", lambda _: "")
    ground.cluster().down = True
    ground.advance(4)
    ground.cluster().down = False
    ground.advance(40)
    assert ground.ack(client, *held) == 2
    assert ground.count("pyddmq_kafka_logs_went_back_total", "g") == 0


def test_log_that_loses_what_was_not_read_yet_is_read_on() -> None:
    """What the group had read stays finished; the rest is counted."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": "first", "concurrency": 1, "maxPullBatchSize": 1}, queues=1)
    _put(ground, *(str(number) for number in range(5_000)))
    ground.advance(2)
    ground.cluster().cut(T, 4_900)
    ground.advance(3)
    assert ground.member.partitions.owned[0].max_offset == 4_900
    assert _expired(ground) == 100


@pytest.mark.parametrize(("epochs", "again"), [(True, 0), (False, 10)])
def test_log_that_went_back_while_no_node_ran_is_said(*, epochs: bool, again: int) -> None:
    """What is committed lies beyond its end."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": "first"}, queues=1)
    ground.cluster().has_epochs = epochs
    client = Client()
    _read_and_hold(ground, client, 30)
    ground.client.kill()
    ground.cluster().cut(T, 10)
    ground.kill()
    assert len(ground.drain(client, 1)) == again
    assert ground.count("pyddmq_kafka_logs_went_back_total", "g") == 1


def test_what_retention_took_while_no_node_had_the_partition_is_counted() -> None:
    """Without what was finished of it; and what is finished above it stays finished."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": "first"}, queues=1)
    client = Client()
    _put(ground, *(str(number) for number in range(20)))
    taken = sorted(ground.drain(client, 1))
    ground.ack(client, *taken[:3], *taken[5:7], *taken[12:16])
    ground.advance(0.5)
    ground.client.kill()
    ground.cluster().expire(T, 10)
    ground.kill()
    assert sorted(int(body) for body in ground.drain(client, 1).values()) == [10, 11, 16, 17, 18, 19]
    assert _expired(ground) == 5


def test_what_retention_took_from_a_running_group_is_counted() -> None:
    """Before the group was given it."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": "first"}, queues=1)
    client = Client()
    ground.client.members[0].pause([T])
    _put(ground, *(str(number) for number in range(20)))
    ground.cluster().expire(T, 12)
    ground.advance(2)
    ground.client.members[0].resume([T])
    assert len(ground.drain(client, 1)) == 8
    assert _expired(ground) == 12


def test_finished_stays_finished_when_records_under_a_stopped_key_are_deleted() -> None:
    """After a restart: what was unfinished is counted as lost, and the stop of its key ends with the message."""
    entry = {"topic": "t", "orderKey": "KEY", "retryIntervals": [100], "onExhausted": "stopKey"}
    ground = KafkaGround(entry, queues=1)
    client = Client()
    for number in range(60):
        ground.cluster().append(T, b"held" if number < 10 else b"k%d" % number, b"%d" % number, gap=0)
    for _ in range(20):
        ground.advance(0.3)
        for place, body in ground.take(client).items():
            ground.ack(client, place, fail=int(body) < 10)
    ground.advance(0.5)
    assert (ground.committed(), ground.group_queue().tracker.ahead) == (0, 50)
    ground.client.kill()
    ground.cluster().expire(T, 10)
    ground.kill()
    assert ground.drain(client, 2) == {}
    assert (_expired(ground), ground.committed()) == (10, 60)
    assert ground.group_queue().tracker.failures == {}


def _dropped_bodies(count: int) -> tuple[KafkaGround, Client, list[tuple[str, int]]]:
    """Have one message of a key out, and many behind it without their bodies."""
    settings = MemberSettings(session_seconds=10, waiting_bytes=1 << 16)
    entry = {"topic": "t", "orderKey": "KEY", "timeout": 600_000}
    ground = KafkaGround(entry, queues=1, settings=settings)
    client = Client()
    for number in range(count):
        ground.cluster().append(T, b"hung", b"%d" % number + bytes(1_000), gap=0)
    return ground, client, list(ground.drain(client, 3))


def _skipped(ground: KafkaGround, why: str) -> float:
    return ground.count("pyddmq_skipped_messages_total", "g", "t", why)


@pytest.mark.parametrize("by", ["expired", "compacted"])
def test_gap_under_dropped_bodies_is_seen_in_one_read(by: str) -> None:
    """All messages in it end at once, by what took them; what is lost to retention is counted as lost."""
    ground, client, out = _dropped_bodies(2_000)
    asked: list[int] = []
    reader = ground.member._ways.reader
    read_again = reader.fetch

    def fetch(place: KafkaPartition, offsets: Sequence[int], there: Any) -> None:
        asked.extend(each for each in offsets if each < 1_900)
        read_again(place, offsets, there)

    vars(reader)["fetch"] = fetch
    if by == "expired":
        ground.cluster().expire(T, 1_900)
    else:
        for offset in range(1, 1_900):
            ground.take_away(0, offset)
    held = ground.source().held_bytes // 1_000  # type: ignore[attr-defined]
    ground.ack(client, *out)
    seen: list[int] = []
    for _ in range(200):
        ground.advance(0.1)
        taken = ground.take(client)
        seen += [int(body.rstrip(b"\0")) for body in taken.values()]
        ground.ack(client, *taken)
    assert seen == sorted(seen)
    assert seen[-100:] == list(range(1_900, 2_000))
    gone = 1_900 - len(out) - (len(seen) - 100)
    assert gone >= 1_900 - held - 1
    assert (_skipped(ground, by), _skipped(ground, "damaged")) == (gone, 0)
    assert _expired(ground) == (gone if by == "expired" else 0)
    assert len(asked) == 1
    assert ground.committed() == 2_000


def test_message_without_a_record_has_no_id() -> None:
    """Who looks at what is stuck sees it without one."""
    ground, _, _ = _dropped_bodies(200)
    for offset in range(1, 200):
        ground.take_away(0, offset)
    [group_queue] = ground.group.group_queues()
    source = ground.source()
    job = next(each for each in group_queue.live.values() if not source.has(each))  # type: ignore[attr-defined]
    source.fetch([job], lambda _: None)
    ground.advance(2)
    assert source.has(job)  # type: ignore[attr-defined]
    assert source.message_id(job) is None
