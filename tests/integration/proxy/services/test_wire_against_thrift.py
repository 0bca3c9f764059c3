"""The codec against two others: Apache Thrift's library with hand-written structs, and thriftpy2, both ways."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer
from thriftpy2 import transport as py_transport
from thriftpy2.protocol.binary import TBinaryProtocol as PyBinaryProtocol
from thriftpy2.protocol.compact import TCompactProtocol as PyCompactProtocol

from broker.format.record import locate
from proxy.wire.call import BINARY, COMPACT, parse_call
from proxy.wire.generic.calls import decode_arguments, encode_application_exception, encode_reply
from proxy.wire.generic.tables import method, methods
from proxy.wire.pull_reply import encode_pull_reply
from proxy.wire.replies import encode_bool_reply, encode_empty_pull_reply, encode_pull_exception, encode_result_reply
from proxy.wire.scanning.scan import scan_pull, scan_send, scan_send_batch, scan_submit
from proxy.wire.values import Receipt
from pyddmq import idl
from tests.apache_structs import ARGUMENTS, RESULTS, from_plain, to_plain
from tests.fakes.codec import decode_reply, encode_call
from tests.wire_values import block, broker_end, record, values, values_of

NAMES = sorted(methods())
APACHE: dict[int, Callable[[Any], Any]] = {
    COMPACT: TCompactProtocol,
    # string_length_limit and the like stay at their defaults, as in a client.
    BINARY: functools.partial(TBinaryProtocol, strictRead=False, strictWrite=True),
}
PyMemoryBuffer: Any = py_transport.TMemoryBuffer  # thriftpy2's stubs leave it untyped
OTHER: dict[int, Any] = {COMPACT: PyCompactProtocol, BINARY: PyBinaryProtocol}
protocols = st.sampled_from([COMPACT, BINARY])
seqids = st.integers(0, (1 << 31) - 1)
FEWER = settings(max_examples=30)


def apache_write(protocol: int, name: str, kind: int, seqid: int, value: Any, *, strict: bool = True) -> bytes:
    """Write a message with Apache's library."""
    buffer = TMemoryBuffer()
    make = functools.partial(TBinaryProtocol, strictWrite=False) if not strict else APACHE[protocol]
    writer = make(buffer)
    writer.writeMessageBegin(name, kind, seqid)
    value.write(writer)
    writer.writeMessageEnd()
    found: bytes = buffer.getvalue()
    return found


def apache_read(protocol: int, frame: bytes, kind: Any) -> tuple[str, int, int, Any]:
    """Read a message with Apache's library: (method, message type, sequence number, struct)."""
    reader = APACHE[protocol](TMemoryBuffer(frame))
    name, message_type, seqid = reader.readMessageBegin()
    found = kind()
    found.read(reader)
    reader.readMessageEnd()
    return name, message_type, seqid, found


@pytest.mark.parametrize("name", NAMES)
@given(st.data(), protocols, seqids)
@FEWER
def test_call_of_ours_is_read_by_apache(name: str, data: st.DataObject, protocol: int, seqid: int) -> None:
    """Apache's library reads every argument that we write."""
    arguments = data.draw(values(method(name).arguments))
    frame = encode_call(protocol, name, seqid, arguments)[4:]
    found = apache_read(protocol, frame, ARGUMENTS[name])
    assert found[:3] == (name, TMessageType.CALL, seqid)
    assert to_plain(found[3]) == arguments


@pytest.mark.parametrize("name", NAMES)
@given(st.data(), protocols, seqids, st.booleans())
@FEWER
def test_call_of_apache_is_read_by_us(name: str, data: st.DataObject, protocol: int, seqid: int, strict: bool) -> None:
    """We read every argument that Apache's library writes, in non-strict TBinaryProtocol too."""
    arguments = data.draw(values(method(name).arguments))
    strict = strict or protocol == COMPACT
    value = from_plain(ARGUMENTS[name], arguments)
    call = parse_call(apache_write(protocol, name, TMessageType.CALL, seqid, value, strict=strict))
    assert (call.protocol, call.method, call.seqid) == (protocol, name, seqid)
    assert decode_arguments(call) == arguments


@given(st.data(), protocols)
@FEWER
def test_scanners_read_apache_as_they_read_us(data: st.DataObject, protocol: int) -> None:
    """The hand-written scanners see the same in Apache's bytes as in ours."""
    scanners: dict[str, Callable[..., Any]] = {
        "pull": scan_pull,
        "submit": scan_submit,
        "sendSync": scan_send,
        "sendBatchSync": scan_send_batch,
    }
    name = data.draw(st.sampled_from(sorted(scanners)))
    main = method(name).arguments.fields[1]
    arguments = {**data.draw(values(method(name).arguments)), main.name: data.draw(values_of(main.type))}
    theirs = parse_call(apache_write(protocol, name, TMessageType.CALL, 1, from_plain(ARGUMENTS[name], arguments)))
    ours = parse_call(encode_call(protocol, name, 1, arguments)[4:])
    assert scanners[name](theirs) == scanners[name](ours)


@pytest.mark.parametrize("name", NAMES)
@given(st.data(), protocols, seqids)
@FEWER
def test_replies_go_both_ways_with_apache(name: str, data: st.DataObject, protocol: int, seqid: int) -> None:
    """Apache's clients read our replies and we read those of Apache's servers."""
    result = {"success": data.draw(values_of(method(name).result.fields[0].type))}
    call = parse_call(encode_call(protocol, name, seqid, {})[4:])
    frame = encode_reply(call, result)[4:]
    found = apache_read(protocol, frame, RESULTS[name])
    assert found[:3] == (name, TMessageType.REPLY, seqid)
    assert to_plain(found[3]) == result
    theirs = apache_write(protocol, name, TMessageType.REPLY, seqid, from_plain(RESULTS[name], result))
    assert decode_reply(theirs) == (name, seqid, result["success"], None, None)


@pytest.mark.parametrize("protocol", [COMPACT, BINARY])
def test_hand_written_replies_are_read_by_apache(protocol: int) -> None:
    """The replies of the hot path, as an independent client sees them."""

    def read(name: str, frame: bytes) -> Any:
        return to_plain(apache_read(protocol, frame[4:], RESULTS[name])[3])

    pull = parse_call(encode_call(protocol, "pull", 3, {})[4:])
    assert read("pull", encode_empty_pull_reply(pull)) == {"success": {"context": {}, "messages": []}}
    assert read("pull", encode_pull_exception(pull, 4, "busy")) == {"error": {"code": 4, "message": "busy"}}
    stored = record(b"\xffbody", block([(b"KEYS", b"k"), (b"TAGS", b"g"), (b"n", "ü".encode())]) + broker_end(True))
    bare = record(b"", broker_end(False))
    many = [(offset, locate(stored)) for offset in range(9_000, 9_030)]
    found = read("pull", encode_pull_reply(pull, "g", "t", "q", [*many, (5, locate(bare))]))["success"]
    assert found["context"] == {"groupId": "g", "topic": "t", "qid": "q"}
    expected = {"key": "k", "value": b"\xffbody", "tag": "g", "properties": {"n": "ü"}}
    assert found["messages"] == [{**expected, "offset": offset} for offset, _ in many] + [{"value": b"", "offset": 5}]
    submit = parse_call(encode_call(protocol, "submit", 3, {})[4:])
    assert read("submit", encode_bool_reply(submit, True)) == {"success": True}
    assert read("submit", encode_bool_reply(submit, False)) == {"success": False}
    send = parse_call(encode_call(protocol, "sendBatchSync", 3, {})[4:])
    frame = encode_result_reply(
        send, 0, "OK", msg_id="m", qid="q", offset=1 << 40, receipts=[Receipt("m", "q", number) for number in range(20)]
    )
    receipts = [{"msgId": "m", "qid": "q", "offset": number} for number in range(20)]
    result = {"code": 0, "msg": "OK", "msgId": "m", "qid": "q", "offset": 1 << 40, "receipts": receipts}
    assert read("sendBatchSync", frame) == {"success": result}


@pytest.mark.parametrize("protocol", [COMPACT, BINARY])
def test_application_exception_goes_both_ways_with_apache(protocol: int) -> None:
    """TApplicationException in both directions."""
    call = parse_call(encode_call(protocol, "pull", 3, {})[4:])
    found = apache_read(protocol, encode_application_exception(call, 1, "unknown")[4:], TApplicationException)
    assert (found[1], found[3].type, found[3].message) == (TMessageType.EXCEPTION, 1, "unknown")
    theirs = apache_write(protocol, "pull", TMessageType.EXCEPTION, 3, TApplicationException(6, "internal"))
    assert decode_reply(theirs).application == (6, "internal")


def service_of(name: str) -> Any:
    """Return the thriftpy2 service that has a method."""
    for file, service in (("consumer", "AuthenticatedConsumerService"), ("producer", "AuthenticatedProducerService")):
        found = getattr(idl.load(file), service)
        if name in found.thrift_services:
            return found
    raise AssertionError(name)


def to_thriftpy(spec: Any, value: Any) -> Any:
    """Build thriftpy2's value of a type (a code or a tuple of its own form) from plain values."""
    kind, *detail = spec if isinstance(spec, tuple) else (spec,)
    if kind == 12 and value is not None:
        (cls,) = detail
        fields = {
            name: to_thriftpy((code, *rest), value.get(name)) for code, name, *rest, _ in cls.thrift_spec.values()
        }
        return cls(**fields)
    if kind == 15 and value is not None:
        return [to_thriftpy(detail[0], each) for each in value]
    return value


def with_defaults(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments as thriftpy2 reads them: a producer's Message gets the defaults of the IDL."""

    def filled(message: dict[str, Any]) -> dict[str, Any]:
        return {"hashId": 0, "partitionId": -1, **message}

    if name == "sendBatchSync" and "messages" in arguments:
        return {**arguments, "messages": [filled(message) for message in arguments["messages"]]}
    return {**arguments, "message": filled(arguments["message"])} if "message" in arguments else arguments


def from_thriftpy(value: Any) -> Any:
    """Return thriftpy2's value as plain values, absent fields left out."""
    if hasattr(value, "thrift_spec"):
        names = [field[1] for field in value.thrift_spec.values()]
        return {name: from_thriftpy(getattr(value, name)) for name in names if getattr(value, name) is not None}
    if isinstance(value, list):
        return [from_thriftpy(each) for each in value]
    return value


@pytest.mark.parametrize("name", NAMES)
@given(st.data(), protocols)
@FEWER
def test_calls_go_both_ways_with_thriftpy2(name: str, data: st.DataObject, protocol: int) -> None:
    """The library that our own Python client uses agrees on every argument."""
    kind = getattr(service_of(name), name + "_args")
    arguments = data.draw(values(method(name).arguments))
    reader = OTHER[protocol](PyMemoryBuffer(encode_call(protocol, name, 9, arguments)[4:]))
    assert reader.read_message_begin() == (name, 1, 9)
    found = kind()
    reader.read_struct(found)
    assert from_thriftpy(found) == with_defaults(name, arguments)
    buffer = PyMemoryBuffer()
    writer = OTHER[protocol](buffer)
    writer.write_message_begin(name, 1, 9)
    writer.write_struct(to_thriftpy((12, kind), arguments))
    writer.write_message_end()
    call = parse_call(buffer.getvalue())
    assert (call.protocol, call.method, call.seqid) == (protocol, name, 9)
    assert decode_arguments(call) == arguments
