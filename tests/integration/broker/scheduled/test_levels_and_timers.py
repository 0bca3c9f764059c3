"""What holds for messages of delay levels and for timers alike."""

from __future__ import annotations

from typing import Any

from broker.format.message import message_of
from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.timer.puts import TimedPuts
from pyddmq.testing import SimDisk
from tests.integration import timer_tools
from tests.integration.broker.scheduled.test_cancels_beside import KINDS
from tests.integration.store_tools import HOST, ROOT
from tests.integration.waiting_tools import START_MS, TOPIC

pytestmark = KINDS


def test_delivered_message_is_the_one_that_was_sent(tools: Any) -> None:
    """Properties without those of the wait, UNIQ_KEY, body, flags, tags, born time and host; its origin."""
    made = tools.broker()
    block = encode_properties({"TAGS": "TagA", "KEYS": "k", "own": "1", "UNIQ_KEY": "0123456789ABCDEF"})
    host = bytes(16) + b"\x00\x00\x00\x07"
    put = Put(
        made.store.topics[TOPIC],
        0,
        b"body",
        block,
        b"TagA",
        b"0123456789ABCDEF",
        reconsume_times=2,
        sys_flag=0x2,
        flag=77,
    )
    if tools is timer_tools:
        waiting = made.store.waiting(TimedPuts).put(put, START_MS + 1500)
    else:
        waiting = made.store.waiting(DelayedPuts).put(put, 1)
    [position] = made.store.append([waiting], born_ms=12345, born_host=host)
    [other] = made.store.append([waiting], born_ms=54321, born_host=HOST)
    made.store.flush()
    made.scheduler.advance(2)
    made.store.put(TOPIC, b"body", tags="TagA")
    *units, (_, _, code) = made.store.topics[TOPIC].queues[0].read(0, 3)
    expected = ((12345, host, position), (54321, HOST, other))
    for (physical, size, same_code), (born_ms, born_host, origin) in zip(units, expected, strict=True):
        message = message_of(made.store.read(physical, size))
        assert message.properties == {"TAGS": "TagA", "KEYS": "k", "own": "1", "UNIQ_KEY": "0123456789ABCDEF"}
        assert (message.body(), message.flag, message.reconsume_times) == (b"body", 77, 2)
        assert (message.born_ms, message.born_host) == (born_ms, born_host)
        assert message.sys_flag & 0x2
        assert message.prepared_offset == (origin.physical or -1)
        assert code == same_code


def test_messages_of_one_moment_keep_the_order_of_sending(tools: Any) -> None:
    """Over several steps of one burst, whatever was sent in between."""
    made = tools.broker(segment_bytes=1 << 16)
    for number in range(1000):
        made.later(b"%d" % number, 5)
        made.later(b"later", 10)
    made.scheduler.advance(5)
    assert made.delivered() == [b"%d" % number for number in range(1000)]


def test_full_disk_makes_delivery_wait(tools: Any) -> None:
    """Nothing is set aside or lost for want of space; delivery goes on when there is some."""
    disk = SimDisk(capacity_bytes=80 * 4096)
    made = tools.broker(disk)
    made.later(b"x" * 3000)
    made.fill()
    before = len(made.delivered())
    made.scheduler.advance(5)
    assert (len(made.delivered()), made.pending) == (before, 1)
    assert made.metrics.value(tools.counted.WAITS) > 1
    disk.capacity_bytes = 1 << 30
    made.scheduler.advance(5)
    assert (len(made.delivered()), made.pending) == (before + 1, 0)


def test_damaged_record_is_counted_and_holds_nothing_up(tools: Any) -> None:
    """One flipped bit costs its own message."""
    made = tools.broker()
    made.later(b"first")
    end = made.store.end
    made.later(b"second")
    made.later(b"third")
    made.close()
    made.disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", end + 90)
    made = tools.broker(made.disk, made.clock)
    made.scheduler.advance(10)
    assert (made.delivered(), made.pending) == ([b"first", b"third"], 0)
    assert (made.metrics.value(tools.counted.LOST), made.metrics.value(timer_tools.counted.DAMAGED)) == (1, 0)


def test_names_of_nothing_are_unknown(tools: Any) -> None:
    """Also of another topic; a message that was delivered, or never waited, is too late."""
    made = tools.broker()
    assert made.delivery.cancel(TOPIC, "0" * 32) is CancelEffect.UNKNOWN
    made.store.create_topic("other", 1)
    waiting, plain = made.later(b"x"), made.store.put(TOPIC, b"plain").unique_key.decode()
    for topic, name in ((TOPIC, "0" * 32), ("other", waiting), ("gone", waiting)):
        assert made.delivery.cancel(topic, name) is CancelEffect.UNKNOWN
    assert made.delivery.cancel(TOPIC, plain) is CancelEffect.TOO_LATE
    made.scheduler.advance(1)
    assert made.delivery.cancel(TOPIC, waiting) is CancelEffect.TOO_LATE
    assert made.delivered() == [b"plain", b"x"]


def test_refused_message_is_cancelled(tools: Any) -> None:
    """One whose topic is gone; nothing is left that waits, over a restart too."""
    made = tools.broker()
    made.store.create_topic("gone", 1)
    stuck = made.later(b"x", topic="gone")
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(2)
    assert (made.metrics.value(tools.counted.REFUSED), made.pending) == (1, 1)
    assert made.delivery.cancel("gone", stuck) is CancelEffect.CANCELLED
    made.scheduler.advance(0)
    assert made.pending == 0
    made.store.create_topic("gone", 1)
    made.scheduler.advance(20)
    made = made.again()
    made.scheduler.advance(20)
    assert (made.delivered("gone"), made.pending) == ([], 0)
