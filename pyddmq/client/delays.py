"""Delayed messages and loops as DDMQ's clients send them: sendDelaySync, and its cancel."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from pyddmq.client.errors import ClientMisuse
from pyddmq.client.requests import Body, NodeRequest, body_bytes

ONCE, LOOP, GROWING = 2, 3, 4
TIMES_MAX = (1 << 31) - 1
EXPIRE_MAX = 9_999_999_999
_ADD, _CANCEL = 1, 2
_DUMMY = b"-"
"""DDMQ refuses a cancel without a body (R103)."""

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


def delay_request(message: Any, timeout_ms: int) -> NodeRequest[str]:
    """Return the call that sends what `delay_message` built; it returns the id."""
    arguments = {"delayMessage": message, "timeout": timeout_ms}
    return NodeRequest("sendDelaySync", arguments, timeout_ms, [message], lambda result, _: str(result.uniqDelayMsgId))


def cancel_request(idl: Any, delay_id: str, topic: str, timeout_ms: int) -> NodeRequest[CancelOutcome]:
    """Return the call that cancels a delayed message or loop."""
    message = idl.DelayMessage(topic=topic, body=_DUMMY, action=_CANCEL, uniqDelayMsgId=delay_id)
    return NodeRequest("sendDelaySync", {"delayMessage": message, "timeout": timeout_ms}, timeout_ms, (), outcome_of)


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


def outcome_of(result: Any, _attempts: int) -> CancelOutcome:
    """Say what became of a cancel that was answered."""
    return _OUTCOMES.get(result.cancelOutcome, CancelOutcome.UNTOLD)


def _kind(every: int | None, growth: int | None) -> int:
    if every is not None and growth is not None:
        raise ClientMisuse("`every` and `growth` exclude each other; pass one")
    return LOOP if every is not None else GROWING if growth is not None else ONCE


def _seconds(moment: Moment, rounded: Any) -> int:
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ClientMisuse(f"{moment.isoformat()} has no time zone; give it one")
        moment = moment.timestamp()
    return int(rounded(moment))
