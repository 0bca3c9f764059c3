"""What `upstream.kafka.link` says of members, of a client on a real Kafka: each sentence once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.kafka.topics import add_partitions, committed, make_topic, plain_producer, send_plainly, topic_names
from tests.kafka_world import Clients, Heard
from tests.patient import until
from upstream.kafka.link import Commit, KafkaPartition, TopicSubscription
from upstream.kafka_client.member import ROOM_BYTES

pytestmark = pytest.mark.long

MakeTopic = Callable[..., str]
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@PROTOCOLS
def test_assignment_has_what_was_committed_with_its_text(clients: Clients, topic: MakeTopic, protocol: str) -> None:
    """4,095 characters pass, and come back; one more is refused and changes nothing."""
    name = topic()
    clients.send(name, [b"0", b"1", b"2"])
    text = "x" * 4095
    member, heard = clients.joined(f"g-{name}", [name], group_protocol=protocol)
    place = KafkaPartition(name, 0)
    first = heard.given[place]
    assert (first.low, first.high, first.committed, first.metadata, first.at_time) == (0, 3, None, "", None)
    assert clients.commit(member, Commit(name, 0, 2, text)) is None
    refused = clients.commit(member, Commit(name, 0, 3, text + "x"))
    assert refused is not None
    assert (refused.code, refused.fenced) == ("OFFSET_METADATA_TOO_LARGE", False)
    clients.leave(member)
    _, again = clients.joined(f"g-{name}", [name], group_protocol=protocol)
    assert (again.given[place].committed, again.given[place].metadata) == (2, text)
    clients.until(again.values, "the record that is left")
    assert again.values() == [b"2"]


def test_moment_is_looked_up_where_nothing_is_committed(clients: Clients, topic: MakeTopic, address: str) -> None:
    """The first record at or after it; the end where none is so late; not asked where something is committed."""
    name = topic(3, retention_ms="-1")
    send_plainly(address, name, [{"value": b"", "timestamp": 1000 * each, "partition": 0} for each in range(1, 6)])
    send_plainly(address, name, [{"value": b"", "timestamp": 1000, "partition": 1}])
    group = f"g-{name}"
    member, _ = clients.joined(group, [name])
    assert clients.commit(member, Commit(name, 2, 0, "")) is None
    clients.leave(member)
    _, heard = clients.joined(group, [TopicSubscription(name, 3000)])
    assert [heard.given[KafkaPartition(name, each)].at_time for each in range(3)] == [2, 1, None]


def test_nothing_is_read_before_it_is_asked_for_and_then_in_order(clients: Clients, topic: MakeTopic) -> None:
    """From the offset that was asked for on; a pause holds; reading from elsewhere tells nothing of before."""
    name = topic(2)
    values = [b"%d" % each for each in range(2000)]
    clients.send(name, values)
    clients.send(name, [b"other"], partition=1)
    member, heard = clients.joined(f"g-{name}", [name], Heard(reads=False))
    here, other = KafkaPartition(name, 0), KafkaPartition(name, 1)
    clients.until(lambda: len(heard.given) == 2, "both partitions")
    member.read_from(other, 0)
    clients.until(lambda: other in heard.ended, "the other partition")
    assert heard.values() == [b"other"]
    member.read_from(here, 500)
    clients.until(lambda: here in heard.ended, "all")
    assert heard.values(0) == values[500:]
    assert heard.ended[here] == 2000
    member.pause([here])
    clients.send(name, [b"more"])
    clients.send(name, [b"more of the other"], partition=1)
    clients.until(lambda: heard.values(1)[-1] == b"more of the other", "what is not paused")
    assert heard.values(0)[-1] == values[-1]
    member.resume([here])
    clients.until(lambda: heard.values(0)[-1] == b"more", "what was paused")
    heard.got.clear()
    # While it reads: what was under way is not told any more.
    member.read_from(here, 0)
    clients.until(lambda: heard.got, "the first again")
    member.read_from(here, 1990)
    heard.got.clear()
    heard.ended.clear()
    clients.until(lambda: here in heard.ended, "the last again")
    assert heard.values(0) == [*values[1990:], b"more"]


def test_pause_before_the_first_read_holds(clients: Clients, topic: MakeTopic) -> None:
    """`read_from` of a paused partition waits for `resume`."""
    name = topic()
    clients.send(name, [b"a"])
    member, heard = clients.joined(f"g-{name}", [name], Heard(reads=False))
    place = KafkaPartition(name, 0)
    member.pause([place])
    member.read_from(place, 0)
    ends: list[object] = []
    member.ends([place], lambda found, _: ends.append(found))
    clients.until(lambda: ends, "an answer")
    assert ends == [[(place, 0, 1, 1)]]
    assert clients.commit(member, Commit(name, 0, 0, "")) is None
    assert heard.values() == []
    member.resume([place])
    clients.until(heard.values, "the record")


def test_end_is_told_beyond_markers_and_what_was_taken_back(clients: Clients, topic: MakeTopic, address: str) -> None:
    """Records of an aborted transaction are not told, and the end lies behind the markers."""
    name = topic()
    producer = plain_producer(address, **{"transactional.id": name})
    producer.init_transactions(60)
    for value, ends in ((b"kept", producer.commit_transaction), (b"taken back", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(name, value=value, partition=0)
        producer.flush(60)
        ends(60)
    _, heard = clients.joined(f"g-{name}", [name])
    clients.until(lambda: heard.ended.get(KafkaPartition(name, 0)) == 4, "the end behind the markers")
    assert heard.values() == [b"kept"]
    assert heard.given[KafkaPartition(name, 0)].high == 4


def test_end_is_told_beyond_gaps_of_compaction(clients: Clients, topic: MakeTopic, address: str) -> None:
    """Offsets that compaction took leave gaps; order and end hold."""
    name = topic(
        cleanup_policy="compact", segment_ms="200", min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="200"
    )
    for turn in range(200):
        send_plainly(address, name, [{"key": b"k", "value": b"%d" % turn, "partition": 0}])
        end = turn + 1
        group = f"g-{name}-{turn}"
        if turn % 10 == 9:
            member, seen = clients.joined(group, [name])
            clients.ended(seen, KafkaPartition(name, 0), end)
            offsets = [each.offset for each in seen.got]
            clients.leave(member)
            if len(offsets) < end:
                break
    else:
        pytest.fail("nothing was compacted")
    assert offsets == sorted(offsets)
    assert offsets[-1] == end - 1


@PROTOCOLS
def test_second_member_gets_its_share_and_commits_meanwhile_count(
    clients: Clients, topic: MakeTopic, address: str, protocol: str
) -> None:
    """A revoke waits for its end; what is committed before counts, and the new owner finds it."""
    name = topic(2)
    group = f"g-{name}"
    one, heard = clients.join(group, [name], Heard(holds=True), group_protocol=protocol)
    clients.until(lambda: len(heard.given) == 2, "both partitions")
    clients.send(name, [b"a", b"b"])
    clients.send(name, [b"a", b"b"], partition=1)
    clients.until(lambda: len(heard.got) == 4, "records")
    _, other = clients.join(group, [name], Heard(), group_protocol=protocol)
    clients.until(lambda: heard.open, "a revoke")
    [(place,)] = [places for what, places in heard.loud if what == "revoked"]
    assert clients.commit(one, Commit(name, place.partition, 1, "meanwhile")) is None
    assert not other.given
    heard.open.pop()()
    clients.until(lambda: place in other.given, "the other member's share")
    assert (other.given[place].committed, other.given[place].metadata) == (1, "meanwhile")
    kept = next(iter(heard.given))
    clients.send(name, [b"c"], partition=place.partition)
    clients.send(name, [b"c"], partition=kept.partition)
    clients.until(lambda: other.values() == [b"b", b"c"] and len(heard.got) == 5, "each its own")
    refused = clients.commit(one, Commit(name, place.partition, 0, "late"))
    assert refused is not None
    assert refused.fenced
    assert clients.commit(one, Commit(name, kept.partition, 2, "kept")) is None
    assert committed(address, group, name, place.partition) == (1, "meanwhile")


@PROTOCOLS
def test_member_that_gets_nothing_is_told_so(clients: Clients, topic: MakeTopic, protocol: str) -> None:
    """By an assignment of nothing: it knows that it waits for nobody."""
    name = topic()
    clients.joined(f"g-{name}", [name], group_protocol=protocol)
    _, other = clients.join(f"g-{name}", [name], Heard(), group_protocol=protocol, revoke_timeout=300)
    clients.until(lambda: ("assigned", None) in other.loud, "an assignment of nothing")
    assert not other.given


def test_thread_that_ends_by_a_fault_says_so_and_others_get_what_it_had(clients: Clients, topic: MakeTopic) -> None:
    """What it had is lost, and a member made anew joins (W26)."""
    name = topic()
    clients.send(name, [b"a"])
    member, heard = clients.joined(f"g-{name}", [name])

    def fault() -> list[Any]:
        raise KeyError("of a test")

    member._thread._poll = fault  # type: ignore[method-assign]
    clients.until(lambda: heard.loud[-1][0] == "broken", "the fault to be told")
    assert heard.lost_places() == {KafkaPartition(name, 0)}
    assert "KeyError: 'of a test'" in str(heard.loud[-1][1])
    _, other = clients.joined(f"g-{name}", [name])
    clients.until(lambda: other.values() == [b"a"], "what it had")


def test_revoke_that_is_not_ended_is_lost(clients: Clients, topic: MakeTopic) -> None:
    """After the bound others get it; a commit after that does not count, and a late end does no harm."""
    name = topic()
    one, heard = clients.joined(f"g-{name}", [name], Heard(holds=True), revoke_timeout=300)
    other = topic()
    # librdkafka has not heard of it, and takes that of `name` for lost.
    one.subscribe([TopicSubscription(other)])
    clients.until(heard.lost_places, "the bound")
    [end] = heard.open
    end()
    refused = clients.commit(one, Commit(name, 0, 0, "late"))
    assert refused is not None
    assert refused.fenced
    assert [what for what, _ in heard.loud if what in ("revoked", "lost")] == ["revoked", "lost"]
    clients.until(lambda: KafkaPartition(other, 0) in heard.given, "what it asks for now")
    heard.holds = False
    one.subscribe([])
    clients.until(lambda: not heard.given, "nothing")
    assert heard.loud[-1] == ("revoked", (KafkaPartition(other, 0),))


def test_expression_gets_new_topics_and_new_partitions(clients: Clients, topic: MakeTopic, address: str) -> None:
    """By librdkafka's refresh of what there is."""
    first, fast = topic(), {"topic.metadata.refresh.interval.ms": 200}
    stem = first.rpartition("-")[0].rpartition("-")[0]
    _, heard = clients.joined(f"g-{first}", [TopicSubscription(f"^{stem}-.*", 5)], librdkafka=fast)
    assert heard.given[KafkaPartition(first, 0)].at_time == 0
    second = topic()
    clients.until(lambda: KafkaPartition(second, 0) in heard.given, "the new topic")
    add_partitions(address, first, 2)
    clients.until(lambda: KafkaPartition(first, 1) in heard.given, "the new partition")
    assert not heard.lost_places()


def test_records_are_told_as_kafka_has_them(clients: Clients, topic: MakeTopic, address: str) -> None:
    """Tombstones, empty bodies and keys, headers that repeat, are binary or null."""
    name = topic()
    headers = [("a", b"1"), ("a", b"\xff\x00"), ("b", None), ("", b"")]
    records: list[dict[str, Any]] = [
        {"key": b"k", "value": None, "timestamp": 1234},
        {"key": b"", "value": b"", "headers": headers},
        {"key": None, "value": b"v"},
    ]
    send_plainly(address, name, records)
    _, heard = clients.joined(f"g-{name}", [name])
    clients.until(lambda: len(heard.got) == 3, "records")
    assert [(each.key, each.value, list(each.headers)) for each in heard.got] == [
        (b"k", None, []),
        (b"", b"", headers),
        (None, b"v", []),
    ]
    assert heard.got[0].timestamp_ms == 1234


def test_what_a_slow_loop_has_not_taken_is_bounded(clients: Clients, topic: MakeTopic, address: str) -> None:
    """The thread waits for it, and tells all in the end (that it waits: test_member_parts)."""
    name = topic()
    send_plainly(address, name, [{"value": b"x" * 100_000, "partition": 0} for _ in range(400)])
    member, heard = clients.joined(f"g-{name}", [name], Heard(reads=False))
    most = 0
    member.read_from(KafkaPartition(name, 0), 0)

    def used() -> int:
        return member._room._used

    def look() -> bool:
        nonlocal most
        most = max(most, used())
        return len(heard.got) == 400

    pause = threading.Event()
    until(lambda: used() >= ROOM_BYTES or pause.wait(0.01), "what fits")
    clients.until(look, "all of it")
    # One batch at most goes beyond.
    assert most < ROOM_BYTES + 500 * 101_000 // 4


def test_missing_topic_is_told_until_it_is_there(clients: Clients, topic: MakeTopic, address: str) -> None:
    """Once, with its name; and it is not made by being asked for."""
    here = topic()
    missing = f"{here}-missing"
    _, heard = clients.joined(f"g-{here}", [here, missing], librdkafka={"topic.metadata.refresh.interval.ms": 200})
    clients.until(lambda: heard.troubles, "a trouble")
    assert heard.troubles[0] is not None
    assert heard.troubles[0].code == "UNKNOWN_TOPIC_OR_PART"
    assert missing in str(heard.troubles[0])
    assert missing not in topic_names(address)
    make_topic(address, missing, 1, {})
    clients.until(lambda: heard.troubles[-1] is None, "the end of it")
    assert len(heard.troubles) == 2


def test_member_with_the_instance_id_of_another_takes_over(clients: Clients, topic: Callable[..., str]) -> None:
    """Nothing moves; the former ends, and says why."""
    name = topic(2)
    former, first = clients.joined("owners-" + name, [name], instance="n0")
    clients.until(lambda: len(first.given) == 2, "both partitions")
    _, second = clients.joined("owners-" + name, [name], instance="n0")
    clients.until(lambda: len(second.given) == 2, "both partitions of the later")
    clients.until(lambda: [what for what, _ in first.loud if what == "broken"], "the end of the former")
    [failure] = [detail for what, detail in first.loud if what == "broken"]
    assert failure.code == "FENCED_INSTANCE_ID"
    clients.forget(former)
