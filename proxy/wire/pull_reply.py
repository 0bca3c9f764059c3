"""The reply of pull, assembled from the records' own bytes.

Bodies, keys, tags and properties go from the record into the reply as slices; nothing is decoded. Requiredness as
DDMQ's Java server writes it (R, 1.1.10): a message without key or tag has no such field, offset and value are always
there, properties only when the sender gave some.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from broker.record import split
from proxy.wire.call import COMPACT, REPLY, Call, encode_varint, message_head

_LENGTH = struct.Struct(">I").pack
_BINARY_STRING = struct.Struct(">BhI").pack
_BINARY_I64_FIELD = struct.Struct(">Bhq").pack
_BINARY_MAP_HEAD = struct.Struct(">BhBBI").pack

SYSTEM_PROPERTIES = frozenset(
    # R91: the names that DDMQ reserves.
    b"KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID "
    b"ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY "
    b"MAX_RECONSUME_TIMES CONSUME_START_TIME "
    # RocketMQ 5's further names for transactions, timers, POP, inner batches, clusters and sums.
    b"__transactionId__ TRANSACTION_CHECK_TIMES TRAN_PREPARED_QUEUE_OFFSET CHECK_IMMUNITY_TIME_IN_SECONDS "
    b"TRANSACTION_PREPARED_QUEUE_OFFSET TIMER_DELIVER_MS TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DEL_UNIQKEY "
    b"TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DELAY_LEVEL INNER_NUM INNER_BASE "
    b"POP_CK 1ST_POP_TIME CLUSTER INSTANCE_ID REACHED_TIMES __CRC32#".split()
)
"""Names of the broker's own, never shown to consumers. Names that begin with `__PYDDMQ_` are added to these; the
properties of a dead letter (`DLQ_...`) are for consumers and stay."""

PRIVATE_PREFIX = b"__PYDDMQ_"


def _varint14(value: int) -> bytes:
    """Two bytes of a varint, both with the continuation bit."""
    return bytes((value & 127 | 128, value >> 7 | 128))


_BYTE = tuple(bytes((value,)) for value in range(128))
# An offset below 2**13 has one or two varint bytes; above, the lowest 14 bits come from this table of byte pairs and
# the rest, which is the same for 8,192 offsets in a row, is computed once.
_LOW_PAIRS = b"".join(map(_varint14, range(1 << 14)))


def user_properties(block: bytes) -> tuple[bytes | None, bytes | None, list[tuple[bytes, bytes]]]:
    """Take a property block apart: (KEYS or None, TAGS or None, the user's pairs in their order).

    A pair with an empty name or value counts as absent and of equal names the last one counts, as RocketMQ's own
    reader has it. Broken UTF-8, which only a foreign writer can have stored, is replaced so that clients can decode
    the reply.
    """
    key = tags = None
    pairs: list[tuple[bytes, bytes]] = []
    if not block.isascii():
        block = block.decode("utf-8", "replace").encode()
    for token in block.split(b"\x02"):
        name, _, value = token.partition(b"\x01")
        if not value:
            continue
        if name not in SYSTEM_PROPERTIES:
            if name and not name.startswith(PRIVATE_PREFIX):
                pairs.append((name, value))
        elif name == b"KEYS":
            key = value
        elif name == b"TAGS":
            tags = value
    if len(pairs) > 1 and len(dict(pairs)) < len(pairs):
        pairs = list(dict(pairs).items())
    return key, tags, pairs


def encode_pull_reply(
    call: Call, group: bytes, topic: bytes, qid: bytes, messages: Sequence[tuple[int, memoryview]]
) -> bytes:
    """Encode the reply of a pull that found messages.

    Args:
        call: The call that is answered.
        group: Consumer group, UTF-8.
        topic: Topic of every message, UTF-8.
        qid: Queue of every message, UTF-8.
        messages: Per message its queue offset and its whole commit-log record.

    Returns:
        The frame with its length.

    Raises:
        broker.errors.DamagedRecord: One of the records is none.
    """
    head = message_head(call.protocol, REPLY, call.method, call.seqid)
    if call.protocol == COMPACT:
        body = _compact(head, group, topic, qid, messages)
    else:
        body = _binary(head, group, topic, qid, messages)
    return _LENGTH(len(body)) + body


def _compact(
    head: bytes, group: bytes, topic: bytes, qid: bytes, messages: Sequence[tuple[int, memoryview]]
) -> bytes:
    count = len(messages)
    parts: list[bytes | memoryview] = [head, b"\x0c\x00\x1c"]  # result field 0, its field 1: the context
    for text in (group, topic, qid):
        parts += (b"\x18", encode_varint(len(text)), text)
    parts.append(b"\x00\x19" + (_BYTE[count << 4 | 12] if count < 8 else bytes((count << 4 | 12,)) if count < 15 else b""))
    if count >= 15:
        parts.append(b"\xfc" + encode_varint(count))
    byte = _BYTE
    low_pairs = _LOW_PAIRS
    high = -1
    high_bytes = b""
    size = -1
    size_bytes = b""
    for offset, record in messages:
        body, block = split(record)
        key, tags, pairs = user_properties(block)
        if len(body) != size:
            size = len(body)
            size_bytes = b"\x18" + encode_varint(size)
        if key is None:
            parts += (b"\x28", size_bytes[1:], body)
        elif len(key) < 128:
            parts += (b"\x18" + byte[len(key)] + key, size_bytes, body)
        else:
            parts += (b"\x18", encode_varint(len(key)), key, size_bytes, body)
        if tags is None:
            parts.append(b"\x26")
        elif len(tags) < 128:
            parts.append(b"\x18" + byte[len(tags)] + tags + b"\x16")
        else:
            parts += (b"\x18", encode_varint(len(tags)), tags, b"\x16")
        if offset < 8192:
            parts.append(encode_varint(offset << 1))
        else:
            if offset >> 13 != high:
                high = offset >> 13
                high_bytes = encode_varint(high)
            low = (offset & 8191) << 2
            parts += (low_pairs[low : low + 2], high_bytes)
        if pairs:
            parts += (b"\x1b", encode_varint(len(pairs)), b"\x88")
            for name, value in pairs:
                if len(name) < 128 and len(value) < 128:
                    parts += (byte[len(name)], name, byte[len(value)], value)
                else:
                    parts += (encode_varint(len(name)), name, encode_varint(len(value)), value)
        parts.append(b"\x00")
    parts.append(b"\x00\x00")
    return b"".join(parts)


def _binary(
    head: bytes, group: bytes, topic: bytes, qid: bytes, messages: Sequence[tuple[int, memoryview]]
) -> bytes:
    field = _BINARY_STRING
    parts: list[bytes | memoryview] = [head, b"\x0c\x00\x00\x0c\x00\x01"]
    for field_id, text in enumerate((group, topic, qid), 1):
        parts += (field(11, field_id, len(text)), text)
    parts.append(b"\x00\x0f\x00\x02\x0c" + _LENGTH(len(messages)))
    for offset, record in messages:
        body, block = split(record)
        key, tags, pairs = user_properties(block)
        if key is not None:
            parts += (field(11, 1, len(key)), key)
        parts += (field(11, 2, len(body)), body)
        if tags is not None:
            parts += (field(11, 3, len(tags)), tags)
        parts.append(_BINARY_I64_FIELD(10, 4, offset))
        if pairs:
            parts.append(_BINARY_MAP_HEAD(13, 5, 11, 11, len(pairs)))
            for name, value in pairs:
                parts += (_LENGTH(len(name)), name, _LENGTH(len(value)), value)
        parts.append(b"\x00")
    parts.append(b"\x00\x00")
    return b"".join(parts)
