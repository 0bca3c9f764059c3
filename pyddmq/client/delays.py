"""Delayed messages and loops as DDMQ's clients send them: sendDelaySync, and its cancel."""

from __future__ import annotations

import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from pyddmq.client.errors import ClientMisuse

ONCE, LOOP, GROWING = 2, 3, 4
TIMES_MAX = (1 << 31) - 1
EXPIRE_MAX = 9_999_999_999
_ADD, _CANCEL = 1, 2
_DUMMY = b"-"
"""DDMQ refuses a cancel without a body (R103)."""

Body = bytes | bytearray | memoryview
"""What a message holds."""

Moment = datetime | float
"""A moment: seconds since the Unix epoch, or a datetime with its zone."""


class CancelOutcome(StrEnum):
    """What became of a cancel.

    CANCELLED: nothing is delivered any more. TOO_LATE: the last delivery was made before. UNKNOWN: the node has no
    such message. UNTOLD: the node took the cancel and does not say (DDMQ's own).
    """

    CANCELLED = "cancelled"
    TOO_LATE = "too late"
    UNKNOWN = "unknown"
    UNTOLD = "untold"


_OUTCOMES = {1: CancelOutcome.CANCELLED, 2: CancelOutcome.TOO_LATE, 3: CancelOutcome.UNKNOWN}


class DelayedSends(ABC):
    """The part of a producer that sends messages for later."""

    _idl: Any
    _timeout_ms: int

    @abstractmethod
    def _call(
        self, method: str, arguments: Mapping[str, object], timeout_ms: int, messages: Sequence[Any] = ()
    ) -> tuple[Any, int]:
        """Call with the resend policy; returns the result, whose code is 0, and how often it was sent."""

    def send_delay(
        self,
        topic: str,
        body: Body,
        *,
        at: Moment,
        every: int | None = None,
        growth: int | None = None,
        times: int | None = None,
        expire: Moment | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> str:
        """Send a message that is delivered at a moment, or again and again (docs/loops.md).

        Sent again after a lost answer it is still one message: the node knows it by its id.

        Args:
            topic: Name of the topic.
            body: The message's bytes.
            at: When it is delivered first, to the second, rounded up; what is past means now.
            every: Makes it a loop: seconds from one delivery to the next, at least 3.
            growth: Makes it a loop with growing gaps: of growth, growth squared, ... seconds, at most a day.
            times: Deliveries of a loop; without it `expire` ends it.
            expire: No delivery of a loop is for a moment after this; without it `times` ends it.
            tags: RocketMQ tags.
            properties: User properties.
            timeout_ms: In the place of the producer's own.

        Returns:
            Its id, DDMQ's uniqDelayMsgId, which `cancel_delay` takes. Deliveries have ids of their own, as key.

        Raises:
            ClientMisuse: `every` and `growth` together, a loop without an end, an end without a loop, a moment
                without a zone, a body that is no bytes, or the producer is closed.
            Unreachable: No answer; the message may be stored when its `sent` says so.
            SendRefused: The node refused it.
        """
        message = delay_message(
            self._idl,
            topic,
            body,
            at=at,
            every=every,
            growth=growth,
            times=times,
            expire=expire,
            tags=tags,
            properties=properties,
        )
        result, _ = self._send_delayed(message, timeout_ms, [message])
        return str(result.uniqDelayMsgId)

    def cancel_delay(self, delay_id: str, topic: str, *, timeout_ms: int | None = None) -> CancelOutcome:
        """Have a message of `send_delay` not delivered, or no more; may be repeated.

        Args:
            delay_id: Its id, or that of any delivery of a loop.
            topic: Where it was sent to.
            timeout_ms: In the place of the producer's own.

        Raises:
            Unreachable: No answer; the cancel may be in force.
            SendRefused: The node refused it; code 30 says that this is no id.
        """
        result, _ = self._send_delayed(cancel_message(self._idl, delay_id, topic), timeout_ms)
        return outcome_of(result)

    def _send_delayed(self, message: Any, timeout_ms: int | None, messages: Sequence[Any] = ()) -> tuple[Any, int]:
        timeout_ms = timeout_ms or self._timeout_ms
        return self._call("sendDelaySync", {"delayMessage": message, "timeout": timeout_ms}, timeout_ms, messages)


def delay_message(
    idl: Any,
    topic: str,
    body: Body,
    *,
    at: Moment,
    every: int | None,
    growth: int | None,
    times: int | None,
    expire: Moment | None,
    tags: str | None,
    properties: Mapping[str, str] | None,
) -> Any:
    """Build what `send_delay` sends; see there. Raises ClientMisuse: its parts do not go together."""
    kind = _kind(every, growth)
    if (kind == ONCE) != (times is None and expire is None):
        raise ClientMisuse("a loop has `every` or `growth`, and `times` or `expire` (or both); others have none")
    return idl.DelayMessage(
        topic=topic,
        body=body_bytes(body),
        tags=tags,
        action=_ADD,
        timestamp=_seconds(at, math.ceil),
        dmsgtype=kind,
        interval=every or growth or 0,
        expire=0 if kind == ONCE else EXPIRE_MAX if expire is None else _seconds(expire, math.floor),
        times=0 if kind == ONCE else TIMES_MAX if times is None else times,
        uuid=str(uuid.uuid4()),
        properties=dict(properties) if properties else None,
    )


def cancel_message(idl: Any, delay_id: str, topic: str) -> Any:
    """Build what `cancel_delay` sends."""
    return idl.DelayMessage(topic=topic, body=_DUMMY, action=_CANCEL, uniqDelayMsgId=delay_id)


def outcome_of(result: Any) -> CancelOutcome:
    """Say what became of a cancel that was answered."""
    return _OUTCOMES.get(result.cancelOutcome, CancelOutcome.UNTOLD)


def body_bytes(body: object) -> bytes:
    """Return a message's body as bytes. Raises ClientMisuse: it is none."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    kind = type(body).__name__
    raise ClientMisuse(f"the body of a message is {kind}: give bytes, of a text for example text.encode()")


def _kind(every: int | None, growth: int | None) -> int:
    if every is not None and growth is not None:
        raise ClientMisuse("give `every` or `growth`, not both")
    return LOOP if every is not None else GROWING if growth is not None else ONCE


def _seconds(moment: Moment, rounded: Any) -> int:
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ClientMisuse(f"{moment.isoformat()} has no time zone; give it one")
        moment = moment.timestamp()
    return int(rounded(moment))
