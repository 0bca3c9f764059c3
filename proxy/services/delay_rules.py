"""What DDMQ's sendDelaySync may ask for: each field of a DelayMessage, with DDMQ's codes, in DDMQ's order (R102).

Checked besides what DDMQ checks (W77, W88): the uuid is there and has its form, the expiry has ten digits, times and
interval fit 31 bits, numbers of an id likewise. So every answered add can be cancelled by its id, and every refused one
says which field is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.scheduled.recurring.occurrence import (
    GROWING,
    LOOP,
    NUMBER_MAX,
    ONCE,
    ONCE_EXPIRES_AFTER,
    SECONDS_MAX,
    SECONDS_MIN,
    UUID,
    Occurrence,
    parse_id,
)
from proxy.services.message_rules import Refusal
from pyddmq.codes import ResultCode

ADD, CANCEL = 1, 2
AHEAD_SECONDS_MAX = 62 * 86_400
"""How far ahead the first delivery may be (R, section 5.5)."""
INTERVAL_MIN = 3
BASE_MIN = 2


def check_action(message: Mapping[str, Any]) -> int:
    """Return ADD or CANCEL. Raises Refusal: it is neither (code 32)."""
    action = message.get("action", 0)
    if action not in (ADD, CANCEL):
        text = f"invalid action {action}; use 1 to add a message, 2 to cancel one"
        raise Refusal(ResultCode.FAIL_ILLEGAL_DELAY_ACTION, text)
    return int(action)


def check_add(message: Mapping[str, Any], *, now_s: int, interval_max: int) -> Occurrence:
    """Return the first occurrence of a message to be added.

    Args:
        message: The fields that were sent.
        now_s: Wall clock, seconds since the epoch.
        interval_max: Longest interval of a loop, seconds: how far ahead the node keeps a message.

    Raises:
        Refusal: A field is wrong: codes 33, 31, 35, 36, 37 and 38, and 11 for the uuid.
    """
    at_s = message.get("timestamp", 0)
    if not SECONDS_MIN <= at_s <= now_s + AHEAD_SECONDS_MAX:
        text = (
            f"invalid timestamp {at_s}; use seconds since 1970, from {SECONDS_MIN} to 62 days from "
            f"now{_in_seconds(at_s)}"
        )
        raise Refusal(ResultCode.FAIL_ILLEGAL_DELAY_TIMESTAMP, text)
    kind = message.get("dmsgtype", 0)
    _check_kind(kind)
    times = message.get("times", 0)
    expire_s = at_s + ONCE_EXPIRES_AFTER
    interval = message.get("interval", 0)
    if kind == ONCE:
        if times != 0:
            text = f"invalid times {times}: a message of type 2 is delivered once; use 0, or type 3 or 4"
            raise Refusal(ResultCode.FAIL_ILLEGAL_DELAY_LOOP_TIMES, text)
        if not 0 <= interval <= NUMBER_MAX:
            text = f"invalid interval {interval}: type 2 has no interval; omit it"
            raise Refusal(ResultCode.FAIL_ILLEGAL_DELAY_LOOP_INTERVAL, text)
    else:
        expire_s = message.get("expire", 0)
        _check_loop(kind, at_s=at_s, times=times, expire_s=expire_s, interval=interval, interval_max=interval_max)
    uuid = message.get("uuid", "")
    if not UUID.fullmatch(uuid):
        text = f"invalid uuid {uuid[:40]!r}; use a unique one per message, 8-4-4-4-12 digits and lower-case letters"
        raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
    return Occurrence(at_s, kind, expire_s, times, 0, interval, 0, uuid)


def _check_loop(kind: int, *, at_s: int, times: int, expire_s: int, interval: int, interval_max: int) -> None:
    if not 0 < times <= NUMBER_MAX:
        text = f"invalid times {times}; use 1 to {NUMBER_MAX} deliveries for a loop"
        raise Refusal(ResultCode.FAIL_ILLEGAL_DELAY_LOOP_TIMES, text)
    if not at_s < expire_s <= SECONDS_MAX:
        text = (
            f"invalid expire {expire_s}; use seconds since 1970 with ten digits, later than the timestamp "
            f"{at_s}{_in_seconds(expire_s)}"
        )
        raise Refusal(ResultCode.FAIL_ILLEGAL_DELAY_LOOP_EXPIRE, text)
    if kind == LOOP and not INTERVAL_MIN <= interval <= min(interval_max, NUMBER_MAX):
        text = f"invalid interval {interval}; use {INTERVAL_MIN} to {min(interval_max, NUMBER_MAX)} seconds"
        raise Refusal(ResultCode.FAIL_ILLEGAL_DELAY_LOOP_INTERVAL, text)
    if kind == GROWING and not BASE_MIN <= interval <= NUMBER_MAX:
        text = f"invalid interval {interval}; use a base of {BASE_MIN} to {NUMBER_MAX} for growing gaps"
        raise Refusal(ResultCode.FAIL_ILLEGAL_DELAY_LOOP_EXPONENT_BASE, text)


def _in_seconds(number: int) -> str:
    """Say what to write where a number of seconds is probably one of milliseconds."""
    seconds = number // 1000
    return f"; this looks like milliseconds, write {seconds}" if SECONDS_MIN <= seconds <= SECONDS_MAX else ""


def _check_kind(kind: int) -> None:
    if kind not in (ONCE, LOOP, GROWING):
        text = f"invalid dmsgtype {kind}; use 2 for one delivery, 3 for a fixed interval, 4 for growing gaps"
        raise Refusal(ResultCode.FAIL_ILLEGAL_DELAY_MSG_TYPE, text)


def check_cancel(message: Mapping[str, Any]) -> Occurrence:
    """Return which message is to be cancelled, by the id of any of its occurrences.

    Raises:
        Refusal: The id has another form (code 30), another type (31), or names another inner topic than 0 (34): it is
            not from a node like this one.
    """
    text = message.get("uniqDelayMsgId", "")
    occurrence = parse_id(text)
    if occurrence is None:
        said = (
            f"invalid uniqDelayMsgId {text[:120]!r}; use the id returned by sendDelaySync (`send_delay` of "
            "the client). Operators cancel messages of deliverAtMs or delayMs with `pyddmq timers cancel`, "
            "those of delayLevel with `delays cancel`"
        )
        raise Refusal(ResultCode.FAIL_ILLEGAL_UNIQ_DELAY_MSG_ID, said)
    _check_kind(occurrence.kind)
    if occurrence.sequence != 0:
        said = (
            f"the id names inner topic {occurrence.sequence}, but only 0 exists here; the id belongs to another system"
        )
        raise Refusal(ResultCode.FAIL_ILLEGAL_DELAY_INNER_TOPIC_SEQ, said)
    return occurrence
