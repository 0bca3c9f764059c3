"""parse_call: both protocols told apart per frame, and everything that is no call refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.call import BINARY, CALL, COMPACT, EXCEPTION, ONEWAY, REPLY, message_head, parse_call
from proxy.wire.errors import FatalWireError
from tests.wire_values import PROTOCOLS

GOLDEN_COMPACT = bytes.fromhex("8221 0e 04 70756c6c 00")
GOLDEN_STRICT = bytes.fromhex("80010001 00000004 70756c6c 0000000e 00")
GOLDEN_LOOSE = bytes.fromhex("00000004 70756c6c 01 0000000e 00")


@pytest.mark.parametrize(
    ("frame", "protocol", "pos"),
    [(GOLDEN_COMPACT, COMPACT, 8), (GOLDEN_STRICT, BINARY, 16), (GOLDEN_LOOSE, BINARY, 13)],
)
def test_parse_call_golden_frames(frame: bytes, protocol: int, pos: int) -> None:
    """The header of a pull with sequence number 14, as Thrift's libraries write it in its three forms."""
    call = parse_call(frame)
    assert call == (protocol, "pull", 14, pos, frame)
    assert frame[call.pos] == 0


@given(st.sampled_from(PROTOCOLS), st.text(max_size=30), st.integers(-(1 << 31), (1 << 31) - 1))
def test_parse_call_reads_what_message_head_writes(protocol: int, name: str, seqid: int) -> None:
    """Every method name and sequence number, also a negative one, comes back."""
    head = message_head(protocol, CALL, name, seqid)
    call = parse_call(head + b"\x00")
    assert (call.protocol, call.method, call.seqid, call.pos) == (protocol, name, seqid, len(head))


@pytest.mark.parametrize("frame", [GOLDEN_COMPACT, GOLDEN_STRICT, GOLDEN_LOOSE])
def test_parse_call_cut_header_refused(frame: bytes) -> None:
    """A frame that ends anywhere within its header is fatal."""
    for end in range(parse_call(frame).pos):
        with pytest.raises(FatalWireError):
            parse_call(frame[:end])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("kind", "word"), [(ONEWAY, "oneway"), (REPLY, "reply"), (EXCEPTION, "reply"), (0, "type")])
def test_parse_call_other_messages_refused(protocol: int, kind: int, word: str) -> None:
    """A oneway call would go unanswered for good, so it closes its connection as any other non-call does."""
    with pytest.raises(FatalWireError, match=word):
        parse_call(message_head(protocol, kind, "pull", 1) + b"\x00")


@pytest.mark.parametrize(
    "frame",
    [
        b"pull",
        b"\x82\x22\x01\x04pull\x00",
        b"\x80\x02\x00\x01\x00\x00\x00\x04pull\x00\x00\x00\x01\x00",
        b"\x80\x01\x00\x01\xff\xff\xff\xffpull\x00\x00\x00\x01\x00",
        b"\x80\x01\x00\x01\x00\x00\xff\xff" + bytes(70_000),
        b"\x82\x21\x01\xff\xff\x03" + bytes(70_000),
        b"\x82\x21\xff\xff\xff\xff\xff\xff\x04pull\x00",
        b"\x82\x21\x01\x04pu\xff\xff\x00",
    ],
)
def test_parse_call_nonsense_refused(frame: bytes) -> None:
    """Unknown versions, long names, negative sizes, endless numbers and names that are no text are fatal."""
    with pytest.raises(FatalWireError):
        parse_call(frame)


@given(st.binary(max_size=60))
def test_parse_call_garbage_gives_only_the_peer_error(frame: bytes) -> None:
    """Whatever the bytes: a call, or FatalWireError."""
    try:
        call = parse_call(frame)
    except FatalWireError:
        return
    assert call.pos <= len(frame)
