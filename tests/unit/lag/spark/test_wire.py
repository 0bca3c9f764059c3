"""The executors' codec against the node's own: each reads what the other writes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lag.spark.sources import wire
from proxy.wire.call import BINARY, Call, parse_call
from proxy.wire.generic.calls import decode_arguments, encode_application_exception, encode_reply
from tests.fakes.codec import encode_call

TEXTS = st.text(max_size=20)
I64S = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.dictionaries(TEXTS, st.dictionaries(TEXTS, I64S, max_size=3), max_size=3)


def arguments(frame: bytes) -> tuple[str, int, dict[str, Any]]:
    """Read a call as the node does."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    call = parse_call(frame[4:])
    return call.method, call.seqid, decode_arguments(call)


def answered(method: str, values: dict[str, Any], sequence: int = 7) -> dict[int, Any]:
    """Read what the node answers."""
    frame = encode_reply(Call(BINARY, method, sequence, 0, b""), values)
    assert wire.frame_length(frame[:4]) == len(frame) - 4
    return wire.reply(frame[4:], method, sequence)


@given(TEXTS, OFFSETS, st.integers(-(2**31), 2**31 - 1), st.booleans())
def test_node_reads_what_executors_ask(name: str, offsets: dict[str, dict[str, int]], count: int, named: bool) -> None:
    """Each field that is written stands where the interface definition has it."""
    fields = [wire.text(1, name), wire.text(2, "g"), wire.text(3, "c"), wire.positions(4, offsets)]
    fetch = [*fields, wire.i32(10, count), wire.boolean(101, named)]
    assert arguments(wire.call("fetch", count, [wire.structure(1, fetch)])) == (
        "fetch",
        count,
        {
            "request": {
                "consumerId": name, "groupId": "g", "cluster": "c", "fetchOffset": offsets, "maxBatchSize": count,
                "onlyNamed": named,
            }
        },
    )  # fmt: skip
    ack = {"consumerId": name, "groupId": "g", "cluster": "c", "offsets": offsets}
    assert arguments(wire.call("ack", 1, [wire.structure(1, fields)])) == ("ack", 1, {"result": ack})


@given(st.lists(st.tuples(TEXTS, st.binary(max_size=30), st.dictionaries(TEXTS, TEXTS, max_size=3), I64S), max_size=5))
def test_calls_of_the_producer_port(messages: list[tuple[str, bytes, dict[str, str], int]]) -> None:
    """Lists of structs with texts, bytes, maps and numbers."""
    written = [
        [wire.text(2, key), wire.text(7, body), wire.texts(9, properties), wire.i64(103, delay)]
        for key, body, properties, delay in messages
    ]
    method, _, found = arguments(wire.call("sendBatchSync", 1, [wire.structures(1, written)]))
    assert method == "sendBatchSync"
    named = ("key", "body", "properties", "delayMs")
    assert [tuple(each[name] for name in named) for each in found["messages"]] == messages


@given(OFFSETS, st.lists(st.tuples(TEXTS, st.binary(max_size=30), st.dictionaries(TEXTS, TEXTS, max_size=3), I64S)))
def test_executors_read_what_the_node_answers(
    offsets: dict[str, dict[str, int]], messages: list[tuple[str, bytes, dict[str, str], int]]
) -> None:
    """Messages and positions, by field id; texts as bytes."""
    given_messages = [
        {"key": key, "value": body, "properties": properties, "offset": offset, "storeTimestamp": 5}
        for key, body, properties, offset in messages
    ]
    row = {"topic": "t", "qid": "q_0", "nextRequestOffset": 9, "messages": given_messages}
    [found] = answered("fetch", {"success": {"results": [row]}})[0][10]
    assert (found[1], found[2], found[3]) == (b"t", b"q_0", 9)
    for got, (key, body, properties, offset) in zip(found[10], messages, strict=True):
        texts = {name.encode(): value.encode() for name, value in properties.items()}
        assert got == {1: key.encode(), 2: body, 4: offset, 5: texts, 101: 5}
    rows = [{"group": "g", "topic": topic, "consumeOffsets": each} for topic, each in offsets.items()]
    assert answered("getConsumeStats", {"success": rows})[0] == [
        {1: b"g", 2: topic.encode(), 3: {qid.encode(): offset for qid, offset in each.items()}}
        for topic, each in offsets.items()
    ]


def test_refusals_and_faults_are_told_apart() -> None:
    """A code in a fetch's answer, a declared exception, and a method that the node does not have."""
    assert answered("fetch", {"success": {"code": 11, "results": []}}) == {0: {1: 11, 10: []}}
    assert answered("pull", {"error": {"code": 1, "message": "no"}}) == {1: {1: 1, 2: b"no"}}
    assert answered("ack", {"success": False}) == {0: False}
    frame = encode_application_exception(Call(BINARY, "ack", 3, 0, b""), 1, "no such method")
    with pytest.raises(wire.ThriftFault, match="no such method"):
        wire.reply(frame[4:], "ack", 3)


def test_what_is_no_reply_is_malformed() -> None:
    """Cut anywhere, changed anywhere, with bytes behind it, to another call: an error, never anything else."""
    values = {"success": {"results": [{"topic": "t", "qid": "q", "messages": [{"value": b"v", "offset": 1}]}]}}
    frame = encode_reply(Call(BINARY, "fetch", 7, 0, b""), values)[4:]
    for length in range(len(frame)):
        with pytest.raises(wire.Malformed):
            wire.reply(frame[:length], "fetch", 7)
    chance = random.Random(1)
    for _ in range(3_000):
        changed = bytearray(frame)
        changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            wire.reply(bytes(changed), "fetch", 7)
        except (wire.Malformed, wire.ThriftFault):
            continue
    for wrong, sentence in (
        (lambda: wire.reply(frame + b"\0", "fetch", 7), "1 bytes behind its end"),
        (lambda: wire.reply(frame, "fetch", 8), "number 7, where fetch number 8 was called"),
        (lambda: wire.reply(frame, "ack", 7), "b'fetch'"),
        (lambda: wire.reply(encode_call(BINARY, "fetch", 7, {})[4:], "fetch", 7), "not in Thrift's binary protocol"),
        (lambda: wire.frame_length(b"HTTP"), "is not a consumer"),
    ):
        with pytest.raises(wire.Malformed, match=sentence):
            wrong()


def test_lengths_counts_and_depths_are_checked_before_they_are_followed() -> None:
    """A few bytes cannot ask for memory, or for a deep stack."""
    head = encode_reply(Call(BINARY, "ack", 1, 0, b""), {"success": True})[4:-5]
    huge = (1 << 31) - 1
    for field, sentence in (
        (b"\x0b\x00\x01" + huge.to_bytes(4, "big"), "a string that reaches"),
        (b"\x0f\x00\x01\x02" + huge.to_bytes(4, "big"), "a list or map of"),
        (b"\x0d\x00\x01\x0a\x0a" + huge.to_bytes(4, "big"), "a list or map of"),
        (b"\x0c\x00\x01" * 5_000, "deeper than"),
        (b"\x0f\x00\x01" + b"\x0f\x00\x00\x00\x01" * 5_000, "deeper than"),
        (b"\x0d\x00\x01\x0c\x0a\x00\x00\x00\x01\x00", "keys are of type 12"),
        (b"\x63\x00\x01", "a value of unknown type 99"),
    ):
        with pytest.raises(wire.Malformed, match=sentence):
            wire.reply(head + field + b"\0" * 20, "ack", 1)
