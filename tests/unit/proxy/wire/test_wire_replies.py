"""The hand-written replies say what the generic codec reads, and are byte for byte what Thrift's libraries write."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.format.properties import SYSTEM_PROPERTIES, parse_properties
from broker.format.record import locate
from proxy.wire.call import COMPACT, Call
from proxy.wire.errors import WireMisuse
from proxy.wire.pull_reply import encode_pull_reply
from proxy.wire.replies import (
    encode_bool_reply,
    encode_delay_result_reply,
    encode_empty_pull_reply,
    encode_pull_exception,
    encode_result_reply,
    encode_stats_reply,
)
from proxy.wire.values import Receipt
from pyddmq.codes import Repeat, ResultCode
from tests.fakes.codec import decode_reply
from tests.wire_values import I32S, I64S, PROTOCOLS, TEXTS, block, broker_end, record

protocols = st.sampled_from(PROTOCOLS)

pytestmark = pytest.mark.usefixtures("each_accelerator_way")


def to(protocol: int, method: str, seqid: int = 5) -> Call:
    """Return a call to be answered."""
    return Call(protocol, method, seqid, 0, b"")


def value_of(frame: bytes, seqid: int = 5) -> Any:
    """Return the success value of a framed reply, after a look at its length."""
    (size,) = struct.unpack_from(">I", frame)
    assert size == len(frame) - 4
    reply = decode_reply(frame[4:])
    assert reply.seqid == seqid
    assert (reply.error, reply.application) == (None, None)
    return reply.value


@given(protocols, st.integers(-(1 << 31), (1 << 31) - 1))
def test_empty_pull_reply_has_an_empty_context(protocol: int, seqid: int) -> None:
    """A Context without any field and an empty list, as DDMQ answers."""
    assert value_of(encode_empty_pull_reply(to(protocol, "pull", seqid)), seqid) == {"context": {}, "messages": []}


result_fields = st.fixed_dictionaries(
    {}, optional={"key": TEXTS, "msg_id": TEXTS, "qid": TEXTS, "offset": I64S, "handle": TEXTS}
)
receipt_lists = st.one_of(st.none(), st.lists(st.builds(Receipt, TEXTS, TEXTS, I64S, st.none() | TEXTS), max_size=20))
result_names = {"key": "key", "msg_id": "msgId", "qid": "qid", "offset": "offset", "handle": "handle"}


@given(protocols, I32S | st.just(int(ResultCode.FAIL_GAP)), TEXTS, result_fields, receipt_lists)
def test_result_reply_says_what_was_given(
    protocol: int, code: int, msg: str, fields: dict[str, Any], receipts: list[Receipt] | None
) -> None:
    """Code and text always, every other field only when there is one."""
    expected: dict[str, Any] = {"code": code, "msg": msg}
    expected |= {result_names[name]: value for name, value in fields.items()}
    if code == ResultCode.FAIL_GAP:
        expected["repeat"] = Repeat.GAP
    if receipts is not None:
        expected["receipts"] = [
            {"msgId": each.msg_id, "qid": each.qid, "offset": each.offset}
            | ({} if each.handle is None else {"handle": each.handle})
            for each in receipts
        ]
    frame = encode_result_reply(to(protocol, "sendBatchSync"), code, msg, **fields, receipts=receipts)
    assert value_of(frame) == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_result_reply_impossible_number_is_our_misuse(protocol: int) -> None:
    """A code of more than 32 bits or an offset of more than 64 is our own mistake."""
    with pytest.raises(WireMisuse):
        encode_result_reply(to(protocol, "sendSync"), 1 << 31, "")
    with pytest.raises(WireMisuse):
        encode_result_reply(to(protocol, "sendSync"), 0, "", offset=1 << 63)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cold_replies_say_what_was_given(protocol: int) -> None:
    """sendDelaySync, getConsumeStats, submit and the declared exception."""
    assert value_of(encode_delay_result_reply(to(protocol, "sendDelaySync"), 18, "no", "")) == {
        "code": 18,
        "msg": "no",
        "uniqDelayMsgId": "",
    }
    assert value_of(encode_delay_result_reply(to(protocol, "sendDelaySync"), 0, "OK", "id", 2)) == {
        "code": 0,
        "msg": "OK",
        "uniqDelayMsgId": "id",
        "cancelOutcome": 2,
    }
    rows = [("g", "t", {"q_0": 5}, {"q_0": 9, "q_1": 0}, {"q_0": 2, "q_1": 0}), ("g", "u", {}, {}, {})]
    assert value_of(encode_stats_reply(to(protocol, "getConsumeStats"), rows)) == [
        {"group": group, "topic": topic, "consumeOffsets": consumed, "produceOffsets": produced, "startOffsets": kept}
        for group, topic, consumed, produced, kept in rows
    ]
    assert value_of(encode_bool_reply(to(protocol, "submit"), True)) is True
    assert value_of(encode_bool_reply(to(protocol, "submit"), False)) is False
    reply = decode_reply(encode_pull_exception(to(protocol, "pull"), 1, "no such group")[4:])
    assert reply.error == ("error", {"code": 1, "message": "no such group"})


plain_text = st.text("abcXYZ-_.09é", min_size=1, max_size=10)
names = st.one_of(
    plain_text, st.sampled_from(["n" * 127, "n" * 128, "n" * 2100, "_own", "__own", "x_KEYS", "DLQ_REASON"])
)
texts = st.one_of(plain_text, st.sampled_from(["v" * 127, "v" * 128, "v" * 2047, "v" * 2048]))
hidden = sorted(name.decode() for name in SYSTEM_PROPERTIES - {b"KEYS", b"TAGS"})
system_names = st.sampled_from([*hidden, "__PYDDMQ_X"])
offsets = st.one_of(st.integers(0, 20_000), st.integers(8_180, 8_200), st.integers(0, 1 << 50))
bodies = st.sampled_from([b"", b"b", bytes(127), bytes(128), b"\xff" * 1024, bytes(20_000)])


@st.composite
def stored(draw: st.DrawFn) -> tuple[memoryview, dict[str, Any]]:
    """Draw a record, of our own layout or another, and the Message that it must become (without its offset)."""
    body = draw(bodies)
    pairs: list[tuple[str, str]] = []
    if draw(st.booleans()):
        pairs.append(("KEYS", draw(texts)))
    if draw(st.booleans()):
        pairs.append(("TAGS", draw(texts)))
    pairs += draw(st.lists(st.tuples(names, texts), max_size=3))
    pairs += draw(st.lists(st.tuples(system_names, texts), max_size=1))
    if draw(st.booleans()):
        pairs = draw(st.permutations(pairs))
    raw = block([(name.encode(), value.encode()) for name, value in pairs])
    ends = [b"", broker_end(False), broker_end(True), broker_end(False)[:-20] + b"last\x01x\x02"]
    end = draw(st.sampled_from(ends))
    found = parse_properties(raw + end)
    expected: dict[str, Any] = {"value": body}
    if "KEYS" in found:
        expected["key"] = found["KEYS"]
    if "TAGS" in found:
        expected["tag"] = found["TAGS"]
    system = {name.decode() for name in SYSTEM_PROPERTIES}
    shown = {n: v for n, v in found.items() if n not in system and not n.startswith("__PYDDMQ_")}
    if shown:
        expected["properties"] = shown
    return record(body, raw + end), expected


@given(protocols, st.lists(st.tuples(offsets, stored()), max_size=18))
def test_pull_reply_shows_records_as_the_reader_of_properties_does(
    protocol: int, batch: list[tuple[int, tuple[memoryview, dict[str, Any]]]]
) -> None:
    """Key, body, tag, offset and the user's properties of any record; names of the broker's own never."""
    messages = [(offset, locate(found)) for offset, (found, _) in batch]
    frame = encode_pull_reply(to(protocol, "pull"), "gé", "permits", "c_b_0", messages)
    value = value_of(frame)
    assert value["context"] == {"groupId": "gé", "topic": "permits", "qid": "c_b_0"}
    assert value["messages"] == [{**expected, "offset": offset} for offset, (_, expected) in batch]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pull_reply_broken_text_in_a_record_is_replaced(protocol: int) -> None:
    """Only another program can have stored it; clients must be able to decode the reply all the same."""
    found = record(b"body", b"KEYS\x01k\xff\x02n\x01\xfe\x02" + broker_end(False))
    value = value_of(encode_pull_reply(to(protocol, "pull"), "g", "t", "q", [(0, locate(found))]))
    assert value["messages"][0]["key"] == "k\N{REPLACEMENT CHARACTER}"
    assert value["messages"][0]["properties"] == {"n": "\N{REPLACEMENT CHARACTER}"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pull_reply_dead_letter_reason_stays_visible(protocol: int) -> None:
    """A dead letter's properties are for its consumer."""
    found = record(b"body", block([(b"DLQ_ORIGIN_TOPIC", b"t"), (b"DLQ_REASON", b"why")]) + broker_end(False))
    value = value_of(encode_pull_reply(to(protocol, "pull"), "g", "t", "q", [(0, locate(found))]))
    assert value["messages"][0]["properties"] == {"DLQ_ORIGIN_TOPIC": "t", "DLQ_REASON": "why"}


def test_pull_reply_shows_a_record_without_sum_whose_block_has_eleven_bytes() -> None:
    """RocketMQ writes no sum by default; its records keep their key however long their properties are."""
    found = record(b"body", b"KEYS\x0100000\x02")
    value = value_of(encode_pull_reply(to(COMPACT, "pull"), "g", "t", "q", [(0, locate(found))]))
    assert value["messages"] == [{"key": "00000", "value": b"body", "offset": 0}]
