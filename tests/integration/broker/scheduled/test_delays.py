"""Delay levels: RocketMQ's form in the store, delivery at the due time, what is refused, and clocks that step."""

from __future__ import annotations

import contextlib
import errno
import json

import pytest

from broker.errors import MessageRefused
from broker.format.message import message_of
from broker.log.put import Put
from broker.runtime.steps import StepsEnd, step
from broker.scheduled.delay import metrics as counted
from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from broker.scheduled.delay.listing import due_counts
from broker.scheduled.delay.puts import DelayedPuts
from tests.integration.delay_tools import LEVELS_S, START_MS, TOPIC, Broker, broker
from tests.integration.store_tools import HOST, ROOT


def records(made: Broker, topic: str, queue_id: int = 0) -> list[tuple[int, int, int]]:
    """Units of a queue."""
    queue = made.store.topics[topic].queues[queue_id]
    return queue.read(queue.min_offset, queue.max_offset)


def test_delayed_message_stands_in_the_log_as_rocketmq_writes_it() -> None:
    """Schedule topic, queue of the level, properties, and the due time in the place of the tags code."""
    made = broker()
    made.send(b"x", 3, tags="TagA", key="k")
    [(physical, size, due)] = records(made, SCHEDULE_TOPIC, 2)
    message = message_of(made.store.read(physical, size))
    assert due == message.store_ms + 10_000
    wanted = {"DELAY": "3", "REAL_TOPIC": TOPIC, "REAL_QID": "0", "TAGS": "TagA", "KEYS": "k"}
    assert wanted.items() <= message.properties.items()
    assert len(made.store.topics[SCHEDULE_TOPIC].queues) == 18


def test_each_level_is_delivered_at_its_due_time() -> None:
    """All eighteen, over two virtual hours, each at its very millisecond and none before."""
    made = broker()
    for level in range(18, 0, -1):
        made.send(b"%d" % level, level)
    made.scheduler.advance(7199.999)
    assert made.delivered() == [b"%d" % level for level in range(1, 18)]
    made.scheduler.advance(0.001)
    assert made.times() == [seconds * 1000 for seconds in LEVELS_S]
    assert made.pending == 0
    assert made.scheduler.next_due() is None or made.metrics.value(counted.LATE_MAX) == 0


def test_level_above_the_highest_is_the_highest() -> None:
    """RocketMQ clamps it, and so does this broker; a negative one is refused."""
    made = broker(delay_levels="1s 2m")
    made.send(b"x", 99)
    assert len(records(made, SCHEDULE_TOPIC, 1)) == 1
    made.scheduler.advance(119.9)
    assert made.delivered() == []
    made.scheduler.advance(0.1)
    assert made.delivered() == [b"x"]
    with pytest.raises(MessageRefused, match="negative; use 1 to 2"):
        made.send(b"x", -1)


def test_refused_message_does_not_hold_its_level() -> None:
    """Its topic is gone: the others go on, it is counted, and is delivered once the topic is there again."""
    made = broker()
    made.store.create_topic("gone", 1)
    made.send(b"stuck", 1, "gone")
    made.send(b"free", 1)
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(1)
    assert made.delivered() == [b"free"]
    assert made.metrics.value(counted.REFUSED) == 1
    [refused] = made.delays.levels[1].refused.values()
    assert "topic 'gone' does not exist" in refused.reason
    made.scheduler.advance(60)
    assert made.metrics.value(counted.REFUSED) == 7
    made.store.create_topic("gone", 1)
    made.scheduler.advance(10)
    assert made.delivered("gone") == [b"stuck"]
    assert made.pending == 0


def test_refused_message_outlives_restarts() -> None:
    """What was delivered above it does not come again, with and without the files that say so."""
    made = broker()
    made.store.create_topic("gone", 1)
    made.send(b"stuck", 1, "gone")
    made.send(b"free", 1)
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(7)
    everything = ["config/delayOffset.json", "pyddmq/delays.json", "pyddmq/delayOffset.json"]
    for lost in ([], ["pyddmq/delays.json"], everything):
        made.delays.save()
        made.delays.stop()
        made.store.abandon()
        for name in lost:
            made.disk.remove(f"{ROOT}/{name}")
        made = made.again()
        made.scheduler.advance(1)
        assert (made.delivered(), made.pending) == ([b"free"], 1)
    made.store.create_topic("gone", 1)
    made.scheduler.advance(10)
    assert made.delivered("gone") == [b"stuck"]


def test_queue_that_cannot_be_read_stops_the_store_and_a_restart_delivers() -> None:
    """The delivery does not end without a word, with messages that nobody takes up again."""
    made = broker()
    for number in range(20):
        made.send(b"%d" % number, 2)
    made.close()
    made = made.opened_again()
    made.disk.fail("read", path_part="SCHEDULE_TOPIC_XXXX", error=errno.ENXIO)
    with contextlib.suppress(OSError):
        made.scheduler.advance(10)
    assert made.store.failed is not None
    made = made.again()
    made.scheduler.advance(10)
    assert made.delivered() == [b"%d" % number for number in range(20)]


def test_counts_by_due_time_take_steps_however_many_were_cancelled_between() -> None:
    """A level has a range for each row of cancelled ones, and each page that shows the counts asks for them."""
    made = broker()
    for number in range(40):
        made.send(b"%d" % number, 18)
        made.clock.advance(60)
    level = made.delays.levels[18]
    for offset in range(1, 40, 2):
        level.complete(offset)
    ends_ms = [START_MS + 7_200_000 + 60_000 * number for number in range(0, 40, 5)]
    steps, turns = due_counts(made.delays, ends_ms, level=18), 0
    while not isinstance(counts := step(steps), StepsEnd):
        turns += 1
    assert turns > len(ends_ms)
    assert counts.result == [0, 3, 2, 3, 2, 3, 2, 3, 2]


def test_forward_step_delivers_at_once() -> None:
    """What became due by the step goes within a second of it."""
    made = broker()
    made.send(b"x", 18)
    made.scheduler.advance(10)
    made.clock.set_wall_ms(START_MS + 7_200_000)
    made.scheduler.advance(1)
    assert made.delivered() == [b"x"]


def test_back_step_neither_repeats_nor_delays_by_the_step() -> None:
    """What waited is due after the delay at the latest, what comes later by the wall clock; in any order of events."""
    made = broker()
    made.send(b"done", 1)
    made.scheduler.advance(1)
    made.send(b"before", 4)
    made.scheduler.advance(10)
    made.clock.set_wall_ms(START_MS - 3_600_000)
    made.scheduler.advance(1)
    made.send(b"after", 4)
    made.scheduler.advance(29.9)
    assert made.delivered() == [b"done"]
    made.scheduler.advance(0.1)
    assert made.delivered() == [b"done", b"before", b"after"]


def test_due_time_set_back_survives_a_restart_and_a_lost_queue() -> None:
    """The store timestamp stands still after a back step; the due time is fixed all the same, also when made anew."""
    made = broker()
    made.store.put(TOPIC, b"now")
    made.clock.set_wall_ms(START_MS - 3_600_000)
    made.send(b"x", 4)
    [unit] = records(made, SCHEDULE_TOPIC, 3)
    assert unit[2] == START_MS - 3_600_000 + 30_000
    made.delays.stop()
    made.store.abandon()
    made.disk.kill()
    made.disk.remove(f"{ROOT}/pyddmq/checkpoint.json")
    made = broker(made.disk, made.clock)
    assert records(made, SCHEDULE_TOPIC, 3) == [unit]
    made.scheduler.advance(29.9)
    assert made.delivered() == [b"now"]
    made.scheduler.advance(0.1)
    assert made.delivered() == [b"now", b"x"]


def test_positions_have_rocketmqs_shape() -> None:
    """Level to next offset, written within seconds and at the stop."""
    made = broker()
    made.send(b"x", 1)
    made.send(b"y", 2)
    made.scheduler.advance(5.0)
    made.close()
    file = made.disk.open(f"{ROOT}/config/delayOffset.json")
    content = json.loads(file.read(0, file.size()))
    assert content["offsetTable"] == {str(level): int(level in (1, 2)) for level in range(1, 19)}
    assert content["dataVersion"].keys() == {"counter", "stateVersion", "timestamp"}


def test_position_that_rocketmq_moved_is_honoured() -> None:
    """What RocketMQ delivered is below the offset in its file, and is not delivered again."""
    made = broker()
    for number in range(4):
        made.send(b"%d" % number, 3)
    made.close()
    path = f"{ROOT}/config/delayOffset.json"
    made.disk.remove(path)
    made.disk.open(path, create=True).write(0, [b'{"dataVersion":{"counter":9},"offsetTable":{3:3}}'])
    made = broker(made.disk, made.clock)
    made.scheduler.advance(10)
    assert made.delivered() == [b"3"]


def test_checkpoint_saves_reading_the_log() -> None:
    """It covers the log to its end, so that a start after an orderly stop reads none of it."""
    made = broker()
    made.send(b"x", 18)
    for _ in range(20):
        made.store.put(TOPIC, b"y" * 500)
    end = made.store.end
    made.close()
    file = made.disk.open(f"{ROOT}/pyddmq/delays.json")
    assert json.loads(file.read(0, file.size()))["data"]["log_end"] == end
    made = broker(made.disk, made.clock)
    made.delays.save()
    assert list(made.store.decisions(end)) == []


def test_message_of_a_batch_may_be_delayed() -> None:
    """The batch is stored as a whole, and each member comes at its time."""
    made = broker()
    topic = made.store.topics[TOPIC]
    puts = [Put(topic, 0, b"now", b""), made.store.waiting(DelayedPuts).put(Put(topic, 0, b"later", b""), 1)]
    made.store.append(puts, born_ms=1, born_host=HOST, atomic=True)
    made.store.flush()
    assert made.delivered() == [b"now"]
    made.scheduler.advance(1)
    assert made.delivered() == [b"now", b"later"]


def test_what_was_delivered_behind_a_refused_message_does_not_come_again() -> None:
    """A start that can deliver the refused one knows the others by the log, and passes over them."""
    node = broker()
    node.store.create_topic("gone", 1)
    node.send(b"stuck", 1, "gone")
    for body in (b"a", b"b"):
        node.send(body, 1)
    node.store.topic_changes.delete("gone")
    node.scheduler.advance(2)
    assert node.delivered() == [b"a", b"b"]
    node = node.again(start=False)
    node.store.create_topic("gone", 1)
    node.delays.start()
    node.scheduler.advance(30)
    assert node.delivered("gone") == [b"stuck"]
    assert node.delivered() == [b"a", b"b"]
