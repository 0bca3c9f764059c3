"""Pull buffer: rotation, caps, parking."""

from __future__ import annotations

import pytest

from tests.insides import buffer_of, most_kept
from tests.unit.upstream_world import Client, World
from upstream.delivery.group import ParkedFull
from upstream.waiting.buffer import BufferLimits, PulledBatch


def two_topics(**settings: object) -> World:
    """Make a group on topics `a` and `b` with one queue each."""
    return World({"topic": "a", **settings}, {"topic": "b", **settings}, queues=1)


def test_long_line_of_one_topic_delays_another_by_one_batch_at_most() -> None:
    """With 100,000 messages of topic a waiting, topic b's first message comes with the second pull at the latest."""
    world = two_topics(concurrency=200_000, maxPullBatchSize=32)
    for _ in range(100):
        world.stage(*[None] * 1000, topic="a")
    world.turn_end()
    world.scheduler.run_until_idle()
    client = Client()
    for _ in range(5):
        assert world.group.pull(None, None, client) is not None
    stats = world.group.stats().topics[0]
    assert (stats.queues[0].lag, stats.in_flight) == (100_000, 5 * 32)
    assert stats.buffered >= 256
    world.publish("k", topic="b")
    topics = [batch.topic for _ in range(2) if (batch := world.group.pull(None, None, client)) is not None]
    assert "b" in topics


def test_rotation_visits_topics_before_queues() -> None:
    """A topic with many queues gets no more turns than one with a single queue (R38 made fair)."""
    world = World({"topic": "a"}, {"topic": "b"}, queues=4)
    for queue in range(4):
        world.stage(None, None, topic="a", queue=queue)
    for _ in range(4):
        world.stage(None, topic="b", queue=0)
    world.turn_end()
    client = Client()
    got = [(batch.topic, batch.qid) for _ in range(4) if (batch := world.pull(client, count=1))]
    assert [topic for topic, _ in got] == ["a", "b", "a", "b"]
    assert len({qid for topic, qid in got if topic == "a"}) == 2


def test_reply_is_of_one_queue_and_bounded_by_count_and_bytes() -> None:
    """One queue per reply; maxPullBatchSize, a smaller request and the byte cap each end a batch (R40, W8)."""
    world = World({"topic": "t", "maxPullBatchSize": 5}, queues=1, limits=BufferLimits(reply_bytes_max=2000))
    client = Client()
    world.publish(*[None] * 12)
    assert [len(batch.jobs) for count in (2, 99, 0, None) if (batch := world.pull(client, count=count))] == [2, 5, 5]
    world.publish(None, None, None, body=b"x" * 900)
    assert [len(batch.jobs) for _ in range(3) if (batch := world.pull(client))] == [1, 1, 1]
    world.publish(None, body=b"x" * 5000)
    batch = world.pull(client)
    assert batch is not None
    assert len(batch.jobs) == 1


def test_parked_pulls_are_served_in_order_of_arrival_bound_or_not() -> None:
    """A pull bound to a topic and one for any topic both wake, the longest waiting first (W52, W54)."""
    world = two_topics()
    woken: list[tuple[str, str]] = []

    def park(name: str, topic: str | None) -> None:
        world.group.park(topic, 1, Client(), lambda batch: woken.append((name, batch.topic)))

    park("bound-a", "a")
    park("any", None)
    park("bound-b", "b")
    world.publish(None, topic="b")
    world.publish(None, topic="b")
    world.publish(None, topic="a")
    assert woken == [("any", "b"), ("bound-b", "b"), ("bound-a", "a")]


def test_one_arrival_of_many_wakes_many() -> None:
    """A burst wakes as many parked pulls as it has batches for, in the flush's own call (W53)."""
    world = World({"topic": "t", "maxPullBatchSize": 2}, queues=1)
    woken: list[int] = []
    for _ in range(5):
        world.group.park(None, None, Client(), lambda batch: woken.append(len(batch.jobs)))
    world.publish(*[None] * 7)
    assert woken == [2, 2, 2, 1]


def test_retry_and_timeout_wake_a_parked_pull() -> None:
    """What becomes available later wakes like an arrival (W53)."""
    world = World({"topic": "t", "timeout": 5000, "retryIntervals": [100]}, queues=1)
    client, other = Client(), Client()
    woken: list[PulledBatch] = []
    world.publish(None)
    job = world.pull_all(client)[0]
    world.group.park(None, None, other, woken.append)
    world.answer(client, job, fail=True)
    assert not woken
    world.advance(0.1)
    assert [batch.jobs for batch in woken] == [[job]]
    world.group.park(None, None, other, woken.append)
    world.advance(5)
    assert [batch.jobs for batch in woken] == [[job], [job]]


def test_withdrawn_and_closed_pulls_are_passed_over() -> None:
    """A pull whose linger ended or whose connection closed gets nothing, and the message goes to the next one (W9)."""
    world = World(queues=1)
    woken: list[str] = []
    gone, closed, alive = Client(), Client(), Client()
    parked = world.group.park(None, 1, gone, lambda batch: woken.append("gone"))
    world.group.park(None, 1, closed, lambda batch: woken.append("closed"))
    world.group.park("t", 1, alive, lambda batch: woken.append("alive"))
    world.group.unpark(parked)
    world.group.unpark(parked)
    closed.closed = True
    world.publish(None)
    assert woken == ["alive"]
    assert world.group.stats().parked_pulls == 0


def test_parking_beyond_the_cap_is_refused_and_counted() -> None:
    """At most `parked_max` pulls wait (W7); withdrawing one makes room."""
    world = World(limits=BufferLimits(parked_max=2))
    first = world.group.park(None, 1, Client(), lambda batch: None)
    world.group.park("t", 1, Client(), lambda batch: None)
    with pytest.raises(ParkedFull):
        world.group.park(None, 1, Client(), lambda batch: None)
    assert world.count("pyddmq_parked_pulls_refused_total", "g") == 1
    world.group.unpark(first)
    world.group.park(None, 1, Client(), lambda batch: None)


def test_withdrawn_pulls_do_not_pile_up() -> None:
    """Parking and withdrawing again and again behind one that stays keeps the line short."""
    world = World()
    world.group.park(None, 1, Client(), lambda batch: None)
    for _ in range(5000):
        world.group.unpark(world.group.park(None, 1, Client(), lambda batch: None))
    assert most_kept(buffer_of(world.group)) < 200


def test_wake_that_gives_its_batch_back_serves_the_next_pull() -> None:
    """A reply that could not even be queued goes to the next parked pull, at once and uncounted (D18)."""
    world = World(queues=1)
    dead, alive = Client(), Client()
    got: list[PulledBatch] = []
    world.group.park(None, 1, dead, lambda batch: world.group.give_back(batch, dead))
    world.group.park(None, 1, alive, got.append)
    world.publish(None)
    assert len(got) == 1
    assert got[0].jobs[0].deliveries == 1
    assert world.count("pyddmq_given_back_messages_total", "g", "t") == 1


def test_buffer_bound_stops_reading_but_leaves_every_topic_a_batch() -> None:
    """At the bound of jobs a full topic reads no further, and another one still gets a batch in."""
    limits = BufferLimits(jobs_max=200)
    world = World({"topic": "a"}, {"topic": "b", "maxPullBatchSize": 10}, queues=1, limits=limits)
    world.publish(*[None] * 2000, topic="a")
    world.scheduler.run_until_idle()
    # One by one, since what is looked up at once is read at once.
    for _ in range(50):
        world.publish(None, topic="b")
        world.scheduler.run_until_idle()
    stats = {topic.topic: topic.buffered for topic in world.group.stats().topics}
    assert 200 <= stats["a"] <= 200 + 256
    assert stats["b"] == 10
    world.publish(*[None] * 1950, topic="b")
    client = Client()
    finished = 0
    while (batch := world.pull(client)) is not None:
        applied = world.group.apply(batch.topic, batch.qid, [job.offset for job in batch.jobs], [], client)
        finished += applied.finished
        world.scheduler.run_until_idle()
    assert finished == 4000
    assert world.group.stats().buffered_bytes == 0
