"""Which queue a message goes to when the program decides: RocketMQ's `MessageQueueSelector`, in process.

A selector is any callable that gets the topic's queues in the order of their ids, the message and an argument of the
caller's, and returns one of the queues. Messages that a selector sends to one queue, one after the other, are stored
and consumed in that order. When the topic gets more queues, `select_by_hash` sends a key elsewhere than before: what
an orderly consumer had not consumed by then may be overtaken. (The proxy's groups do not mind, D14.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from broker.format.java import queue_of_hash, string_hash
from broker.queues.message_queue import BROKER_NAME, MessageQueue, queue_names
from broker.runtime.seams import Buffer

if TYPE_CHECKING:
    from broker.log.put import LogPosition
    from broker.store import Store

_INT_BITS = 31
_LONG_BITS = 63


class SelectedMessage(NamedTuple):
    """A message as its selector sees it."""

    topic: str
    body: Buffer
    key: str = ""
    tags: str = ""
    properties: Mapping[str, str] | None = None


Selector = Callable[[Sequence[MessageQueue], SelectedMessage, object], MessageQueue]


def java_hash(value: object) -> int:
    """`hashCode()` of the Java object that a Python one represents: a signed 32-bit integer.

    A text is a String, a bool a Boolean, an integer an Integer where 32 bits hold it and a Long beyond. None is 0.

    Raises:
        TypeError: Any other type; Java has no hash of it that two programs share.
        OverflowError: An integer beyond 64 bits.
    """
    if value is None:
        return 0
    if isinstance(value, str):
        return string_hash(value)
    if isinstance(value, bool):
        return 1231 if value else 1237
    if not isinstance(value, int):
        raise TypeError(f"no Java hash of a {type(value).__name__}; use a text or an integer as the argument")
    if not -(1 << _LONG_BITS) <= value < 1 << _LONG_BITS:
        raise OverflowError(f"{value} does not fit into 64 bits; use a text as the argument")
    if -(1 << _INT_BITS) <= value < 1 << _INT_BITS:
        return value
    bits = value & 0xFFFFFFFFFFFFFFFF
    folded = (bits ^ bits >> 32) & 0xFFFFFFFF
    return (folded + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def select_by_hash(queues: Sequence[MessageQueue], message: SelectedMessage, arg: object) -> MessageQueue:
    """Take the queue at |hash of `arg`| modulo their number (RocketMQ: SelectMessageQueueByHash).

    Java's remainder keeps the sign and the absolute value is taken afterwards, so -7 of 4 queues is 3 (reference 6.1).
    It is the rule by which keys choose their queues everywhere (`queue_of_hash`).

    Raises:
        TypeError, OverflowError: As `java_hash`.
    """
    return queues[queue_of_hash(java_hash(arg), len(queues))]


class SelectByRandom:
    """Takes any queue (RocketMQ: SelectMessageQueueByRandom)."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def __call__(self, queues: Sequence[MessageQueue], message: SelectedMessage, arg: object) -> MessageQueue:
        """Take any of them."""
        return queues[self._random.randrange(len(queues))]


def put_selected(
    store: Store,
    topic: str,
    body: Buffer,
    *,
    selector: Selector,
    arg: object = None,
    key: str = "",
    tags: str = "",
    properties: Mapping[str, str] | None = None,
    broker_name: str = BROKER_NAME,
) -> LogPosition:
    """Append one message to the queue that a selector takes, and flush: `Store.put` with a selector.

    A refused message goes nowhere: there is no other queue to fail over to (order before availability).

    Raises:
        KeyError: No topic has that name.
        ValueError: The selector returned something else than one of the queues.
        StoreError: As `Store.put`.
        Exception: Whatever the selector raised.
    """
    queues = queue_names(topic, broker_name, range(len(store.topics[topic].queues)))
    chosen = selector(queues, SelectedMessage(topic, body, key, tags, properties), arg)
    if chosen not in queues:
        raise ValueError(f"the selector returned {chosen!r}, which is not one of the {len(queues)} queues of {topic!r}")
    return store.put(topic, body, key=key, tags=tags, properties=properties, queue_id=chosen.queue_id)
