"""The scanners against what was written: both protocols, absent and unknown fields, wrong types, hostile bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.call import BINARY, CALL, COMPACT, Call, encode_varint, message_head, parse_call
from proxy.wire.errors import ArgumentsError, PropertiesError, TextError, WireError
from proxy.wire.generic.tables import Field, StructType, Type, method
from proxy.wire.limits import (
    DEPTH_MAX,
    MESSAGES_MAX,
    OFFSETS_MAX,
    PROPERTIES_MAX,
    PROPERTIES_PER_CALL_MAX,
    REASON_BYTES_MAX,
    RESULTS_MAX,
)
from proxy.wire.scanning.scan import (
    scan_ack,
    scan_delay,
    scan_fetch,
    scan_pull,
    scan_send,
    scan_send_batch,
    scan_stats,
    scan_submit,
)
from proxy.wire.values import ConsumeResult
from tests.fakes.codec import encode_call
from tests.wire_values import PROTOCOLS, UNKNOWN_TYPES, call, newer, table, values, values_of, without_unknown

pytestmark = pytest.mark.usefixtures("each_accelerator_way")

SCANNERS = {
    "pull": scan_pull,
    "submit": scan_submit,
    "sendSync": scan_send,
    "sendAsync": scan_send,
    "sendBatchSync": scan_send_batch,
    "getConsumeStats": scan_stats,
    "sendDelaySync": scan_delay,
    "fetch": scan_fetch,
    "ack": scan_ack,
}
protocols = st.sampled_from(PROTOCOLS)
results = values(table("consumer", "ConsumeResult"), depth=4)
pulls = values(table("consumer", "PullRequest"), depth=4)
messages = values(table("producer", "Message"))


def chain(result: dict[str, Any] | None) -> list[ConsumeResult]:
    """Flatten a chain of dicts, the plain way."""
    flat = []
    while result is not None:
        context = result.get("context", {})
        names = (context.get("groupId"), context.get("topic"), context.get("qid"))
        reasons = result.get("reasons")
        if reasons is not None:
            reasons = {offset: text.encode()[:REASON_BYTES_MAX] for offset, text in reasons.items()}
        offsets = (result.get("successOffsets", []), result.get("failOffsets", []))
        flat.append(ConsumeResult(*names, *offsets, result.get("deliveries"), reasons))
        result = result.get("nextResult")
    return flat


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """Return a Message's fields as SendMessage has them, in their order."""

    def raw(name: str) -> bytes | None:
        return message[name].encode() if name in message else None

    given = message.get("properties", {})
    properties = (tuple(name.encode() for name in given), tuple(value.encode() for value in given.values()))
    return {
        "topic": raw("topic") or b"",
        "key": raw("key"),
        "value": raw("value"),
        "hash_id": message.get("hashId", 0),
        "tags": raw("tags"),
        "partition_id": message.get("partitionId", -1),
        "body": message.get("body"),
        "version": raw("version"),
        "properties": properties if given else None,
        "delay_level": message.get("delayLevel"),
        "deliver_at_ms": message.get("deliverAtMs"),
        "delay_ms": message.get("delayMs"),
        "unique_key": raw("uniqKey"),
    }


@given(protocols, pulls)
def test_scan_pull_reads_what_was_written(protocol: int, request: dict[str, Any]) -> None:
    """Every combination of absent and present fields, with a chain of results of any length."""
    scanned = scan_pull(call(protocol, "pull", {"request": request}))
    assert scanned.group == request["groupId"]
    assert scanned.topic == request.get("topic")
    assert scanned.count_max == request.get("maxBatchSize")
    assert scanned.linger_ms == request.get("maxLingerTime")
    assert scanned.version == request.get("version")
    assert scanned.results == chain(request.get("result"))


@given(protocols, st.one_of(st.none(), results))
def test_scan_submit_reads_what_was_written(protocol: int, result: dict[str, Any] | None) -> None:
    """A null context stays as None (W5), a null result is an empty chain."""
    assert scan_submit(call(protocol, "submit", {"result": result})) == chain(result)


@given(protocols, messages, st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1)))
def test_scan_send_reads_what_was_written(protocol: int, message: dict[str, Any], timeout: int | None) -> None:
    """Every combination of absent and present fields of a message."""
    scanned = scan_send(call(protocol, "sendSync", {"message": message, "timeout": timeout}))
    assert scanned.message._asdict() == plain(message)
    assert scanned.timeout_ms == timeout
    assert scan_send(call(protocol, "sendAsync", {"message": message})).message == scanned.message


@given(protocols, st.lists(messages, max_size=6), st.sampled_from([None, False, True]))
def test_scan_send_batch_reads_what_was_written(
    protocol: int, batch: list[dict[str, Any]], receipts: bool | None
) -> None:
    """Usual and unusual messages may mix in one batch."""
    scanned = scan_send_batch(call(protocol, "sendBatchSync", {"messages": batch, "receipts": receipts}))
    assert [message._asdict() for message in scanned.messages] == [plain(message) for message in batch]
    assert scanned.receipts is bool(receipts)


usual_text = st.text("abcdefgh-0123", max_size=130)
usual_messages = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["permits", "t" * 127, "t" * 128, "é"]),
        "key": usual_text,
        "hashId": st.sampled_from([0, 1, -1, 63, 64, -65, 1 << 40]),
        "tags": usual_text,
        "partitionId": st.sampled_from([-1, 0, 5, 63, 64, -65]),
        "body": st.sampled_from([b"", b"b", b"b" * 127, b"b" * 128, b"\xff" * 1024, bytes(16_384), bytes(70_000)]),
    },
    optional={
        "version": st.one_of(usual_text, st.just("é")),
        "properties": st.dictionaries(usual_text, st.one_of(usual_text, st.just("ü")), max_size=3),
        "delayMs": st.integers(0, 1 << 40),
        "uniqKey": st.just("FE" + "0" * 30) | st.text(max_size=40),
    },
)


@given(protocols, st.lists(usual_messages, max_size=5))
def test_scan_send_batch_usual_layout_at_its_edges(protocol: int, batch: list[dict[str, Any]]) -> None:
    """The short way for usual messages reads lengths and numbers at 127 and 128 as the general way does."""
    scanned = scan_send_batch(call(protocol, "sendBatchSync", {"messages": batch}))
    assert [message._asdict() for message in scanned.messages] == [plain(message) for message in batch]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scan_send_batch_message_without_fields_stays_its_own(protocol: int) -> None:
    """A message without any field before one that lacks only its topic: two messages, not one."""
    rest = {"key": "k", "hashId": 0, "tags": "a", "partitionId": -1, "body": b"b"}
    for batch in ([{}, rest], [rest, {}, rest], [{"topic": "t", **rest}, {}, rest], [{"topic": "", **rest}, rest]):
        scanned = scan_send_batch(call(protocol, "sendBatchSync", {"messages": batch}))
        assert [message._asdict() for message in scanned.messages] == [plain(message) for message in batch]


@pytest.mark.parametrize("name", list(SCANNERS))
@settings(max_examples=50)
@given(st.data(), protocols, st.sampled_from(UNKNOWN_TYPES), st.sampled_from([25, 250, -3]))
def test_scan_unknown_fields_at_every_depth_are_skipped(
    name: str, data: st.DataObject, protocol: int, extra: Type, field_id: int
) -> None:
    """A newer peer may add a field of any type to any struct, before, between or after the known ones."""
    kind = newer(method(name).arguments, extra, field_id)
    arguments = data.draw(values(kind))
    main = kind.fields[1]
    arguments[main.name] = data.draw(values_of(main.type))
    scan: Any = SCANNERS[name]
    assert scan(call(protocol, name, arguments, kind)) == scan(call(protocol, name, without_unknown(arguments)))


@given(st.data(), protocols, st.sampled_from(UNKNOWN_TYPES))
def test_scan_known_field_of_another_type_counts_as_absent(data: st.DataObject, protocol: int, wrong: Type) -> None:
    """A field id that arrives with a type that is not its own is skipped, never coerced."""
    for name, struct_name, file in (("pull", "PullRequest", "consumer"), ("sendSync", "Message", "producer")):
        kind = table(file, struct_name)
        field = data.draw(st.sampled_from([each for each in kind.fields.values() if each.type.kind != wrong.kind]))
        changed = StructType(
            kind.name, {**kind.fields, field.id: Field(field.id, field.name, wrong, False)}, kind.names
        )
        argument = next(iter(method(name).arguments.fields.values()))
        outer = StructType(
            "args", {1: Field(1, argument.name, Type(12, struct=changed), False)}, frozenset((argument.name,))
        )
        content = data.draw(values(changed))
        content[field.name] = data.draw(values_of(wrong))
        changed_call = call(protocol, name, {argument.name: content}, outer)
        del content[field.name]
        scan: Any = SCANNERS[name]
        if field.required:
            with pytest.raises(ArgumentsError, match=field.name):
                scan(changed_call)
        else:
            assert scan(changed_call) == scan(call(protocol, name, {argument.name: content}))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("name", "arguments", "missing"),
    [
        ("pull", {}, "request"),
        ("getConsumeStats", {}, "request"),
        ("sendSync", {"timeout": 5}, "message"),
        ("sendAsync", {}, "message"),
        ("sendDelaySync", {"timeout": 5}, "delayMessage"),
        ("fetch", {}, "request"),
        ("ack", {}, "result"),
    ],
)
def test_scan_missing_argument_refused(protocol: int, name: str, arguments: dict[str, Any], missing: str) -> None:
    """A call without its main argument gets kind 7 and a sentence that names what is missing."""
    scan: Any = SCANNERS[name]
    with pytest.raises(ArgumentsError, match=missing) as caught:
        scan(call(protocol, name, arguments))
    assert caught.value.kind == 7
    assert not caught.value.closes


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("name", "file", "struct_name"),
    [
        ("pull", "consumer", "PullRequest"),
        ("getConsumeStats", "consumer", "ConsumeStatsRequest"),
        ("fetch", "consumer", "FetchRequest"),
        ("ack", "consumer", "AckResult"),
    ],
)
def test_scan_missing_required_field_refused(protocol: int, name: str, file: str, struct_name: str) -> None:
    """Each required field is missed by name (R, 1.1.8)."""
    kind = table(file, struct_name)
    full: dict[str, Any] = {
        each.name: {} if each.type.kind == 13 else "x" for each in kind.fields.values() if each.required
    }
    lenient = StructType(kind.name, {i: Field(i, f.name, f.type, False) for i, f in kind.fields.items()}, kind.names)
    argument = method(name).arguments.fields[1].name
    outer = StructType("args", {1: Field(1, argument, Type(12, struct=lenient), False)}, frozenset((argument,)))
    scan: Any = SCANNERS[name]
    scan(call(protocol, name, {argument: full}, outer))
    for field in full:
        fields = {each: value for each, value in full.items() if each != field}
        with pytest.raises(ArgumentsError, match=field):
            scan(call(protocol, name, {argument: fields}, outer))


SAMPLES: dict[str, dict[str, Any]] = {
    "pull": {
        "request": {
            "groupId": "g",
            "topic": "t",
            "maxBatchSize": 32,
            "maxLingerTime": 100,
            "result": {
                "context": {"groupId": "g", "topic": "t", "qid": "c_b_0"},
                "successOffsets": list(range(5_000_000, 5_000_020)),
                "failOffsets": [1, -2, 300],
                "nextResult": {"successOffsets": [7]},
            },
        }
    },
    "sendBatchSync": {
        "messages": [
            {"topic": "t", "key": "k", "hashId": 0, "tags": "a", "partitionId": -1, "body": b"123", "version": "v"},
            {
                "topic": "t",
                "key": "k",
                "hashId": 9,
                "tags": "a",
                "partitionId": -1,
                "body": b"12",
                "properties": {"n": "v"},
            },
            {"topic": "u", "value": "text", "delayLevel": 3},
        ],
        "receipts": True,
    },
    "fetch": {"request": {"consumerId": "i", "groupId": "g", "cluster": "c", "fetchOffset": {"t": {"q": 5}}}},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", list(SAMPLES))
def test_scan_cut_arguments_refused(protocol: int, name: str) -> None:
    """Arguments that end anywhere before their end are kind 7, never half taken."""
    whole = call(protocol, name, SAMPLES[name])
    scan: Any = SCANNERS[name]
    scan(whole)
    for end in range(whole.pos, len(whole.frame)):
        with pytest.raises(ArgumentsError):
            scan(whole._replace(frame=whole.frame[:end]))


@given(
    st.sampled_from(list(SAMPLES)), protocols, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6)
)
def test_scan_changed_bytes_give_only_the_peer_error(name: str, protocol: int, changes: list[tuple[int, int]]) -> None:
    """Any bytes changed anywhere: a result or a WireError, nothing else."""
    frame = bytearray(call(protocol, name, SAMPLES[name]).frame)
    for at, byte in changes:
        frame[at % len(frame)] = byte
    try:
        changed = parse_call(bytes(frame))
        scan: Any = SCANNERS.get(changed.method, scan_pull)
        scan(changed)
    except WireError:
        return


@given(st.sampled_from(list(SCANNERS)), protocols, st.binary(max_size=80))
def test_scan_garbage_gives_only_the_peer_error(name: str, protocol: int, garbage: bytes) -> None:
    """Random bytes in the place of arguments: a result or an ArgumentsError."""
    head = message_head(protocol, CALL, name, 1)
    scan: Any = SCANNERS[name]
    try:
        scan(Call(protocol, name, 1, len(head), head + garbage))
    except ArgumentsError:
        return


def arguments(protocol: int, name: str, body: bytes) -> Call:
    """Build a call from raw bytes of its arguments struct."""
    head = message_head(protocol, CALL, name, 1)
    return Call(protocol, name, 1, len(head), head + body)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scan_deep_nesting_refused(protocol: int) -> None:
    """An unknown field may be nested 31 deep in the arguments and no deeper, however long the frame."""
    level = b"\xec\x1c" if protocol == COMPACT else b"\x0c\x00\x0e"
    begin = level[:1] if protocol == COMPACT else level
    step = b"\x1c" if protocol == COMPACT else b"\x0c\x00\x01"
    for depth in (1, DEPTH_MAX - 1):
        body = begin + step * (depth - 1) + bytes(depth) + b"\x00"
        assert scan_submit(arguments(protocol, "submit", body)) == []
    for depth in (DEPTH_MAX, 200_000):
        with pytest.raises(ArgumentsError, match="deep"):
            scan_submit(arguments(protocol, "submit", begin + step * depth + bytes(depth + 1)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scan_long_chain_is_walked_and_capped(protocol: int) -> None:
    """A chain of nextResult costs no recursion; one element more than allowed refuses the call."""
    if protocol == COMPACT:
        first, inner = b"\x1c", b"\xac"
    else:
        first, inner = b"\x0c\x00\x01", b"\x0c\x00\x0a"
    body = first + inner * (RESULTS_MAX - 1) + bytes(RESULTS_MAX + 1)
    assert scan_submit(arguments(protocol, "submit", body)) == [ConsumeResult(None, None, None, [], [])] * RESULTS_MAX
    with pytest.raises(ArgumentsError, match="chain"):
        scan_submit(arguments(protocol, "submit", first + inner * RESULTS_MAX + bytes(RESULTS_MAX + 2)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scan_fields_after_next_result_belong_to_the_outer_element(protocol: int) -> None:
    """Thrift lets fields come in any order; one that follows nextResult is the outer element's."""
    if protocol == COMPACT:
        body = b"\x1c" + b"\xac" + b"\x39\x16\x0e\x00" + b"\x09\x06\x16\x10" + b"\x00\x00"
    else:
        body = b"\x0c\x00\x01" + b"\x0c\x00\x0a"
        body += b"\x0f\x00\x03\x0a" + struct.pack(">iq", 1, 7) + b"\x00"
        body += b"\x0f\x00\x03\x0a" + struct.pack(">iq", 1, 8) + b"\x00\x00"
    found = scan_submit(arguments(protocol, "submit", body))
    assert found == [ConsumeResult(None, None, None, [8], []), ConsumeResult(None, None, None, [7], [])]


BOMBS = {
    "list of 2 billion offsets": (b"\x1c\x39\xf6\xff\xff\xff\xff\x07", b"\x0c\x00\x01\x0f\x00\x03\x0a\x7f\xff\xff\xff"),
    "negative list": (b"\x1c\x39\xf6\xff\xff\xff\xff\x0f", b"\x0c\x00\x01\x0f\x00\x03\x0a\xff\xff\xff\xff"),
    "unknown list of structs": (b"\xe9\xfc\xff\xff\xff\xff\x07", b"\x0f\x00\x0e\x0c\x7f\xff\xff\xff"),
    "unknown list of nothing": (b"\xe9\xf0\x05", b"\x0f\x00\x0e\x00\x00\x00\x00\x05"),
    "unknown list of type 15": (b"\xe9\x5f", b"\x0f\x00\x0e\x1f\x00\x00\x00\x01"),
    "unknown map": (b"\xeb\xff\xff\xff\xff\x07\x88", b"\x0d\x00\x0e\x0b\x0b\x7f\xff\xff\xff"),
    "long string": (b"\xe8\xff\xff\xff\xff\x07", b"\x0b\x00\x0e\x7f\xff\xff\xff"),
    "field of unknown type": (b"\xee", b"\x01\x00\x0e"),
    "endless number": (b"\xe6" + b"\x80" * 20, b"\x0b\x00\x0e\xff\xff\xff\xff"),
    "number of 65 bits": (b"\xe6" + b"\xff" * 9 + b"\x02", b"\x0b\x00\x0e\x80\x00\x00\x00"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("bomb", list(BOMBS))
def test_scan_sizes_beyond_the_frame_refused(protocol: int, bomb: str) -> None:
    """A size is compared with the bytes left before anything is done that often."""
    body = BOMBS[bomb][0 if protocol == COMPACT else 1] + bytes(40)
    with pytest.raises(ArgumentsError):
        scan_submit(arguments(protocol, "submit", body))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scan_counts_are_capped(protocol: int) -> None:
    """Messages, properties and offsets of one call have caps of their own below the frame's length."""
    element = StructType("Empty")
    batch = StructType(
        "args", {1: Field(1, "messages", Type(15, parts=(Type(12, struct=element),)), False)}, frozenset(("messages",))
    )
    full = call(protocol, "sendBatchSync", {"messages": [{}] * MESSAGES_MAX}, batch)
    assert len(scan_send_batch(full).messages) == MESSAGES_MAX
    with pytest.raises(ArgumentsError, match="batch"):
        scan_send_batch(call(protocol, "sendBatchSync", {"messages": [{}] * (MESSAGES_MAX + 1)}, batch))
    properties = {str(number): "" for number in range(PROPERTIES_MAX)}
    assert scan_send(call(protocol, "sendAsync", {"message": {"properties": properties}})).message.properties
    properties["more"] = ""
    with pytest.raises(ArgumentsError, match="properties"):
        scan_send(call(protocol, "sendAsync", {"message": {"properties": properties}}))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scan_offsets_are_capped_over_the_chain(protocol: int) -> None:
    """Half of the offsets in each of two elements are allowed, one more is not."""
    half = OFFSETS_MAX // 2
    offsets = encode_varint(half) + b"\x00" * half if protocol == COMPACT else struct.pack(">i", half) + bytes(8 * half)
    if protocol == COMPACT:
        body = b"\x1c\x39\xf6" + offsets + b"\x7c\x39\xf6" + offsets + b"\x19\x16\x00"
        within, beyond = body[:-3], body
    else:
        body = b"\x0c\x00\x01\x0f\x00\x03\x0a" + offsets + b"\x0c\x00\x0a\x0f\x00\x03\x0a" + offsets
        within, beyond = body, body + b"\x0f\x00\x04\x0a\x00\x00\x00\x01" + bytes(8)
    found = scan_submit(arguments(protocol, "submit", within + bytes(3)))
    assert [len(each.success) for each in found] == [half, half]
    with pytest.raises(ArgumentsError, match="offsets"):
        scan_submit(arguments(protocol, "submit", beyond + bytes(3)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("field", ["topic", "key", "tags", "version", "properties"])
def test_scan_text_that_is_no_utf8_refused(protocol: int, field: str) -> None:
    """A text is UTF-8 in every field but the bodies, and is refused with its place in a batch."""
    text = "marker-text"
    message: dict[str, Any] = {"topic": "t", "key": "k", "hashId": 0, "tags": "g", "partitionId": -1, "body": b"marker"}
    message[field] = {"name": text} if field == "properties" else text
    good = call(protocol, "sendSync", {"message": message})
    bad = good._replace(frame=good.frame.replace(b"marker-text", b"marker\xfftext"))
    assert scan_send(good).message._asdict() == plain(message)
    with pytest.raises(ArgumentsError, match="UTF-8"):
        scan_send(bad)
    batch = call(protocol, "sendBatchSync", {"messages": [message] * 3})
    for place in range(3):
        frame = batch.frame.replace(b"marker-text", b"marker-TEXT", place).replace(b"marker-text", b"marker\xfftext", 1)
        with pytest.raises(TextError, match="UTF-8") as found:
            scan_send_batch(batch._replace(frame=frame))
        assert (found.value.place, found.value.count) == (place, 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scan_body_in_the_text_field_is_any_bytes(protocol: int) -> None:
    """`value` is taken as it came, whatever it holds."""
    good = call(protocol, "sendSync", {"message": {"topic": "t", "value": "marker-text"}})
    found = scan_send(good._replace(frame=good.frame.replace(b"marker-text", b"marker\xfftext")))
    assert found.message.value == b"marker\xfftext"


def test_scan_send_body_is_a_slice_of_the_frame() -> None:
    """The body is not copied."""
    for protocol in (COMPACT, BINARY):
        sent = call(protocol, "sendSync", {"message": {"topic": "t", "body": b"body"}})
        body = scan_send(sent).message.body
        assert body is not None
        assert body.obj is sent.frame


@pytest.mark.parametrize("width", range(1, 10))
@given(st.data())
def test_scan_offsets_of_every_width(width: int, data: st.DataObject) -> None:
    """Lists of near and of scattered offsets, also negative ones, at the edges of each width of a varint."""
    base = 1 << 7 * width - 2
    near = st.integers(-20, 20).map(lambda step: max(min(base + step, (1 << 63) - 1), 0))
    offsets = data.draw(st.lists(st.one_of(near, st.integers(-3, 3)), max_size=40) | st.lists(near, max_size=40))
    found = scan_submit(call(COMPACT, "submit", {"result": {"successOffsets": offsets}}))
    assert found[0].success == offsets


@given(
    st.sampled_from([0, 60, 8_150, 8_192, 16_340, 1 << 20, (1 << 27) - 20, (1 << 40) - 3]),
    st.integers(1, 64),
    st.none() | st.tuples(st.integers(0, 63), st.integers(-9_000, 9_000)),
)
def test_scan_offsets_of_a_whole_batch(first: int, count: int, other: tuple[int, int] | None) -> None:
    """Offsets that follow each other are read at one look; one that is out of line makes none of them wrong."""
    offsets = list(range(first, first + count))
    if other is not None:
        offsets[other[0] % count] += other[1]
    found = scan_submit(call(COMPACT, "submit", {"result": {"successOffsets": offsets}}))
    assert found[0].success == offsets


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scan_keeps_the_beginning_of_a_long_reason_and_any_bytes(protocol: int) -> None:
    """A reason is for people: what is too long or no UTF-8 fails no call."""
    said = b"\xff" + b"x" * 5_000
    if protocol == COMPACT:
        body = b"\x1c" + b"\x0b\xcc\x01" + b"\x01\x68\x0e" + encode_varint(len(said)) + said + b"\x00\x00"
    else:
        body = b"\x0c\x00\x01" + b"\x0d\x00\x66" + struct.pack(">BBiqi", 10, 11, 1, 7, len(said)) + said + b"\x00\x00"
    [found] = scan_submit(arguments(protocol, "submit", body))
    assert found.reasons == {7: said[:REASON_BYTES_MAX]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scan_bounds_the_numbers_and_reasons_of_a_call(protocol: int) -> None:
    """They count together over the whole chain, apart from the offsets; of another type they are passed over."""
    count = OFFSETS_MAX + 1
    if protocol == COMPACT:
        pairs = b"".join(b"%b\x02" % encode_varint(number) for number in range(count))
        many = b"\x0b\xca\x01" + encode_varint(count) + b"\x66" + pairs
        other = b"\x0b\xca\x01\x01\x88\x01a\x01b"
        head, end = b"\x1c", b"\x00\x00"
    else:
        pairs = b"".join(struct.pack(">qq", number, 1) for number in range(count))
        many = b"\x0d\x00\x65" + struct.pack(">BBi", 10, 10, count) + pairs
        other = b"\x0d\x00\x65" + struct.pack(">BBi", 11, 11, 1) + b"\x00\x00\x00\x01a" * 2
        head, end = b"\x0c\x00\x01", b"\x00\x00"
    with pytest.raises(ArgumentsError, match="numbers and reasons"):
        scan_submit(arguments(protocol, "submit", head + many + end))
    [found] = scan_submit(arguments(protocol, "submit", head + other + end))
    assert found.deliveries is None


@pytest.mark.parametrize("protocol", [BINARY, COMPACT])
def test_batch_has_a_budget_of_properties(protocol: int) -> None:
    """Short properties by the thousand in each of many messages: refused with the limit and the place."""
    each = {str(number): "v" for number in range(1000)}
    message = {"topic": "orders", "body": b"x", "hashId": 0, "partitionId": -1, "properties": each}
    few, many = PROPERTIES_PER_CALL_MAX // 1000, PROPERTIES_PER_CALL_MAX // 1000 + 1
    fitting = parse_call(encode_call(protocol, "sendBatchSync", 1, {"messages": [message] * few})[4:])
    assert len(scan_send_batch(fitting).messages) == few
    call = parse_call(encode_call(protocol, "sendBatchSync", 1, {"messages": [message] * (many + 100)})[4:])
    with pytest.raises(PropertiesError, match=f"more than {PROPERTIES_PER_CALL_MAX} properties") as refused:
        scan_send_batch(call)
    assert (refused.value.place, refused.value.count) == (few, many + 100)
