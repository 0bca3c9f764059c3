"""Golden frames: what libthrift 0.9.2 wrote is read to the same values, and written to the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from broker.format.record import locate
from proxy.wire.call import BINARY, CALL, COMPACT, Call, message_head, parse_call
from proxy.wire.fetch_reply import QueueMessages, encode_fetch_reply
from proxy.wire.generic.calls import decode_arguments, encode_application_exception, encode_reply
from proxy.wire.generic.tables import methods
from proxy.wire.pull_reply import encode_pull_reply
from proxy.wire.replies import (
    encode_bool_reply,
    encode_delay_result_reply,
    encode_empty_pull_reply,
    encode_pull_exception,
    encode_result_reply,
    encode_stats_reply,
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
from proxy.wire.values import ConsumeResult, PullRequest, SendMessage
from tests.fakes.codec import decode_reply, encode_call
from tests.golden import Golden, golden_frames
from tests.golden.values import CALLS, EXCEPTIONS, NEWER, REPLIES
from tests.wire_values import block, broker_end, record

pytestmark = pytest.mark.usefixtures("each_accelerator_way")

FRAMES = golden_frames()
PROTOCOLS = {"compact": COMPACT, "binary": BINARY}


def of(cases: Collection[str]) -> pytest.MarkDecorator:
    """Parametrize a test with the frames of these cases."""
    found = [golden for golden in FRAMES if golden.case in cases]
    return pytest.mark.parametrize("golden", found, ids=[f"{each.case}-{each.protocol}" for each in found])


def with_code(call: Call, response: dict[str, Any]) -> bytes:
    """Write the reply of a fetch, and put into it the code 0, which the node leaves out, and the tag that is empty."""
    rows = [
        QueueMessages(
            each["topic"],
            each["qid"],
            each["nextRequestOffset"],
            [
                (message["offset"], locate(record(message["value"], block([(b"KEYS", message["key"].encode())]))))
                for message in each["messages"]
            ],
            [],
        )
        for each in response["results"]
    ]
    frame = encode_fetch_reply(call, rows)
    if call.protocol == COMPACT:
        head, tail = frame[4:].split(b"\x0c\x00\xa9", 1)
        body = head + b"\x0c\x00\x15\x00\x99" + tail.replace(b"\x26\x06", b"\x18\x00\x16\x06")
    else:
        head, tail = frame[4:].split(b"\x0c\x00\x00\x0f", 1)
        body = head + b"\x0c\x00\x00\x08\x00\x01" + bytes(4) + b"\x0f"
        body += tail.replace(b"\x0a\x00\x04", b"\x0b\x00\x03" + bytes(4) + b"\x0a\x00\x04")
    return len(body).to_bytes(4, "big") + body


def call_of(golden: Golden, method: str, seqid: int) -> Call:
    """A call that a reply may answer."""
    return parse_call(message_head(PROTOCOLS[golden.protocol], CALL, method, seqid) + b"\x00")


def test_every_case_has_both_protocols_and_every_method_a_call_and_a_reply() -> None:
    """The file and the values speak of the same frames, of all methods that DDMQ has."""
    cases = {*CALLS, *REPLIES, *EXCEPTIONS}
    assert len(cases) == len(CALLS) + len(REPLIES) + len(EXCEPTIONS)
    assert sorted((golden.case, golden.protocol) for golden in FRAMES) == sorted(
        (case, protocol) for case in cases for protocol in PROTOCOLS
    )
    ddmq = set(methods()) - {"sendHalfSync", "endTransaction", "fetchChecks", "authenticate"}
    assert {method for method, _, _ in CALLS.values()} == ddmq
    assert {method for method, _, _ in REPLIES.values()} == ddmq


@of(CALLS)
def test_call_is_read(golden: Golden) -> None:
    """Length, protocol, method, sequence number and every argument; fields of newer peers are passed over."""
    method, seqid, arguments = CALLS[golden.case]
    assert int.from_bytes(golden.frame[:4], "big") == len(golden.frame) - 4
    call = parse_call(golden.frame[4:])
    assert (call.protocol, call.method, call.seqid) == (PROTOCOLS[golden.protocol], method, seqid)
    assert decode_arguments(call) == arguments


@of(set(CALLS) - NEWER)
def test_call_is_written(golden: Golden) -> None:
    """Byte for byte."""
    assert encode_call(PROTOCOLS[golden.protocol], *CALLS[golden.case]) == golden.frame


def results(head: dict[str, Any] | None) -> list[ConsumeResult]:
    """A chain as the scanners return it."""
    found = []
    while head:
        context = head.get("context", {})
        names = (context.get("groupId"), context.get("topic"), context.get("qid"))
        found.append(ConsumeResult(*names, head.get("successOffsets", []), head.get("failOffsets", [])))
        head = head.get("nextResult")
    return found


def pull(request: dict[str, Any]) -> PullRequest:
    """A pull as the scanner returns it."""
    sizes = (request.get("maxBatchSize"), request.get("maxLingerTime"))
    return PullRequest(
        request["groupId"], request.get("topic"), *sizes, results(request.get("result")), request.get("version")
    )


def sent(message: dict[str, Any]) -> SendMessage:
    """A message as the scanners return it."""
    text = {name: value.encode() for name, value in message.items() if isinstance(value, str)}
    given = message.get("properties", {})
    properties = (tuple(name.encode() for name in given), tuple(value.encode() for value in given.values()))
    return SendMessage(
        topic=text.get("topic", b""),
        key=text.get("key"),
        value=text.get("value"),
        hash_id=message["hashId"],
        tags=text.get("tags"),
        partition_id=message["partitionId"],
        body=None if message.get("body") is None else memoryview(message["body"]),
        version=text.get("version"),
        properties=properties if given else None,
        delay_level=None,
        deliver_at_ms=None,
        delay_ms=None,
    )


SCANNED: dict[str, Callable[[Call, dict[str, Any]], tuple[Any, Any]]] = {
    "pull": lambda call, values: (scan_pull(call), pull(values["request"])),
    "submit": lambda call, values: (scan_submit(call), results(values["result"])),
    "getConsumeStats": lambda call, values: (
        scan_stats(call),
        tuple(values["request"].get(name) for name in ("group", "topic", "version")),
    ),
    "fetch": lambda call, values: (scan_fetch(call), values["request"]),
    "ack": lambda call, values: (scan_ack(call), values["result"]),
    "sendSync": lambda call, values: (scan_send(call), (sent(values["message"]), values["timeout"])),
    "sendAsync": lambda call, values: (scan_send(call), (sent(values["message"]), None)),
    "sendBatchSync": lambda call, values: (
        scan_send_batch(call),
        ([sent(each) for each in values["messages"]], False),
    ),
    "sendDelaySync": lambda call, values: (scan_delay(call), (values["delayMessage"], values["timeout"])),
}


@of(CALLS)
def test_call_is_scanned(golden: Golden) -> None:
    """The scanners of the node see the same values as the generic reader, absent fields included."""
    method, _, arguments = CALLS[golden.case]
    found, expected = SCANNED[method](parse_call(golden.frame[4:]), arguments)
    assert found == expected


@of(REPLIES)
def test_reply_is_read_and_written(golden: Golden) -> None:
    """Both ways, byte for byte."""
    method, seqid, values = REPLIES[golden.case]
    reply = decode_reply(golden.frame[4:])
    assert (reply.method, reply.seqid, reply.application) == (method, seqid, None)
    assert (reply.value, reply.error) == (values.get("success"), _declared(values))
    assert encode_reply(call_of(golden, method, seqid), values) == golden.frame


def _declared(values: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    return ("error", values["error"]) if "error" in values else None


@of(EXCEPTIONS)
def test_application_exception_is_read_and_written(golden: Golden) -> None:
    """Both ways, byte for byte."""
    method, seqid, (kind, text) = EXCEPTIONS[golden.case]
    assert decode_reply(golden.frame[4:]).application == (kind, text)
    assert encode_application_exception(call_of(golden, method, seqid), kind, text) == golden.frame


def pulled(call: Call, success: dict[str, Any]) -> bytes:
    """The reply of a pull out of records."""
    messages = []
    for message in success["messages"]:
        pairs = [(b"KEYS", message.get("key")), (b"TAGS", message.get("tag")), *message.get("properties", {}).items()]
        texts = [
            (name if isinstance(name, bytes) else name.encode(), value.encode())
            for name, value in pairs
            if value is not None
        ]
        stored = record(message["value"], block(texts) + broker_end(False))
        messages.append((message["offset"], locate(stored)))
    group, topic, qid = (success["context"][name] for name in ("groupId", "topic", "qid"))
    return encode_pull_reply(call, group, topic, qid, messages)


HAND_WRITTEN: dict[str, Callable[[Call, dict[str, Any]], bytes]] = {
    "pulled-nothing": lambda call, _: encode_empty_pull_reply(call),
    "pulled": lambda call, values: pulled(call, values["success"]),
    "pull-refused": lambda call, values: encode_pull_exception(call, *values["error"].values()),
    "submit-refused": lambda call, values: encode_pull_exception(call, *values["error"].values()),
    "submitted": lambda call, values: encode_bool_reply(call, values["success"]),
    "not-submitted": lambda call, values: encode_bool_reply(call, values["success"]),
    "acked": lambda call, values: encode_bool_reply(call, values["success"]),
    "stats-found": lambda call, values: encode_stats_reply(call, [(*row.values(), None) for row in values["success"]]),
    "stats-none": lambda call, values: encode_stats_reply(call, []),
    "sent": lambda call, values: encode_result_reply(call, *values["success"].values()),
    "sent-batch": lambda call, values: encode_result_reply(call, *values["success"].values()),
    "not-sent": lambda call, values: encode_result_reply(
        call, values["success"]["code"], values["success"]["msg"], key=values["success"]["key"]
    ),
    "fetched": lambda call, values: with_code(call, values["success"]),
    "delayed": lambda call, values: encode_delay_result_reply(call, *values["success"].values()),
    "not-delayed": lambda call, values: encode_delay_result_reply(call, *values["success"].values()),
}


@of(HAND_WRITTEN)
def test_reply_of_the_node_is_written(golden: Golden) -> None:
    """What the services use writes the same bytes as DDMQ's library."""
    method, seqid, values = REPLIES[golden.case]
    assert HAND_WRITTEN[golden.case](call_of(golden, method, seqid), values) == golden.frame
