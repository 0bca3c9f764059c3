"""The replies of both services, except that of a pull that found messages (`pull_reply`).

Each function takes the call it answers, whose protocol, method and sequence number the reply has, and returns the
frame with its length. Texts and numbers of ours that cannot be put on the wire raise WireMisuse.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from broker.runtime.accelerators import accelerated
from proxy.wire.call import COMPACT, REPLY, Call, encode_varint, message_head, zigzag
from proxy.wire.errors import WireMisuse
from proxy.wire.generic.calls import encode_reply
from proxy.wire.texts import fitted
from proxy.wire.values import Receipt
from pyddmq.codes import Repeat, ResultCode

_LENGTH = struct.Struct(">I").pack
_I32_FIELD = struct.Struct(">Bhi").pack
_I64_FIELD = struct.Struct(">Bhq").pack

Fields = tuple[tuple[int, str | int | None], ...]
"""Optional fields of a result by their ids, which rise; those that are None are left out."""
Numbers = tuple[tuple[int, int | None], ...]
"""Optional fields of 32 bits behind the receipts, likewise."""

_NO_FIELDS = (None,) * 8
# Looked up once: by its class each takes as long as a call in Python 3.11.
_GAP, _FAIL_GAP = int(Repeat.GAP), ResultCode.FAIL_GAP

# PullResponse with a Context that has no field and no message, as DDMQ's server answers (R, 1.4).
_EMPTY_PULL_COMPACT = b"\x0c\x00\x1c\x00\x19\x0c\x00\x00"
_EMPTY_PULL_BINARY = b"\x0c\x00\x00\x0c\x00\x01\x00\x0f\x00\x02\x0c\x00\x00\x00\x00\x00\x00"


def _framed(call: Call, compact: bytes, binary: bytes) -> bytes:
    body = message_head(call.protocol, REPLY, call.method, call.seqid) + (
        compact if call.protocol == COMPACT else binary
    )
    return _LENGTH(len(body)) + body


def repeat_of(code: int, repeat: int | None) -> int | None:
    """Return what a result says in its field `repeat`: its code says that there is a gap."""
    return _GAP if code == _FAIL_GAP else repeat


def encode_empty_pull_reply(call: Call) -> bytes:
    """Encode the reply of a pull that found nothing."""
    return _framed(call, _EMPTY_PULL_COMPACT, _EMPTY_PULL_BINARY)


def encode_bool_reply(call: Call, value: bool) -> bytes:
    """Encode the reply of submit or ack."""
    if value:
        return _framed(call, b"\x01\x00\x00", b"\x02\x00\x00\x01\x00")
    return _framed(call, b"\x02\x00\x00", b"\x02\x00\x00\x00\x00")


def encode_result_reply(
    call: Call,
    code: int,
    msg: str,
    *,
    key: str | None = None,
    msg_id: str | None = None,
    qid: str | None = None,
    offset: int | None = None,
    handle: str | None = None,
    receipts: Iterable[Receipt] | None = None,
    repeat: int | None = None,
    retry_after_ms: int | None = None,
) -> bytes:
    """Encode the reply of sendSync, sendAsync or sendBatchSync.

    Args:
        call: The call that is answered.
        code: A ResultCode.
        msg: Its text, for people.
        key: Field 3.
        msg_id: Field 101, the id of the stored message.
        qid: Field 102, its queue.
        offset: Field 103, its offset in that queue.
        handle: Field 104.
        receipts: Field 105, one per message of a batch in its order.
        repeat: Field 106, a `Repeat`; that of FAIL_GAP is set here.
        retry_after_ms: Field 107, of a call that was refused for a rate: when to come again.
    """
    repeat = repeat_of(code, repeat)
    head = message_head(call.protocol, REPLY, call.method, call.seqid)
    if (key, msg_id, qid, offset, handle, receipts, repeat, retry_after_ms) == _NO_FIELDS:
        body = head + _plain_result(call.protocol, code, msg)
    else:
        fields = ((3, key), (101, msg_id), (102, qid), (103, offset), (104, handle))
        rows = None if receipts is None else list(receipts)
        body = head + _result(call.protocol, code, msg, fields, rows, ((106, repeat), (107, retry_after_ms)))
    return _LENGTH(len(body)) + body


def _stored_replies(
    calls: list[Call], positions: Sequence[tuple[int, int, int, bytes]], qid_prefix: bytes
) -> list[bytes]:
    """Encode the replies of single sends; `proxy.wire.send_accelerator` does the same.

    Args:
        calls: The calls.
        positions: Of each queue and offset of its message, where in the log it is, and its id.
        qid_prefix: Text in front of the queue number.
    """
    return [
        encode_result_reply(
            call, 0, "OK", msg_id=unique_key.decode(), qid=f"{qid_prefix.decode()}{queue_id}", offset=offset
        )
        for call, (queue_id, offset, _, unique_key) in zip(calls, positions, strict=True)
    ]


encode_stored_replies = accelerated("proxy.wire.send_accelerator", "stored_replies", _stored_replies)


@lru_cache(maxsize=64)
def _plain_result(protocol: int, code: int, msg: str) -> bytes:
    """Code and text alone: the answer to nearly every batch is the same."""
    return _result(protocol, code, msg, (), None, ())


def _result(  # noqa: PLR0917 - one call for both protocols
    protocol: int,
    code: int,
    msg: str,
    fields: Fields,
    receipts: list[Receipt] | None,
    numbers: Numbers,
) -> bytes:
    try:
        write = _compact_result if protocol == COMPACT else _binary_result
        return write(int(code), msg, fields, receipts, numbers)
    except (struct.error, TypeError, AttributeError, ValueError) as error:
        raise WireMisuse(f"a Result that cannot be written: {error}") from error


def _compact_result(code: int, msg: str, fields: Fields, receipts: list[Receipt] | None, numbers: Numbers) -> bytes:
    parts = [_compact_begin(code, msg)]
    last = 2
    for field_id, value in fields:
        if value is None:
            continue
        if isinstance(value, int):
            parts += (_compact_field(6, field_id, last), zigzag(value, 64))
        else:
            raw = value.encode()
            parts += (_compact_field(8, field_id, last), encode_varint(len(raw)), raw)
        last = field_id
    if receipts is not None:
        count = len(receipts)
        parts.append(_compact_field(9, 105, last))
        parts.append(bytes((count << 4 | 12,)) if count < 15 else b"\xfc" + encode_varint(count))
        for msg_id, qid, offset, handle in receipts:
            raw, raw_qid = msg_id.encode(), qid.encode()
            parts += (b"\x18", encode_varint(len(raw)), raw, b"\x18", encode_varint(len(raw_qid)), raw_qid)
            parts += (b"\x16", zigzag(offset, 64))
            if handle is not None:
                raw = handle.encode()
                parts += (b"\x18", encode_varint(len(raw)), raw)
            parts.append(b"\x00")
        last = 105
    for field_id, number in numbers:
        if number is not None:
            parts += (_compact_field(5, field_id, last), zigzag(number, 32))
            last = field_id
    parts.append(b"\x00\x00")
    return b"".join(parts)


@lru_cache(maxsize=64)
def _compact_begin(code: int, msg: str) -> bytes:
    """Return the head of the result, its code and its text."""
    raw = msg.encode()
    return b"\x0c\x00\x15%b\x18%b%b" % (zigzag(code, 32), encode_varint(len(raw)), raw)


@lru_cache(maxsize=64)
def _compact_field(kind: int, field_id: int, last: int) -> bytes:
    """Header of a field of positive id after field `last`."""
    if field_id - last <= 15:
        return bytes(((field_id - last) << 4 | kind,))
    return bytes((kind,)) + encode_varint(field_id << 1)


def _binary_result(code: int, msg: str, fields: Fields, receipts: list[Receipt] | None, numbers: Numbers) -> bytes:
    raw = msg.encode()
    parts = [b"\x0c\x00\x00", _I32_FIELD(8, 1, code), _I32_FIELD(11, 2, len(raw)), raw]
    for field_id, value in fields:
        if value is None:
            continue
        if isinstance(value, int):
            parts.append(_I64_FIELD(10, field_id, value))
        else:
            raw = value.encode()
            parts += (_I32_FIELD(11, field_id, len(raw)), raw)
    if receipts is not None:
        parts.append(b"\x0f\x00\x69\x0c" + _LENGTH(len(receipts)))
        for msg_id, qid, offset, handle in receipts:
            raw, raw_qid = msg_id.encode(), qid.encode()
            parts += (_I32_FIELD(11, 1, len(raw)), raw, _I32_FIELD(11, 2, len(raw_qid)), raw_qid)
            parts.append(_I64_FIELD(10, 3, offset))
            if handle is not None:
                raw = handle.encode()
                parts += (_I32_FIELD(11, 4, len(raw)), raw)
            parts.append(b"\x00")
    for field_id, number in numbers:
        if number is not None:
            parts.append(_I32_FIELD(8, field_id, number))
    parts.append(b"\x00\x00")
    return b"".join(parts)


def encode_delay_result_reply(
    call: Call,
    code: int,
    msg: str,
    uniq_delay_msg_id: str,
    cancel_outcome: int | None = None,
    *,
    repeat: int | None = None,
    retry_after_ms: int | None = None,
) -> bytes:
    """Encode the reply of sendDelaySync.

    Args:
        call: The call that is answered.
        code: A ResultCode.
        msg: For people.
        uniq_delay_msg_id: An empty text where there is none (R106).
        cancel_outcome: Of a cancel, how it ended (D31): 1 cancelled, 2 too late, 3 unknown.
        repeat: As in `encode_result_reply`.
        retry_after_ms: Likewise.
    """
    result: dict[str, Any] = {"code": int(code), "msg": msg, "uniqDelayMsgId": uniq_delay_msg_id}
    if cancel_outcome is not None:
        result["cancelOutcome"] = int(cancel_outcome)
    if (repeat := repeat_of(code, repeat)) is not None:
        result["repeat"] = int(repeat)
    if retry_after_ms is not None:
        result["retryAfterMs"] = retry_after_ms
    return encode_reply(call, {"success": result})


def encode_stats_reply(
    call: Call, rows: Iterable[tuple[str, str, Mapping[str, int], Mapping[str, int], Mapping[str, int] | None]]
) -> bytes:
    """Encode the reply of getConsumeStats.

    Args:
        call: The call that is answered.
        rows: Per topic (group, topic, qid -> committed offset, qid -> next offset to be given, qid -> first offset
            that is kept, or None to leave it out).
    """
    stats: list[dict[str, Any]] = [
        {"group": group, "topic": topic, "consumeOffsets": consumed, "produceOffsets": produced, "startOffsets": kept}
        for group, topic, consumed, produced, kept in rows
    ]
    return encode_reply(call, {"success": stats})


def encode_pull_exception(call: Call, code: int, text: str, *, retry_after_ms: int | None = None) -> bytes:
    """Encode a PullException as the reply of pull, submit or getConsumeStats.

    Args:
        call: The call that is answered.
        code: A PullCode.
        text: For people; says what to do.
        retry_after_ms: Field 101, when to come again.
    """
    error: dict[str, Any] = {"code": int(code), "message": fitted(text)}
    if retry_after_ms is not None:
        error["retryAfterMs"] = retry_after_ms
    return encode_reply(call, {"error": error})
