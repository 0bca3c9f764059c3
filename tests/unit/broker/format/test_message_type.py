"""Which kind of message fits which type of topic, and what topics.json says of it."""

from __future__ import annotations

from itertools import product

import pytest

from broker.format.message_type import MessageKind, MessageType, MessageTypeMismatch, mismatch, type_of

PLAIN = MessageKind(half=False, delayed=False, keyed=False, ordered=False)
KEYED = PLAIN._replace(keyed=True)
ORDERED = KEYED._replace(ordered=True)
DELAYED = PLAIN._replace(delayed=True)
HALF = PLAIN._replace(half=True)


@pytest.mark.parametrize(
    ("wanted", "kind", "problem"),
    [
        (MessageType.NORMAL, PLAIN, None),
        (MessageType.NORMAL, KEYED, None),
        (MessageType.NORMAL, ORDERED, MessageTypeMismatch.ORDER),
        (MessageType.NORMAL, DELAYED, MessageTypeMismatch.DELAY),
        (MessageType.NORMAL, HALF, MessageTypeMismatch.HALF),
        (MessageType.FIFO, PLAIN, MessageTypeMismatch.NO_KEY),
        (MessageType.FIFO, KEYED, None),
        (MessageType.FIFO, ORDERED, None),
        (MessageType.FIFO, KEYED._replace(delayed=True), MessageTypeMismatch.DELAY),
        (MessageType.FIFO, KEYED._replace(half=True), MessageTypeMismatch.HALF),
        (MessageType.DELAY, PLAIN, MessageTypeMismatch.NO_DELAY),
        (MessageType.DELAY, ORDERED, MessageTypeMismatch.NO_DELAY),
        (MessageType.DELAY, DELAYED, None),
        (MessageType.DELAY, DELAYED._replace(half=True), MessageTypeMismatch.HALF),
        (MessageType.TRANSACTION, PLAIN, MessageTypeMismatch.NO_HALF),
        (MessageType.TRANSACTION, DELAYED, MessageTypeMismatch.NO_HALF),
        (MessageType.TRANSACTION, HALF, None),
        (MessageType.TRANSACTION, HALF._replace(delayed=True), None),
    ],
)
def test_kind_fits_type_or_is_told_why(
    wanted: MessageType, kind: MessageKind, problem: MessageTypeMismatch | None
) -> None:
    """The table of types and kinds."""
    assert mismatch(wanted, kind) is problem


def test_mixed_takes_everything() -> None:
    """No kind is refused by a topic that did not say."""
    assert {mismatch(MessageType.MIXED, MessageKind(*bits)) for bits in product((False, True), repeat=4)} == {None}


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ({"attributes": {"message.type": "FIFO"}}, MessageType.FIFO),
        ({"attributes": {"message.type": "UNSPECIFIED"}}, MessageType.MIXED),
        ({"attributes": {"message.type": "fifo"}}, MessageType.MIXED),
        ({"attributes": {"message.type": 3}}, MessageType.MIXED),
        ({"attributes": {"queue.type": "SimpleCQ"}}, MessageType.MIXED),
        ({"attributes": None}, MessageType.MIXED),
        ({}, MessageType.MIXED),
    ],
)
def test_type_is_the_attribute_of_the_file(entry: dict[str, object], wanted: MessageType) -> None:
    """Anything that is no type of these five takes everything, as a topic without the attribute does."""
    assert type_of(entry) is wanted
