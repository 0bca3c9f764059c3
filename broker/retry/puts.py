"""The record that sends a message back: through a delay level to `%RETRY%<group>` (RocketMQ: consumerSendMsgBack).

It is the message as it was sent, with one failure more in its reconsume times. Added, once, at the first failure:

======================  ==============================================================================================
RETRY_TOPIC             topic of the message, RocketMQ's name for it
ORIGIN_MESSAGE_ID       offsetMsgId of the message, RocketMQ's name for it
__PYDDMQ_RETRY_QID      its queue
__PYDDMQ_RETRY_OFFSET   its offset in that queue
======================  ==============================================================================================

A record that RocketMQ sent back lacks the last two. A group of the proxy waits in a timer instead of a delay level, and
adds `__PYDDMQ_RETRY_COUNTS`: its failures, errors and timeouts, as three numbers with commas (D17).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.feature import Feature
from broker.format.message import message_of
from broker.format.numbers import whole_number
from broker.format.properties import find_property
from broker.format.record import split
from broker.format.wait_properties import REAL_QUEUE_NAME, REAL_TOPIC_NAME
from broker.queues.topics import RETRY_PREFIX, retry_topic
from broker.scheduled.delay.levels import DELAY_NAME, WAIT_NAME
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.release import Released, moved, without
from broker.scheduled.timer.puts import TimedPuts

if TYPE_CHECKING:
    from broker.store import Store

RETRY_TOPIC_NAME = b"RETRY_TOPIC"
ORIGIN_ID_NAME = b"ORIGIN_MESSAGE_ID"
QUEUE_NAME = b"__PYDDMQ_RETRY_QID"
OFFSET_NAME = b"__PYDDMQ_RETRY_OFFSET"
COUNTS_NAME = b"__PYDDMQ_RETRY_COUNTS"
RETRY_NAMES = (RETRY_TOPIC_NAME, ORIGIN_ID_NAME, QUEUE_NAME, OFFSET_NAME)

ROUTE_NAMES = (
    DELAY_NAME,
    REAL_TOPIC_NAME,
    REAL_QUEUE_NAME,
    WAIT_NAME,
    *b"TIMER_DELIVER_MS TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS".split(),
    *b"TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL".split(),
)
"""Properties by which a message was delayed before; RocketMQ leaves its own in what it delivers (reference 3.3), and a
message that is sent once more must not be delayed by them."""


class FailureCounts(NamedTuple):
    """How often a message failed, by kind (D17)."""

    fails: int
    errors: int
    timeouts: int


RETRY_FEATURE = Feature(name="retry", needs=("delay", "timer"))
"""Retries, dead letters and redrives, as `Store.open` takes them."""

FIRST_LEVEL = 3
"""Delay level of the first retry: 10 s in RocketMQ's list."""


def is_retry_topic(topic: str) -> bool:
    """Whether a topic holds what a group failed."""
    return topic.startswith(RETRY_PREFIX)


def retry_level(times: int, asked: int = 0) -> int:
    """Return the delay level of a retry (reference 3.4).

    Args:
        times: How often the message was consumed again before this failure.
        asked: The listener's choice; 0 leaves it to the broker: 3 + times. Above the highest it is the highest.
    """
    return asked if asked > 0 else FIRST_LEVEL + times


def send_back(store: Store, group: str, record: memoryview, *, times: int, level: int) -> Released:
    """Make the record that brings a message to its group once more, and makes its present record finished (D27).

    Args:
        store: The broker; the group's retry topic and the schedule topic are made where they are missing.
        group: Who failed it.
        record: Its present record, of a topic or of the group's retry topic.
        times: Its reconsume times from now on, 1 or more.
        level: 1 or more; see `retry_level`.

    Raises:
        MessageRefused: The message takes no delay, such as a body above the limit.
        DiskFull, StoreFailed: A topic is missing and cannot be made.
        DamagedRecord: The bytes are no record.
    """
    released = _sent_back(store, group, record, times)
    return released._replace(put=store.waiting(DelayedPuts).put(released.put, level))


def send_back_for(store: Store, group: str, record: memoryview, *, counts: FailureCounts, wait_ms: int) -> Released:
    """Make the record that brings a message to its group once more after an exact wait (D37).

    Args:
        store: The broker; the group's retry topic and the timer topic are made where they are missing.
        group: Who failed it.
        record: Its present record, of a topic or of the group's retry topic.
        counts: What went wrong with it so far.
        wait_ms: 0 puts it into the retry topic at once.

    Raises:
        MessageRefused: The message takes no timer: too many are due at that moment, or its properties are too long.
        DiskFull, StoreFailed: A topic is missing and cannot be made.
        DamagedRecord: The bytes are no record.
    """
    released = _sent_back(store, group, record, sum(counts))
    own = b"%b\x01%d,%d,%d\x02" % (COUNTS_NAME, *counts)
    put = released.put._replace(properties=without(released.put.properties, (COUNTS_NAME,)) + own)
    return released._replace(put=store.waiting(TimedPuts).after(put, wait_ms))


def read_counts(block: bytes, times: int) -> FailureCounts:
    """Tell what went wrong with a message in a retry topic.

    Args:
        block: Its properties.
        times: Its reconsume times; those not explained by the properties were failures.
    """
    fields = (find_property(block, COUNTS_NAME) or b"").split(b",")
    reported = [count for each in fields if (count := whole_number(each)) is not None]
    fails, errors, timeouts = reported if len(reported) == len(FailureCounts._fields) else (0, 0, 0)
    return FailureCounts(max(fails, times - errors - timeouts), errors, timeouts)


def _sent_back(store: Store, group: str, record: memoryview, times: int) -> Released:
    """The message in the group's retry topic, without a delay."""
    body, block = split(record)
    block = without(block, ROUTE_NAMES)
    message = message_of(record)
    if not is_retry_topic(message.topic) or find_property(block, RETRY_TOPIC_NAME) is None:
        # What is not in a retry topic was never sent back: these were not written by a broker.
        block = without(block, (*RETRY_NAMES, COUNTS_NAME))
        facts = (message.topic, message.id, str(message.queue_id), str(message.offset))
        pairs = zip(RETRY_NAMES, facts, strict=True)
        block += b"".join(b"%b\x01%b\x02" % (name, fact.encode()) for name, fact in pairs)
    topic = store.create_topic(retry_topic(group), 1, system=True)
    released = moved(record, body, block, topic, 0)
    return released._replace(put=released.put._replace(reconsume_times=times))
