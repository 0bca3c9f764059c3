"""Calls and replies of transactions: sendHalfSync, endTransaction, fetchChecks (D33), over the generic codec.

These methods are called once or twice per transaction, which costs its producer a local transaction besides; nothing
here is worth a scanner of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from proxy.wire.call import Call
from proxy.wire.errors import ArgumentsError
from proxy.wire.generic.calls import decode_arguments, encode_reply
from proxy.wire.limits import PROPERTIES_MAX
from proxy.wire.replies import repeat_of
from proxy.wire.values import SendMessage


class HalfCall(NamedTuple):
    """A sendHalfSync.

    Attributes:
        message: The message, its body and texts checked as those of sendSync.
        group: The producer group; "" when it was absent.
        timeout_ms: None when the argument is absent.
    """

    message: SendMessage
    group: str
    timeout_ms: int | None


class EndRequest(NamedTuple):
    """An EndTransaction.

    Attributes:
        group: The producer group; "" when absent.
        handle: What sendHalfSync or a check gave; "" when absent.
        state: 0 unknown, 8 commit, 12 rollback, or whatever was sent; 0 when absent.
        from_check: Whether it answers a check.
        remark: For people; "" when absent.
    """

    group: str
    handle: str
    state: int
    from_check: bool
    remark: str


class CheckCall(NamedTuple):
    """A fetchChecks.

    Attributes:
        group: The producer group; "" when absent.
        count_max: maxBatchSize as sent, or None.
        linger_ms: maxLingerTime as sent, or None.
        answers: Answers to earlier checks, in the order of the list.
    """

    group: str
    count_max: int | None
    linger_ms: int | None
    answers: list[EndRequest]


class CheckRow(NamedTuple):
    """One check of a reply to fetchChecks.

    Attributes:
        handle: Names the half.
        transaction_id: Its id.
        times: Which check of this half it is, from 1 on.
        message: The fields of its Message, by name.
        born_ms: When the half arrived, wall clock.
    """

    handle: str
    transaction_id: str
    times: int
    message: dict[str, Any]
    born_ms: int


def scan_half(call: Call) -> HalfCall:
    """Decode the arguments of sendHalfSync. Raises ArgumentsError."""
    arguments = decode_arguments(call)
    message = arguments.get("message")
    if message is None:
        raise ArgumentsError("sendHalfSync without its argument message")
    return HalfCall(_message(message), arguments.get("producerGroup", ""), arguments.get("timeout"))


def scan_end(call: Call) -> EndRequest:
    """Decode the arguments of endTransaction. Raises ArgumentsError."""
    decision = decode_arguments(call).get("decision")
    if decision is None:
        raise ArgumentsError("endTransaction without its argument, an EndTransaction")
    return _ending(decision)


def scan_fetch_checks(call: Call) -> CheckCall:
    """Decode the arguments of fetchChecks. Raises ArgumentsError."""
    request = decode_arguments(call).get("request")
    if request is None:
        raise ArgumentsError("fetchChecks without its argument request")
    return CheckCall(
        request.get("producerGroup", ""),
        request.get("maxBatchSize"),
        request.get("maxLingerTime"),
        [_ending(answer) for answer in request.get("answers", [])],
    )


def encode_half_reply(
    call: Call,
    code: int,
    msg: str,
    *,
    key: str | None = None,
    transaction_id: str | None = None,
    handle: str | None = None,
    offset: int | None = None,
    repeat: int | None = None,
    retry_after_ms: int | None = None,
) -> bytes:
    """Encode the reply of sendHalfSync.

    Args:
        call: The call that is answered.
        code: A ResultCode.
        msg: Its text, for people.
        key: Of the message.
        transaction_id: Of a half that is stored, like the next two.
        handle: Names it in endTransaction.
        offset: Its place among the halves.
        repeat: As in `encode_result_reply`.
        retry_after_ms: Likewise.
    """
    fields = {
        "code": int(code),
        "msg": msg,
        "key": key,
        "transactionId": transaction_id,
        "handle": handle,
        "offset": offset,
        "repeat": repeat_of(code, repeat),
        "retryAfterMs": retry_after_ms,
    }
    return encode_reply(call, {"success": fields})


def encode_checks_reply(call: Call, checks: Iterable[CheckRow]) -> bytes:
    """Encode the reply of fetchChecks."""
    rows = [
        {
            "handle": check.handle,
            "transactionId": check.transaction_id,
            "checkTimes": check.times,
            "message": check.message,
            "bornTimestamp": check.born_ms,
        }
        for check in checks
    ]
    return encode_reply(call, {"success": rows})


def _ending(fields: dict[str, Any]) -> EndRequest:
    return EndRequest(
        fields.get("producerGroup", ""),
        fields.get("handle", ""),
        fields.get("state", 0),
        fields.get("fromCheck", False),
        fields.get("remark", ""),
    )


def _message(fields: dict[str, Any]) -> SendMessage:
    """Return a Message as the scanners of the other sends do."""
    given = fields.get("properties") or {}
    if len(given) > PROPERTIES_MAX:
        raise ArgumentsError(f"a message with {len(given)} properties: at most {PROPERTIES_MAX} are allowed")
    properties = (tuple(name.encode() for name in given), tuple(value.encode() for value in given.values()))
    body = fields.get("body")
    return SendMessage(
        topic=fields.get("topic", "").encode(),
        key=_bytes(fields.get("key")),
        value=_bytes(fields.get("value")),
        hash_id=fields.get("hashId", 0),
        tags=_bytes(fields.get("tags")),
        partition_id=fields.get("partitionId", -1),
        body=None if body is None else memoryview(body),
        version=_bytes(fields.get("version")),
        properties=properties if given else None,
        delay_level=fields.get("delayLevel"),
        deliver_at_ms=fields.get("deliverAtMs"),
        delay_ms=fields.get("delayMs"),
        unique_key=_bytes(fields.get("uniqKey")),
    )


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
