"""The reply of fetch: a list of queues, the messages of each assembled from the records' own bytes (`pull_reply`)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from broker.format.record import Located
from proxy.wire.call import COMPACT, REPLY, Call, encode_varint, message_head, zigzag
from proxy.wire.generic.calls import encode_reply
from proxy.wire.pull_reply import encode_messages

_LENGTH = struct.Struct(">I").pack
_STRING = struct.Struct(">BhI").pack
_I64_FIELD = struct.Struct(">Bhq").pack


class QueueMessages(NamedTuple):
    """What a fetch gets of one queue.

    Attributes:
        topic, qid: The queue.
        next_offset: What to ask for next.
        messages: Queue offset of each, and where its record is.
        times: Of each when it was stored and when it was made, ms; empty: they are left out.
    """

    topic: str
    qid: str
    next_offset: int
    messages: Sequence[tuple[int, Located]]
    times: Sequence[tuple[int, int]]


def encode_fetch_reply(call: Call, queues: Sequence[QueueMessages]) -> bytes:
    """Encode the reply of a fetch that is served; returns the frame with its length."""
    head = message_head(call.protocol, REPLY, call.method, call.seqid)
    parts: list[bytes | memoryview] = [b"", head]
    count = len(queues)
    if call.protocol == COMPACT:
        # Result: field 0, in it field 10, a list of structs.
        parts.append(b"\x0c\x00\xa9")
        parts.append(bytes((count << 4 | 12,)) if count < 15 else b"\xfc" + encode_varint(count))
    else:
        parts.append(b"\x0c\x00\x00\x0f\x00\x0a\x0c" + _LENGTH(count))
    prefix_of = _compact if call.protocol == COMPACT else _binary
    for each in queues:
        parts.append(encode_messages(call.protocol, prefix_of(each), each.messages, each.times))
    parts.append(b"\x00\x00")
    parts[0] = _LENGTH(sum(map(len, parts)))
    return b"".join(parts)


def encode_fetch_refusal(call: Call, code: int) -> bytes:
    """Encode the reply of a fetch that is not served: FetchResponse.code, and no queue."""
    return encode_reply(call, {"success": {"code": int(code), "results": []}})


def _compact(queue: QueueMessages) -> bytes:
    """Return a QidResponse up to the count of its messages."""
    topic, qid = queue.topic.encode(), queue.qid.encode()
    return b"\x18%b%b\x18%b%b\x16%b\x79" % (
        encode_varint(len(topic)),
        topic,
        encode_varint(len(qid)),
        qid,
        zigzag(queue.next_offset, 64),
    )


def _binary(queue: QueueMessages) -> bytes:
    """As `_compact`; with the type of the messages' list, as its count follows."""
    topic, qid = queue.topic.encode(), queue.qid.encode()
    texts = b"%b%b%b%b" % (_STRING(11, 1, len(topic)), topic, _STRING(11, 2, len(qid)), qid)
    return texts + _I64_FIELD(10, 3, queue.next_offset) + b"\x0f\x00\x0a\x0c"
