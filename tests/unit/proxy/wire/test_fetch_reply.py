"""Replies of fetches: what the generic codec reads of them, both protocols, with and without the accelerator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.format.record import locate
from proxy.wire.call import BINARY, COMPACT, Call
from proxy.wire.fetch_reply import QueueMessages, encode_fetch_refusal, encode_fetch_reply
from tests.accelerator_ways import WAYS, need_compiled, running
from tests.fakes.codec import decode_reply
from tests.wire_values import block, broker_end, record

PROTOCOLS = [COMPACT, BINARY]
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1, max_size=140)
numbers = st.integers(0, (1 << 62) - 1)
times = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def queues(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a QidResponse as the generic codec has it."""
    timed = draw(st.booleans())
    messages = []
    for _ in range(draw(st.sampled_from([0, 1, 2, 14, 15, 16]))):
        message: dict[str, Any] = {"value": draw(st.binary(max_size=300)), "offset": draw(numbers)}
        for name in ("key", "tag"):
            if draw(st.booleans()):
                message[name] = draw(st.sampled_from(["k", "x" * 130, "ü"]))
        if draw(st.booleans()):
            message["properties"] = {"a": "1", "b": draw(st.sampled_from(["v", "é"]))}
        if timed:
            message |= {"storeTimestamp": draw(times), "bornTimestamp": draw(times)}
        messages.append(message)
    return {"topic": draw(texts), "qid": draw(texts), "nextRequestOffset": draw(numbers), "messages": messages}


def row_of(queue: dict[str, Any]) -> QueueMessages:
    """The same, with records as the broker stores them."""
    found, moments = [], []
    for message in queue["messages"]:
        pairs = [(b"KEYS", message["key"].encode())] if "key" in message else []
        pairs += [(b"TAGS", message["tag"].encode())] if "tag" in message else []
        pairs += [(name.encode(), value.encode()) for name, value in message.get("properties", {}).items()]
        stored = record(message["value"], block(pairs) + broker_end(False))
        found.append((message["offset"], locate(stored)))
        if "storeTimestamp" in message:
            moments.append((message["storeTimestamp"], message["bornTimestamp"]))
    return QueueMessages(queue["topic"], queue["qid"], queue["nextRequestOffset"], found, moments)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=30)
@given(st.lists(queues(), max_size=3) | st.lists(queues(), min_size=15, max_size=16), st.integers(0, 1 << 30))
def test_reply_is_read_to_what_was_written(way: str, protocol: int, found: list[dict[str, Any]], seqid: int) -> None:
    """Queues without and with messages, more than fit into a short list's header, times of any size and sign."""
    need_compiled()
    with running(way):
        frame = encode_fetch_reply(Call(protocol, "fetch", seqid, 0, b""), [row_of(each) for each in found])
    assert len(frame) - 4 == int.from_bytes(frame[:4], "big")
    reply = decode_reply(frame[4:])
    assert (reply.method, reply.seqid, reply.value) == ("fetch", seqid, {"results": found})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_refusal_is_a_code_and_no_queue(protocol: int) -> None:
    """FetchResponse.code, which DDMQ's server never sets; its clients see no queue."""
    frame = encode_fetch_refusal(Call(protocol, "fetch", 1, 0, b""), 11)
    assert decode_reply(frame[4:]).value == {"code": 11, "results": []}
