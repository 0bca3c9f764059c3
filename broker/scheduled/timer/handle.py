"""Recall handles: what names a timer towards its producer, in RocketMQ's form (reference 5.6, RecallMessageHandle).

`v1 topic brokerName timestamp msgId`, spaces between, in URL-safe Base64. The timestamp is TIMER_OUT_MS + 1, so that
rounding it gives the timer's slot again; msgId is the UNIQ_KEY. With topic and UNIQ_KEY it holds the timer's identity
(D31).
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from broker.errors import MessageRefused
from broker.format.numbers import whole_number

_VERSION = "v1"
_CHARS_MAX = 1024


class RecallHandle(NamedTuple):
    """A handle's content; `str` writes it.

    Attributes:
        topic: Where the timer is to be delivered.
        broker_name: Of the broker that has it.
        timestamp_ms: TIMER_OUT_MS + 1.
        unique_key: The message's UNIQ_KEY.
    """

    topic: str
    broker_name: str
    timestamp_ms: int
    unique_key: str

    def __str__(self) -> str:
        text = f"{_VERSION} {self.topic} {self.broker_name} {self.timestamp_ms} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def parse(cls, text: str) -> RecallHandle:
        """Read a handle.

        Raises:
            MessageRefused: It is none.
        """
        problem = "is not a valid timer handle; use the handle of the message's receipt, or topic and id"
        try:
            # Standard Base64 is refused, as RocketMQ does; so is text that decoding would pass over.
            if len(text) > _CHARS_MAX:
                raise ValueError
            raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
            version, topic, rest = raw.decode().split(" ", 2)
            # The broker's name is the one that may have spaces of its own.
            broker_name, timestamp, unique_key = rest.rsplit(" ", 2)
            if version != _VERSION or not (topic and broker_name and unique_key):
                raise ValueError
            if (time_ms := whole_number(timestamp)) is None:
                raise ValueError
            return cls(topic, broker_name, time_ms, unique_key)
        except (ValueError, binascii.Error):
            raise MessageRefused(f"{text[:80]!r} {problem}") from None


def parse_handle(text: str) -> RecallHandle | None:
    """Return a handle's content; None when the text is none."""
    try:
        return RecallHandle.parse(text)
    except MessageRefused:
        return None
