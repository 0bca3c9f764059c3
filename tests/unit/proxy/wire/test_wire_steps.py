"""Frames full of what nobody knows: how many steps they make the scanners take, whatever their length."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any

import pytest

from proxy.wire.call import BINARY, COMPACT, Call, encode_varint, parse_call
from proxy.wire.errors import ArgumentsError
from proxy.wire.generic.calls import encode_reply
from proxy.wire.limits import OFFSETS_MAX, STEPS_MAX
from proxy.wire.scanning import scan
from proxy.wire.steps import Steps
from proxy.wire.values import ConsumeResult
from tests.fakes.codec import decode_reply, encode_call

SIZE = 400_000
"""Elements of a bomb; each is a byte or a few."""
CALLS_MAX = 13 * STEPS_MAX
"""Calls of functions, ours and the interpreter's, that one frame may take."""

SCANNERS: dict[str, Callable[[Call], Any]] = {
    "pull": scan.scan_pull,
    "submit": scan.scan_submit,
    "getConsumeStats": scan.scan_stats,
    "sendSync": scan.scan_send,
    "sendBatchSync": scan.scan_send_batch,
    "sendDelaySync": scan.scan_delay,
    "fetch": scan.scan_fetch,
    "ack": scan.scan_ack,
}


def compact_bombs() -> dict[str, bytes]:
    """Return fields of a struct in TCompactProtocol, by what they are."""
    count = encode_varint(SIZE)
    return {
        "fields out of order": b"\x02\x7e" * SIZE,
        "fields in order": b"\x02\x00" + b"\x11" * 30_000,
        "empty structs": b"\x0c\x7e\x00" * SIZE,
        "list of structs": b"\x09\x7e\xfc" + count + bytes(SIZE),
        "list of numbers": b"\x09\x7e\xf6" + count + b"\x01" * SIZE,
        "list of lists": b"\x09\x7e\xf9" + count + b"\x09" * SIZE,
        "list of texts": b"\x09\x7e\xf8" + count + bytes(SIZE),
        "map of texts": b"\x0b\x7e" + count + b"\x88" + bytes(2 * SIZE),
        "known number again": b"\x05\x14\x02" * SIZE,
        "known text again": b"\x08\x02\x00" * SIZE,
        "known list again": b"\x09\x06\x06" * SIZE,
        "results again": b"\x0c\x64\x00" * SIZE,
        "next results again": (b"\x0c\x14" + b"\xac" * 99 + bytes(100)) * (SIZE // 100),
        "message again": b"\x0c\x02\x00" * SIZE,
        "list of messages again": (b"\x09\x02\xfc\x64" + bytes(100)) * (SIZE // 100),
    }


def binary_bombs() -> dict[str, bytes]:
    """Return the same in TBinaryProtocol."""
    count = struct.pack(">i", SIZE)
    return {
        "fields out of order": b"\x02\x00\x63\x00" * SIZE,
        "list of structs": b"\x0f\x00\x63\x0c" + count + bytes(SIZE),
        "list of lists": b"\x0f\x00\x63\x0f" + count + b"\x0a\x00\x00\x00\x00" * SIZE,
        "list of texts": b"\x0f\x00\x63\x0b" + count + bytes(4 * SIZE),
        "map of texts": b"\x0d\x00\x63\x0b\x0b" + count + bytes(8 * SIZE),
        "known number again": b"\x08\x00\x0a\x00\x00\x00\x01" * SIZE,
        "known text again": b"\x0b\x00\x01\x00\x00\x00\x00" * SIZE,
        "known list again": b"\x0f\x00\x03\x0a\x00\x00\x00\x00" * SIZE,
        "results again": b"\x0c\x00\x32\x00" * SIZE,
        "next results again": (b"\x0c\x00\x0a" * 100 + bytes(100)) * (SIZE // 100),
        "message again": b"\x0c\x00\x01\x00" * SIZE,
        "list of messages again": (b"\x0f\x00\x01\x0c\x00\x00\x00\x64" + bytes(100)) * (SIZE // 100),
    }


def calls_of(method: str, protocol: int, fields: bytes) -> list[Call]:
    """Return calls with these fields as arguments, in the first argument, and in a message of a batch."""
    if protocol == COMPACT:
        head = b"\x82\x21\x01" + encode_varint(len(method)) + method.encode()
        shapes = (fields + b"\x00", b"\x1c" + fields + b"\x00\x00", b"\x19\x1c" + fields + b"\x00\x00")
    else:
        head = b"\x80\x01\x00\x01" + struct.pack(">i", len(method)) + method.encode() + bytes(4)
        listed = b"\x0f\x00\x01\x0c\x00\x00\x00\x01" + fields
        shapes = (fields + b"\x00", b"\x0c\x00\x01" + fields + b"\x00\x00", listed + b"\x00\x00")
    return [parse_call(head + shape) for shape in shapes]


def calls_taken(scanner: Callable[[Call], Any], call: Call) -> tuple[int, ArgumentsError | None]:
    """Scan, and count the calls of functions that this takes."""
    taken = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal taken
        taken += event in ("call", "c_call")

    refused = None
    sys.setprofile(count)
    try:
        scanner(call)
    except ArgumentsError as error:
        refused = error
    finally:
        sys.setprofile(None)
    return taken, refused


@pytest.mark.parametrize("protocol", [COMPACT, BINARY])
@pytest.mark.parametrize("method", SCANNERS)
def test_frames_full_of_the_unknown_take_a_bounded_number_of_steps(
    method: str, protocol: int, each_accelerator_way: None
) -> None:
    """Whatever stands where, in arguments, requests and messages: 400,000 of it are no more work than 8,000."""
    bombs = compact_bombs() if protocol == COMPACT else binary_bombs()
    # The first call of a process reads the IDL.
    calls_taken(SCANNERS[method], calls_of(method, protocol, b"")[0])
    for name, fields in bombs.items():
        # The last is of a list of messages, which is unknown to all calls but one.
        for call in calls_of(method, protocol, fields)[: 3 if method == "sendBatchSync" else 2]:
            taken, _ = calls_taken(SCANNERS[method], call)
            assert taken <= CALLS_MAX, (name, taken)


def test_refusal_says_how_much_is_too_much() -> None:
    """The client is told the bound, and the connection lives."""
    (call, *_) = calls_of("submit", COMPACT, compact_bombs()["list of lists"])
    with pytest.raises(ArgumentsError, match=f"more than {STEPS_MAX} fields and elements"):
        scan.scan_submit(call)


@pytest.mark.parametrize("protocol", [COMPACT, BINARY])
def test_fields_of_a_newer_client_fit(protocol: int, each_accelerator_way: None) -> None:
    """A batch whose every message has unknown fields, and one unknown block of any length, are read as ever."""
    block = b"\x08\xc6\x01" + encode_varint(3_000_000) if protocol == COMPACT else b"\x0b\x00\x63\x00\x2d\xc6\xc0"
    fields = block + bytes(3_000_000)
    for method in ("submit", "pull", "sendSync"):
        call = calls_of(method, protocol, fields)[1]
        if method == "pull":
            with pytest.raises(ArgumentsError, match="groupId"):
                SCANNERS[method](call)
        else:
            SCANNERS[method](call)
    messages = [{"topic": "t", "body": b"x"}] * 5_000
    frame = encode_call(protocol, "sendBatchSync", 1, {"messages": messages})[4:]
    plain = scan.scan_send_batch(parse_call(frame)).messages
    # An unknown i64 and an unknown text in each of them, before the end of its struct.
    if protocol == COMPACT:
        message, more = b"\x18\x01t\x68\x01x", b"\x06\xd0\x01\x08\x18\x01z"
    else:
        message = b"\x0b\x00\x01\x00\x00\x00\x01t\x0b\x00\x07\x00\x00\x00\x01x"
        more = b"\x0a\x00\x78" + bytes(8) + b"\x0b\x00\x79\x00\x00\x00\x01z"
    assert frame.count(message) == 5_000
    newer = scan.scan_send_batch(parse_call(frame.replace(message, message + more))).messages
    assert newer == plain


def test_offsets_of_a_call_are_bounded_over_all_of_its_lists() -> None:
    """More than OFFSETS_MAX are refused with what to do, wherever they stand."""
    context = {"groupId": "g", "topic": "t", "qid": "q"}
    half = list(range(OFFSETS_MAX // 2))
    for protocol in (COMPACT, BINARY):
        result = {"context": context, "successOffsets": half, "failOffsets": half}
        fits = scan.scan_submit(parse_call(encode_call(protocol, "submit", 1, {"result": result})[4:]))
        assert fits == [ConsumeResult("g", "t", "q", half, half)]
        more = {**result, "nextResult": {"context": context, "successOffsets": [1], "failOffsets": []}}
        with pytest.raises(ArgumentsError, match="split the call"):
            scan.scan_submit(parse_call(encode_call(protocol, "submit", 1, {"result": more})[4:]))


def test_steps_that_are_refused_are_not_taken() -> None:
    """What is left stays, so that a way that gives up leaves the general one its own."""
    steps = Steps(3)
    with pytest.raises(ArgumentsError):
        steps.take(4)
    steps.take(3)
    assert steps.left == 0


def test_replies_are_read_however_many_rows_they_have() -> None:
    """The client's side has no such bound: it asked for what it gets."""
    rows = [
        {"group": "g", "topic": f"t{n}", "consumeOffsets": {f"q{m}": m for m in range(10)}, "produceOffsets": {}}
        for n in range(2_000)
    ]
    call = Call(COMPACT, "getConsumeStats", 1, 0, b"")
    reply = decode_reply(encode_reply(call, {"success": rows})[4:])
    assert len(reply.value) == 2_000
