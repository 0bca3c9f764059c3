"""The generic codec: every struct of both interface definitions goes there and back, in both protocols."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.call import COMPACT, parse_call
from proxy.wire.errors import ArgumentsError, WireMisuse
from proxy.wire.generic.calls import decode_arguments, encode_application_exception, encode_reply
from proxy.wire.generic.read import decode_struct
from proxy.wire.generic.tables import Type, method, methods
from proxy.wire.generic.write import encode_struct
from proxy.wire.limits import DEPTH_MAX
from tests.fakes.codec import ReplyError, decode_reply, encode_call
from tests.wire_values import PROTOCOLS, STRUCTS, UNKNOWN_TYPES, newer, table, values, values_of, without_unknown

protocols = st.sampled_from(PROTOCOLS)
of_many = settings(max_examples=20)
"""Where one table-driven reader and writer is asked by two dozen structs, each by so many."""


@pytest.mark.parametrize(("file", "name"), STRUCTS)
@of_many
@given(st.data(), protocols)
def test_struct_round_trip(file: str, name: str, data: st.DataObject, protocol: int) -> None:
    """What is written is read, to the last byte; absent stays absent."""
    kind = table(file, name)
    written = data.draw(values(kind))
    encoded = encode_struct(protocol, kind, written)
    assert decode_struct(protocol, kind, encoded, 0) == (written, len(encoded))


@pytest.mark.parametrize(("file", "name"), STRUCTS)
@of_many
@given(st.data(), protocols, st.sampled_from(UNKNOWN_TYPES))
def test_struct_of_newer_peer_is_read(file: str, name: str, data: st.DataObject, protocol: int, extra: Type) -> None:
    """Fields that are not in the interface definition are skipped wherever they stand."""
    kind = table(file, name)
    field_id = data.draw(st.sampled_from([90, 900, -1]))
    wider = newer(kind, extra, field_id)
    written = data.draw(values(wider))
    encoded = encode_struct(protocol, wider, written)
    assert decode_struct(protocol, kind, encoded, 0) == (without_unknown(written), len(encoded))


@pytest.mark.parametrize(("file", "name"), STRUCTS)
@of_many
@given(st.data(), protocols)
def test_struct_cut_short_refused(file: str, name: str, data: st.DataObject, protocol: int) -> None:
    """A struct that ends before its end is an ArgumentsError, wherever it ends."""
    kind = table(file, name)
    encoded = encode_struct(protocol, kind, data.draw(values(kind)))
    end = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ArgumentsError):
        decode_struct(protocol, kind, encoded[:end], 0)


@pytest.mark.parametrize(("file", "name"), STRUCTS)
@given(protocols, st.binary(max_size=60))
def test_struct_from_garbage_gives_only_the_peer_error(file: str, name: str, protocol: int, garbage: bytes) -> None:
    """Random bytes are a struct or an ArgumentsError."""
    try:
        decode_struct(protocol, table(file, name), garbage, 0)
    except ArgumentsError:
        return


def test_methods_are_those_of_both_services() -> None:
    """Those of DDMQ's two services, the three of transactions and the one that says who somebody is."""
    consumer = {"pull", "submit", "getConsumeStats", "fetch", "ack"}
    producer = {"sendSync", "sendBatchSync", "sendAsync", "sendDelaySync"}
    transactions = {"sendHalfSync", "endTransaction", "fetchChecks"}
    assert set(methods()) == consumer | producer | transactions | {"authenticate"}


@pytest.mark.parametrize("name", sorted(methods()))
@of_many
@given(st.data(), protocols, st.integers(-(1 << 31), (1 << 31) - 1))
def test_call_and_reply_round_trip(name: str, data: st.DataObject, protocol: int, seqid: int) -> None:
    """A call comes out as it went in, and so does its reply: a value, a declared or an application exception."""
    arguments = data.draw(values(method(name).arguments))
    call = parse_call(encode_call(protocol, name, seqid, arguments)[4:])
    assert (call.protocol, call.method, call.seqid) == (protocol, name, seqid)
    assert decode_arguments(call) == arguments
    success = data.draw(values_of(method(name).result.fields[0].type))
    reply = decode_reply(encode_reply(call, {"success": success})[4:])
    assert reply == (name, seqid, success, None, None)
    if 1 in method(name).result.fields:
        reply = decode_reply(encode_reply(call, {"error": {"code": 3, "message": "é"}})[4:])
        assert reply == (name, seqid, None, ("error", {"code": 3, "message": "é"}), None)
    reply = decode_reply(encode_application_exception(call, 7, "why")[4:])
    assert reply == (name, seqid, None, None, (7, "why"))


@given(st.binary(max_size=60))
def test_decode_reply_garbage_gives_only_the_peer_error(frame: bytes) -> None:
    """Whatever came back: a reply or a ReplyError."""
    try:
        decode_reply(frame)
    except ReplyError:
        return


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"groupId": "g", "nothing": 1},
        {"groupId": b"bytes"},
        {"groupId": "g", "maxBatchSize": 1 << 31},
        {"groupId": "g", "maxBatchSize": True},
        {"groupId": "g", "maxBatchSize": "5"},
        {"groupId": "g", "result": {"successOffsets": [1 << 63]}},
        {"groupId": "g", "result": {"successOffsets": 5}},
        {"groupId": "g", "result": 5},
    ],
)
def test_encode_call_impossible_values_are_our_misuse(protocol: int, request_: dict[str, Any]) -> None:
    """What cannot be put on the wire is our mistake, never the peer's."""
    with pytest.raises(WireMisuse):
        encode_call(protocol, "pull", 1, {"request": request_})


def test_encode_call_unknown_method_is_our_misuse() -> None:
    """A method that neither service has cannot be called."""
    with pytest.raises(WireMisuse, match="nothing"):
        encode_call(COMPACT, "nothing", 1, {})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_decode_struct_depth_is_bounded(protocol: int) -> None:
    """Known structs inside each other are read 32 deep and no deeper."""
    kind = table("consumer", "ConsumeResult")
    nested: dict[str, Any] = {}
    for _ in range(DEPTH_MAX - 1):
        nested = {"nextResult": nested}
    assert decode_struct(protocol, kind, encode_struct(protocol, kind, nested), 0)[0] == nested
    deeper = encode_struct(protocol, kind, {"nextResult": nested})
    with pytest.raises(ArgumentsError, match="deep"):
        decode_struct(protocol, kind, deeper, 0)
