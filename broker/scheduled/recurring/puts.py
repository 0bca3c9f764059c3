"""A loop's message as it waits in the timer topic, and as it is delivered.

It waits under two keys: the id of the occurrence, DDMQ's uniqDelayMsgId (D31), and that of the loop's first one, by
which a cancel finds what is pending whichever occurrence it was given. `__PYDDMQ_LOOP` holds the id once more; it is
all the state that a loop has. What is delivered has the id as its only key, as with DDMQ (its MqPushService).
"""

from __future__ import annotations

from broker.format.properties import find_property
from broker.log.put import Put
from broker.scheduled.recurring.names import LOOP_NAME
from broker.scheduled.recurring.occurrence import Occurrence, parse_id
from broker.scheduled.release import closed, without

_KEYS_NAME = b"KEYS"
_UNIQUE_NAME = b"UNIQ_KEY"


def occurrence_of(block: bytes) -> Occurrence | None:
    """Return which occurrence of a loop waits in a record with these properties; None when it is no loop's."""
    value = find_property(block, LOOP_NAME)
    return None if value is None else parse_id(value.decode("utf-8", "replace"))


def delivered(put: Put, occurrence: Occurrence) -> Put:
    """Return the put of an occurrence, from that of any other: with its id as key, without the loop's state."""
    rest = without(put.properties, (_KEYS_NAME, LOOP_NAME))
    return put._replace(properties=b"KEYS\x01%b\x02%b" % (occurrence.id.encode(), rest))


def waiting(put: Put, occurrence: Occurrence) -> Put:
    """Return the put of an occurrence as it waits, before it has its due time; it gets a UNIQ_KEY of its own."""
    rest = without(put.properties, (_KEYS_NAME, LOOP_NAME, _UNIQUE_NAME))
    text = occurrence.id.encode()
    keys = text if occurrence.made == 0 else b"%b %b" % (text, occurrence.first.id.encode())
    block = b"KEYS\x01%b\x02%b%b\x01%b\x02" % (keys, closed(rest), LOOP_NAME, text)
    return put._replace(properties=block, unique_key=b"")


def anew(put: Put) -> Put:
    """Return a put that gets a UNIQ_KEY of its own."""
    return put._replace(properties=without(put.properties, (_UNIQUE_NAME,)), unique_key=b"")
