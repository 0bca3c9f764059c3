"""Commits that are too large for a text: written first, named, read back, fenced, and never trusted (D53)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random

import pytest

from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.contract.grounds import KafkaGround
from tests.unit.upstream_world import Client
from upstream.kafka.commits.blobs import NAME_MAX, Blobs, Named
from upstream.kafka.commits.metadata import TEXT_MAX, decode, decode_blob, encode, encode_named
from upstream.kafka.link import Headers, KafkaPartition, Produced, RecordsRead
from upstream.kafka.partitions import MemberSettings
from upstream.progress.tracker import AttemptFailures

TOPIC = MemberSettings().commit_topic
FAILING = {"topic": "t", "retryIntervals": [900_000] * 3, "timeout": 900_000, "maxPullBatchSize": 100}
MANY = 500
NAMED = Named(0, 7, "0123456789abcdef" * 2, "00112233445566aa-1")


def _committed(ground: KafkaGround) -> tuple[int, str]:
    return ground.cluster().group("g").committed[KafkaPartition("t", 0)]


def _failing(**how: object) -> tuple[KafkaGround, list[tuple[str, int]]]:
    """A node with more failed messages than a text has room for."""
    ground = KafkaGround(FAILING, queues=1, **how)  # type: ignore[arg-type]
    for number in range(MANY):
        ground.cluster().append(KafkaPartition("t", 0), None, b"%d" % number, gap=0)
    ground.advance(1)
    client = Client()
    taken = ground.drain(client, 1)
    assert len(taken) == MANY
    places = sorted(taken)
    ground.ack(client, *places[:-1], fail=True)
    ground.ack(client, places[-1])
    ground.advance(0.4)
    return ground, places


def _attempts(ground: KafkaGround) -> list[int]:
    return [job.attempts for job in ground.group_queue().live.values()]


def test_next_owner_knows_what_has_no_room_in_a_text() -> None:
    """All failed attempts, and what is finished above them, of a node that died."""
    first, places = _failing()
    offset, text = _committed(first)
    known = decode(text, offset)
    assert known.cut
    assert known.blob is not None
    assert len(text) <= TEXT_MAX
    assert first.count("pyddmq_kafka_commit_texts_cut_total", "g") == 0
    first.client.kill()
    second = KafkaGround(FAILING, queues=1, beside=first)
    first.advance(14)
    assert _attempts(second) == [1] * (MANY - 1)
    assert second.group_queue().tracker.is_finished(places[-1][1])
    assert second.take(Client()) == {}


def test_named_blob_is_never_written_over_and_old_ones_die() -> None:
    """The last commit's key is the latest of its key; whoever's other keys have tombstones, and all in the end."""
    first, places = _failing()
    client = Client()
    for _ in range(3):
        first.put("another")
        first.ack(client, *first.take(client))
        first.advance(0.3)
    first.client.kill()
    second = KafkaGround(FAILING, queues=1, beside=first)
    first.advance(14)

    def alive() -> dict[bytes, int]:
        """What compaction leaves: the last record of each key, unless it is a tombstone."""
        last = {each.key or b"": each for each in first.cluster().topics[TOPIC][0].records.values()}
        return {key: each.offset for key, each in last.items() if each.value is not None}

    offset, text = _committed(first)
    named = decode(text, offset).blob
    assert named is not None
    assert named.offset in alive().values()
    assert {key.rpartition(b"-")[0] for key in alive()} == {
        b'["g", "t", 0, "' + named.key.rpartition("-")[0].encode()
    }, "no other owner's"
    for _, each in places:
        second.group_queue().tracker.finish(each)
    first.advance(1)
    assert decode(_committed(first)[1], _committed(first)[0]).blob is None
    first.advance(1)
    assert alive() == {}


@pytest.mark.parametrize("fault", ["gone", "other", "of another group", "of another offset"])
def test_blob_that_is_not_what_the_text_says_counts_for_nothing(fault: str) -> None:
    """What the text itself says counts then, and it is counted."""
    first, _ = _failing()
    offset, text = _committed(first)
    named = decode(text, offset).blob
    assert named is not None
    records = first.cluster().topics[TOPIC][0].records
    value = records[named.offset].value or b""
    if fault == "gone":
        del records[named.offset]
    else:
        changed = {
            "other": value[:-4] + b"AAAA",
            "of another group": value.replace(b'"g"', b'"h"', 1),
            "of another offset": value.replace(b", %d]" % offset, b", %d]" % (offset + 1), 1),
        }[fault]
        assert changed != value
        records[named.offset] = records[named.offset]._replace(value=changed)
        if fault.startswith("of"):
            # With a sum that is right: somebody named another's.
            reported = named._replace(sum=hashlib.sha256(changed).hexdigest()[: len(named.sum)])
            first.cluster().group("g").committed[KafkaPartition("t", 0)] = (
                offset,
                text.replace(str(named), str(reported)),
            )
    first.client.kill()
    second = KafkaGround(FAILING, queues=1, beside=first)
    first.advance(14)
    assert second.count("pyddmq_kafka_commit_blobs_unread_total", "g") == 1
    kept = len(decode(text, offset).failures)
    assert 0 < kept < MANY - 1
    assert _attempts(second).count(1) == kept


def test_without_the_topic_commits_go_on_and_say_what_they_leave_out() -> None:
    """As before there was one: the lowest part is kept, the rest counted."""
    ground = KafkaGround(FAILING, queues=1)
    ground.cluster().missing.add(TOPIC)
    for number in range(MANY):
        ground.cluster().append(KafkaPartition("t", 0), None, b"%d" % number, gap=0)
    ground.advance(1)
    client = Client()
    ground.ack(client, *ground.drain(client, 1), fail=True)
    ground.advance(1)
    known = decode(_committed(ground)[1], _committed(ground)[0])
    assert (known.cut, known.blob) == (True, None)
    assert ground.count("pyddmq_kafka_commit_texts_cut_total", "g") > 0
    assert ground.member.may_hand_out()


def test_commit_waits_for_its_blob() -> None:
    """It names only what is acknowledged: while it is not, the commit before stands."""
    ground = KafkaGround(FAILING, queues=1)
    for number in range(MANY):
        ground.cluster().append(KafkaPartition("t", 0), None, b"%d" % number, gap=0)
    ground.advance(1)
    before = _committed(ground)
    client = Client()
    taken = ground.drain(client, 0.1)
    asked: list[Produced] = []
    producer = vars(vars(ground.member.partitions)["_blobs"])["_producer"]
    produce = producer.produce
    producer.produce = lambda *arguments: asked.append(arguments[-1])
    ground.ack(client, *taken, fail=True)
    ground.advance(0.5)
    assert len(asked) == 1
    assert _committed(ground) == before
    producer.produce = produce
    asked[0](None, 0, 4711)
    ground.advance(0.05)
    named = decode(_committed(ground)[1], _committed(ground)[0]).blob
    assert named is not None
    assert named.offset == 4711


def test_name_of_a_blob_has_room_and_is_read() -> None:
    """However large its numbers; what is none is refused."""
    largest = Named(2**31 - 1, 2**62, "f" * 32, "0123456789abcdef-1")
    assert len(str(largest)) <= NAME_MAX
    assert Named.read(str(largest)) == largest
    drawn = Random(3)
    failures = {
        each: AttemptFailures(fails=drawn.randrange(9), due_wall_ms=1_700_000_000_000 + each) for each in range(3000)
    }
    text = encode_named(0, [], failures, clean=False, blob=largest)
    assert len(text) <= TEXT_MAX
    assert decode(text, 0).blob == largest
    for wrong in ("", "1.2.3", "a.1.00.b-0", "0.1." + "g" * 31 + ".k-0"):
        with pytest.raises(ValueError):  # noqa: PT011 - what int says of it is Python's
            Named.read(wrong)


def test_fifty_thousand_scattered_ranges_have_room_in_a_blob() -> None:
    """And come back as they were."""
    drawn = Random(4)
    ranges = [(each, each + 1) for each in range(1, 200_000, 2) if drawn.random() < 0.5]
    failures = {each: AttemptFailures(fails=1, due_wall_ms=1_700_000_000_000) for each in range(0, 20_000, 2)}
    text, whole = encode(0, ranges, failures, clean=False, room=900_000)
    assert whole
    known = decode_blob(text, 0)
    assert list(known.ranges) == ranges
    assert dict(known.failures) == failures
    assert decode_blob(text + f";T{NAMED}", 0).foreign, "a blob names none"


def test_slot_that_a_commit_names_is_not_the_next_ones() -> None:
    """Until another commit has succeeded: so compaction never takes what is named."""
    ground = KafkaGround(FAILING, queues=1)
    ground.advance(1)
    blobs = vars(ground.member.partitions)["_blobs"]
    place, reported = KafkaPartition("t", 0), list[Named | None]()
    blobs.own(place, None)
    for _ in range(2):
        blobs.write(place, 5, "text", reported.append, seconds=2)
        ground.advance(0.1)
    first, second = reported
    assert first is not None
    assert second is not None
    assert first.key == second.key, "nothing is named yet"
    blobs.committed(place, second)
    for _ in range(2):
        blobs.write(place, 5, "text", reported.append, seconds=2)
        ground.advance(0.1)
    assert {each.key for each in reported[2:] if each is not None} == {second.key[:-1] + "1"}


class _Silent:
    """Neither answers a read nor a write."""

    def fetch(self, place: KafkaPartition, offsets: Sequence[int], there: RecordsRead) -> None:
        """Say nothing."""

    def produce(  # noqa: PLR0917 - as the protocol says
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        done: Produced,
    ) -> None:
        """Say nothing."""

    def withdraw(self, done: Produced) -> bool:
        """All have left."""
        return False

    def partitions(self, topic: str) -> int | None:
        """Not known."""

    def unreachable(self, topic: str) -> None:
        """Not known."""

    def close(self, seconds: float = 0.0) -> None:
        """Nothing is held."""


def test_topic_that_does_not_answer_is_waited_for_within_bounds() -> None:
    """A commit goes on without its blob, and so does a partition that was given."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    runtime = runtime_of(SimDisk(), clock, metrics=Metrics(), scheduler=scheduler)
    blobs = Blobs("g", TOPIC, reader=_Silent(), producer=_Silent(), runtime=runtime)
    place = KafkaPartition("t", 0)
    blobs.own(place, None)
    reported: list[object] = []
    blobs.write(place, 5, "text", reported.append, seconds=2)
    blobs.read(NAMED, place, 5, reported.append)
    scheduler.advance(1.9)
    assert reported == []
    scheduler.advance(0.2)
    assert reported == [None]
    scheduler.advance(8)
    assert reported == [None, None]
