"""The contract of `upstream.source`: the embedded broker, the one in memory and a Kafka keep it alike.

What only one of them has is said by its ground: the embedded broker revokes no queue, has no gaps, and its bodies are
at hand; of Kafka nothing is read by offset, what failed waits in place, and a node that ends while its dead letter is
on its way may write it twice. The same tests run over a real Kafka (`tests/kafka/test_contract.py`).
"""

from __future__ import annotations

import pytest

from pyddmq.actions import MessageUnreadable
from tests.contract.grounds import ClassicKafkaGround, EmbeddedGround, Ground, KafkaGround, MemoryGround
from tests.unit.upstream_world import Client
from upstream.source import MessageFilter

Kind = type[Ground]


@pytest.fixture(
    params=[EmbeddedGround, MemoryGround, KafkaGround, ClassicKafkaGround],
    ids=["embedded", "memory", "kafka", "classic"],
)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Return each implementation."""
    made: Kind = request.param
    return made


def test_each_queue_is_read_in_its_order(kind: Kind) -> None:
    """All messages come, those of a queue by rising offset; nothing is asked of queues among each other."""
    ground = kind({"maxPullBatchSize": 3}, queues=3)
    for number in range(30):
        ground.put(f"{number % 3}/{number}", queue=number % 3)
    taken = ground.drain(Client())
    for queue in range(3):
        wanted = [f"{queue}/{number}".encode() for number in range(30) if number % 3 == queue]
        found = {offset: body for (qid, offset), body in taken.items() if qid == ground.group_queue(queue).qid}
        assert [found[offset] for offset in sorted(found)] == wanted


def test_source_says_when_it_has_nothing_more(kind: Kind) -> None:
    """`caught_up` after all was read, until something arrives; then that is read without being asked twice."""
    ground = kind(queues=1)
    client = Client()
    ground.put("one")
    assert list(ground.drain(client, 0.5).values()) == [b"one"]
    source = ground.source()
    assert source.caught_up
    assert source.read(10) == []
    source.arrived()
    assert source.read(10) == []
    assert source.caught_up
    ground.put("two")
    assert list(ground.drain(client, 0.5).values()) == [b"two"]


def test_body_message_and_reply_say_the_same(kind: Kind) -> None:
    """A job's body, its message and the slices of a reply are of the same message; size and times are known."""
    ground = kind({"maxPullBatchSize": 1}, queues=1)
    stored_ms = ground.clock.wall_ms()
    ground.put("a body", key="k", tag="blue")
    ground.advance(1)
    batch = ground.pull(Client())
    assert batch is not None
    [job] = batch.jobs
    [(offset, (view, start, end, block, stop))] = ground.messages(batch)
    assert offset == job.offset
    assert bytes(view[start:end]) == bytes(job.body) == job.message.body == b"a body"
    assert b"KEYS\x01k\x02" in bytes(view[block:stop]) + b"\x02"
    assert (job.message.key, job.message.tag) == ("k", "blue")
    assert job.size >= len(b"a body")
    assert job.subscription.stored_ms(job) == stored_ms


def test_message_that_cannot_be_read_is_passed_over(kind: Kind) -> None:
    """It is given out, whoever asks for its body is told, and it is finished; its neighbours come."""
    ground = kind(queues=1)
    for number in range(3):
        ground.put(str(number))
    client = Client()
    ground.advance(1)
    batch = ground.pull(client, ground.topic, 3)
    assert batch is not None
    jobs = batch.jobs
    assert len(jobs) == 3
    ground.damage(0, jobs[1].offset)
    jobs[1].drop_data()
    with pytest.raises(MessageUnreadable, match=ground.unreadable):
        jobs[1].subscription.body(jobs[1])
    assert [offset for offset, _ in ground.messages(batch)] == [jobs[0].offset, jobs[2].offset]
    assert ground.group_queue().tracker.is_finished(jobs[1].offset)
    assert ground.count("pyddmq_skipped_messages_total", ground.group_name, ground.topic, ground.unreadable) == 1


def test_filtered_messages_are_finished_and_counted(kind: Kind) -> None:
    """Those whose tag nobody wants are not given out, and hold no watermark."""
    ground = kind({"tags": ["blue"]}, queues=1)
    for tag in ("red", "blue", "red"):
        ground.put(tag, tag=tag)
    client = Client()
    taken = ground.drain(client, 1)
    assert list(taken.values()) == [b"blue"]
    ground.ack(client, *taken)
    assert ground.group_queue().tracker.watermark == ground.group_queue().queue.max_offset
    assert ground.count("pyddmq_skipped_messages_total", ground.group_name, ground.topic, "tag_filter") == 2


def test_watermark_passes_what_never_held_a_message(kind: Kind) -> None:
    """Where all is acknowledged nothing is left, gaps or none; in memory there are some."""
    ground = kind(queues=2)
    client = Client()
    for number in range(40):
        ground.put(str(number), queue=number % 2)
    taken = ground.drain(client)
    assert len(taken) == 40
    assert ground.ack(client, *taken) == 40
    queues = [ground.group_queue(queue) for queue in range(2)]
    for each in queues:
        assert each.tracker.watermark == each.queue.max_offset
    ends = sum(each.queue.max_offset for each in queues)
    assert (ends > 40) == ground.has_gaps


def test_body_that_comes_later_is_waited_for(kind: Kind) -> None:
    """Before its body is there a message is handed to nobody; it needs no other event than that to be ready."""
    ground = kind(queues=1)
    client = Client()
    for number in range(20):
        ground.put(str(number))
    at_once = ground.take(client)
    assert (len(at_once) < 20) == ground.bodies_come_later, "of Kafka they come with the messages while there is room"
    ground.advance(0.2)
    assert len({**at_once, **ground.take(client)}) == 20


def test_append_counts_once_it_is_durable(kind: Kind) -> None:
    """A message that is given up is finished when its dead letter is told to be durable, and not before."""
    ground = kind({"orderKey": "KEY", "retryIntervals": []}, queues=1)
    client = Client()
    ground.put("bad", key="k")
    ground.put("behind", key="k")
    ground.advance(1)
    [place] = ground.take(client)
    applied = ground.group.apply(ground.topic, place[0], [], [place[1]], client)
    assert applied.counted
    tracker = ground.group_queue().tracker
    assert not tracker.is_finished(place[1])
    assert ground.take(client) == {} or ground.writes_at_once, "its key waits"
    ground.turn_end()
    ground.advance(1)
    assert tracker.is_finished(place[1])
    assert ground.letters() == [b"bad"]
    assert list(ground.take(client).values()) == [b"behind"]


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.02, 0.04, 0.06, 0.08, 0.12])
def test_kill_around_a_dead_letter_doubles_and_loses_none(kind: Kind, moment: float) -> None:
    """Whether its record was durable, or told, or neither: in the end there is one dead letter."""
    ground = kind({"retryIntervals": []}, queues=1)
    client = Client()
    ground.put("bad")
    ground.advance(1)
    [place] = ground.take(client)
    ground.group.apply(ground.topic, place[0], [], [place[1]], client)
    ground.progress.flush()
    ground.advance(moment)
    ground.kill()
    ground.advance(1)
    again = ground.drain(client, 1)
    ground.ack(client, *again, fail=True)
    ground.advance(1)
    assert set(ground.letters()) == {b"bad"}
    assert len(ground.letters()) == 1 or (ground.letters_may_double and len(ground.letters()) == 2)
    assert ground.group_queue().tracker.is_finished(place[1])


def test_failed_message_comes_again_from_the_retry_topic_with_its_counts(kind: Kind) -> None:
    """It is finished in its queue once it is durable elsewhere, waits for its moment, and is given up in the end."""
    if not kind.retry_topics:
        # The configuration refuses it.
        return
    ground = kind({"retryTopic": True, "retryIntervals": [2000]}, queues=1)
    client = Client()
    ground.put("bad")
    [place] = ground.drain(client, 0.5)
    ground.ack(client, place, fail=True)
    ground.advance(1)
    assert ground.group_queue().tracker.is_finished(place[1])
    assert ground.take(client) == {}
    if kind is EmbeddedGround:
        # A timer of the store is released by the node, which is not here; the embedded one is tested with it.
        return
    [again] = ground.drain(client, 3)
    ground.ack(client, again, fail=True)
    ground.advance(1)
    assert ground.letters() == [b"bad"]


def test_commit_is_made_and_a_restart_goes_on_from_there(kind: Kind) -> None:
    """The committed offset, and what is finished above it, come back; the rest comes again."""
    ground = kind(queues=1)
    client = Client()
    for number in range(10):
        ground.put(str(number))
    taken = ground.drain(client, 1)
    places = sorted(taken)
    ground.ack(client, *places[:3], *places[5:7])
    watermark = ground.group_queue().tracker.watermark
    ground.commit()
    assert ground.committed() == watermark > places[2][1]
    ground.kill()
    again = ground.drain(client, 1)
    assert sorted(again) == [*places[3:5], *places[7:]]
    assert {place: taken[place] for place in again} == again


def test_new_queue_is_read_from_its_start(kind: Kind) -> None:
    """A topic gets a queue while it is consumed."""
    ground = kind(queues=1)
    client = Client()
    ground.put("one")
    assert len(ground.drain(client, 0.5)) == 1
    ground.widen()
    ground.put("two", queue=1)
    assert list(ground.drain(client, 0.5).values()) == [b"two"]
    assert ground.group_queue(1).queue.queue_id == 1


def test_revoked_queue_is_given_up_and_the_others_go_on(kind: Kind) -> None:
    """What is out of it counts no more, what is out of others does; given back, it comes from what is committed."""
    if not kind.revokes:
        # Its queue locks end a whole topic (tests/unit/upstream/progress/test_queue_ownership.py).
        return
    ground = kind(queues=2)
    client = Client()
    for number in range(8):
        ground.put(str(number), queue=number % 2)
    taken = ground.drain(client, 1)
    places = [sorted(place for place in taken if place[0] == ground.group_queue(queue).qid) for queue in range(2)]
    ground.ack(client, *(each[0] for each in places))
    ground.commit()
    queue = ground.revoke()
    gone, kept = places[queue], places[1 - queue]
    assert ground.ack(client, *gone[1:]) == 0, "an answer of one who owns it no more"
    assert ground.ack(client, *kept[1:]) == 3
    ground.put("elsewhere", queue=queue)
    assert ground.drain(client, 1) == {}
    # Somebody else consumes a message of it meanwhile, and commits.
    ground.finish_elsewhere(queue, gone[1][1])
    ground.give_back(queue)
    again = ground.drain(client, 1)
    assert sorted(again)[:2] == gone[2:]
    assert sorted(again.values()) == [taken[gone[2]], taken[gone[3]], b"elsewhere"]
    assert ground.ack(client, *again) == 3
    assert ground.group_queue(queue).tracker.watermark == ground.group_queue(queue).queue.max_offset


@pytest.mark.parametrize("kind", [EmbeddedGround, MemoryGround], ids=["embedded", "memory"])
def test_stretch_is_read_as_asked_and_moves_nothing(kind: Kind) -> None:
    """From any offset, so many, so many bytes; where to go on; what is passed over is named, in its order."""
    ground = kind(queues=1)
    tags = ("blue", "red", "blue", "blue", "red")
    for number, tag in enumerate(tags):
        ground.put(str(number), tag=tag)
    queue = ground.group_queue().queue
    broker, everything = ground.all_of_broker(), MessageFilter(None, False)
    assert broker is not None
    places = [offset for offset, _ in broker.read_stretch(queue, 0, 9, 9_999, everything, times=False).messages]
    assert len(places) == 5
    found = broker.read_stretch(queue, places[1], 2, 9_999, everything, times=True)
    assert [bytes(view[start:end]) for _, (view, start, end, _, _) in found.messages] == [b"1", b"2"]
    assert found.times == [(ground.clock.wall_ms(), ground.clock.wall_ms())] * 2
    assert places[2] < found.next_offset <= places[3]
    assert len(broker.read_stretch(queue, 0, 9, 1, everything, times=False).messages) == 1
    ground.damage(0, places[2])
    blue = broker.read_stretch(queue, places[1], 9, 9_999, MessageFilter(frozenset([b"blue"]), False), times=False)
    assert [offset for offset, _ in blue.messages] == [places[3]]
    assert blue.passed == [
        (places[1], places[1] + 1, "tag_filter"),
        (places[2], places[2] + 1, "damaged"),
        (places[4], places[4] + 1, "tag_filter"),
    ]
    assert blue.next_offset == queue.max_offset
    assert not any(ground.group_queue().tracker.is_finished(offset) for offset in places)
