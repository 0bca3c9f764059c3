"""Whether a dead letter fits the message type of the topic that a redrive sends it to (`broker.format.message_type`).

A redriven message is neither delayed nor half, and its order is that of its key. For the topic that it came from there
is more to say: it goes to its queue, which is an order too, and it may have been delayed, or a half, before it
was delivered. The record that it was delivered as decides: it replaces one of a delay level, of the timers or of the
halves (D27). Where that is gone, or is itself a redriven one, the message is taken to fit, as it did when it was sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.format.message_type import MessageKind, MessageType, MessageTypeMismatch, mismatch
from broker.query import NotFound, at_offset
from broker.queues.topics import DEAD_LETTER_PREFIX
from broker.scheduled.delay.levels import SCHEDULE_NAME
from broker.scheduled.timer.names import TIMER_NAME
from broker.transaction.names import HALF_TOPIC

if TYPE_CHECKING:
    from broker.queues.topics import Topic
    from broker.retry.letters import Letter
    from broker.store import Store

_HALF_NAME = HALF_TOPIC.encode()
_DEAD = DEAD_LETTER_PREFIX.encode()


def misfit(store: Store, letter: Letter, topic: Topic) -> MessageTypeMismatch | None:
    """Return why a topic does not take a dead letter, None when it does."""
    wanted = topic.message_type
    if wanted is MessageType.MIXED:
        return None
    keyed = bool(letter.key)
    if topic.name != letter.topic:
        return mismatch(wanted, MessageKind(half=False, delayed=False, keyed=keyed, ordered=False))
    keyed = keyed or letter.queue is not None
    if wanted not in (MessageType.DELAY, MessageType.TRANSACTION):
        return mismatch(wanted, MessageKind(half=False, delayed=False, keyed=keyed, ordered=False))
    before = _waited_in(store, letter, topic)
    if before is None or before.startswith(_DEAD):
        return None
    delayed, half = before in (SCHEDULE_NAME, TIMER_NAME), before == _HALF_NAME
    return mismatch(wanted, MessageKind(half=half, delayed=delayed, keyed=keyed, ordered=False))


def _waited_in(store: Store, letter: Letter, topic: Topic) -> bytes | None:
    """Topic of the record that the message was delivered from; b"" when it came at once, None when it is unknown."""
    offset = letter.offset_in_topic
    if letter.message is None or letter.queue is None or offset is None:
        return None
    try:
        sent = at_offset(store, topic.name, letter.queue, offset)
    except NotFound:
        return None
    if sent.unique_key != letter.message.unique_key:
        # The topic was deleted and made again.
        return None
    if not sent.prepared_offset:
        return b""
    entry = store.record_at(max(sent.prepared_offset, 0))
    return None if entry is None else entry.topic
