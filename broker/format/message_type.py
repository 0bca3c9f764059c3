"""Which messages a topic takes: its message type, RocketMQ's topic attribute `message.type`.

In `config/topics.json` the attribute is `"attributes": {"message.type": "FIFO"}`; the `+` that RocketMQ's tools
write before it (`+message.type=FIFO`) belongs to their requests alone. RocketMQ's proxy reads a topic without it as
NORMAL, here it takes everything: MIXED.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

ATTRIBUTE = "message.type"


class MessageType(StrEnum):
    """What a topic takes.

    NORMAL: neither delayed nor half messages, and none that asks for an order. FIFO: none but those that say what they
    are ordered by, undelayed. DELAY: delayed ones alone. TRANSACTION: halves alone. MIXED: everything.
    """

    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"


class MessageKind(NamedTuple):
    """What a message is, as far as types care.

    Attributes:
        half: The first half of a transaction.
        delayed: It asks for a delay or a moment.
        keyed: Something says with which others it is in order: a key, or what `ordered` is about.
        ordered: It names the queue, or a number that chooses it: an order is asked for by more than the key.
    """

    half: bool
    delayed: bool
    keyed: bool
    ordered: bool


class MessageTypeMismatch(StrEnum):
    """Why a message does not fit a topic's type; the values end a sentence that begins with the topic."""

    HALF = "accepts no half messages"
    DELAY = "accepts no delayed messages; remove the delay"
    ORDER = "accepts no ordered messages; remove hashId and partitionId"
    NO_KEY = "accepts only ordered messages; set a key, a hashId or a partitionId"
    NO_DELAY = "accepts only delayed messages; set a delay"
    NO_HALF = "accepts only messages of transactions"


def type_of(entry: Mapping[str, Any]) -> MessageType:
    """Type in a topic's entry of `topics.json`; MIXED where there is none, or none that is known."""
    attributes = entry.get("attributes")
    value = attributes.get(ATTRIBUTE) if isinstance(attributes, Mapping) else None
    return MessageType.__members__.get(value, MessageType.MIXED) if isinstance(value, str) else MessageType.MIXED


def mismatch(wanted: MessageType, kind: MessageKind) -> MessageTypeMismatch | None:
    """Why a topic of a type does not take a message of a kind; None when it does."""
    match wanted:
        case MessageType.MIXED:
            return None
        case MessageType.TRANSACTION:
            return None if kind.half else MessageTypeMismatch.NO_HALF
        case _ if kind.half:
            return MessageTypeMismatch.HALF
        case MessageType.DELAY:
            return None if kind.delayed else MessageTypeMismatch.NO_DELAY
        case _ if kind.delayed:
            return MessageTypeMismatch.DELAY
        case MessageType.FIFO:
            return None if kind.keyed else MessageTypeMismatch.NO_KEY
        case MessageType.NORMAL:
            return MessageTypeMismatch.ORDER if kind.ordered else None
