"""Frames of Thrift's framed transport: a 4-byte big-endian length and that many bytes.

The length is judged before anything is kept for it, so a peer can make us hold no more than one frame of
`frame_bytes_max` and what came in the same read. A length that cannot be one is looked at as text, since the usual
reasons are an HTTP client on the wrong port and a Thrift client without framing; both get a sentence that helps.

A frame that is too long and begins like a call is not kept but counted to its end: its first bytes say which call it
is, so that it can be answered (`CutFrame`), and the connection lives.
"""

from __future__ import annotations

from proxy.tls.failures import ALERT
from proxy.wire.errors import FrameError

CUT_BYTES_MAX = 64 * 1024 * 1024
"""Longest frame that is read to its end although it is too long; a longer one closes its connection."""
CUT_HEAD_BYTES = 256
"""What is kept of it: the longest header of a call fits."""

_HTTP_BEGINNINGS = frozenset((b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "))
_FROM_BYTES = int.from_bytes


class CutFrame(bytes):
    """The first bytes of a frame that is too long; the rest was read and is gone.

    Attributes:
        size: Its length.
        limit: The longest one allowed.
    """

    size: int
    limit: int

    @property
    def problem(self) -> str:
        """What is wrong with it, and what to do."""
        return _too_long(self.size, self.limit)


class FrameSplitter:
    """Cuts the bytes of one connection into frames.

    `feed` what was received, then call `next` until it returns None; frames that came before a bad one are handed
    out first.
    """

    __slots__ = ("_admin_hint", "_buffer", "_cut", "_cut_left", "_error", "_frame_bytes_max", "_pos", "_rest")

    def __init__(self, frame_bytes_max: int, *, admin_hint: str = "") -> None:
        """Set up for one connection.

        Args:
            frame_bytes_max: Longest frame, without the 4 bytes of its length.
            admin_hint: Where HTTP is served, such as "http://127.0.0.1:9813/", for the answer to an HTTP client.
        """
        assert 0 < frame_bytes_max < 1 << 31, "a frame length is a positive i32"
        self._frame_bytes_max = frame_bytes_max
        self._admin_hint = admin_hint
        # What is unread is in `_buffer` from `_pos` on. `_buffer` is the received object itself as long as it
        # begins with a frame, and `_rest` gathers a frame that came in pieces: one copy, however small they are.
        self._buffer = b""
        self._pos = 0
        self._rest = bytearray()
        self._error: FrameError | None = None
        # Of a frame that is too long: its head, its length in front, and how many of its bytes are still to come.
        self._cut = bytearray()
        self._cut_left = 0

    @property
    def buffered(self) -> int:
        """Bytes held that no `next` has returned yet."""
        return len(self._buffer) - self._pos + len(self._rest)

    @property
    def missing(self) -> int:
        """Bytes that the frame which has begun still lacks, as far as its length is known."""
        if self._cut_left:
            return self._cut_left - self.buffered
        held = self.buffered
        head = (self._buffer[self._pos : self._pos + 4] + self._rest[:4])[:4]
        return _FROM_BYTES(head, "big") + 4 - held if held >= 4 else 4 - held

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and is not complete. Meaningful after `next` returned None."""
        return not self.ready and (self.buffered > 0 or self._cut_left > 0)

    @property
    def ready(self) -> bool:
        """Whether `next` would return a frame or raise."""
        if self._error is not None:
            return True
        if self._cut_left:
            return self.buffered >= self._cut_left
        held = len(self._buffer) - self._pos
        if held:
            return self._is_ready(self._buffer[self._pos : self._pos + 6], held)
        return self._is_ready(self._rest[:6], len(self._rest))

    def drop(self) -> None:
        """Let go of everything that was received, and of what was wrong with it."""
        self._buffer = b""
        self._pos = 0
        self._rest = bytearray()
        self._error = None
        self._cut = bytearray()
        self._cut_left = 0

    def whole(self, data: bytes) -> bytes | None:
        """Return the frame that received bytes are, when they are exactly one and nothing is held; else `feed` them."""
        size = len(data) - 4
        if (
            0 < size <= self._frame_bytes_max
            and _FROM_BYTES(data[:4], "big") == size
            and self._pos >= len(self._buffer)
            and not self._rest
            and not self._cut_left
            and self._error is None
        ):
            return data[4:]
        return None

    def feed(self, data: bytes) -> None:
        """Take received bytes, of any length."""
        if self._rest:
            self._rest += data
        elif self._pos >= len(self._buffer):
            self._buffer = data
            self._pos = 0
        else:
            self._rest += self._buffer[self._pos :]
            self._rest += data
            self._buffer = b""
            self._pos = 0

    def next(self) -> bytes | None:
        """Return the next frame without its length, or None when no complete one is there.

        Raises:
            FrameError: What comes next is no frame, or one that is empty or too long; it is raised again by later
                calls.
        """
        if self._error is not None:
            raise self._error
        if self._cut_left:
            return self._discard()
        buffer = self._buffer
        pos = self._pos
        held = len(buffer) - pos
        if not held:
            rest = self._rest
            if not self._is_ready(rest[:6], len(rest)):
                return None
            if len(rest) - 4 == _FROM_BYTES(rest[:4], "big") <= self._frame_bytes_max:
                # A frame by itself, as large ones mostly are: one copy.
                self._rest = bytearray()
                return bytes(memoryview(rest)[4:])
            # The gathered bytes are copied once, into the object that the frame and its successors are cut from.
            buffer = self._buffer = bytes(self._rest)
            self._rest = bytearray()
            pos = self._pos = 0
            held = len(buffer)
        if held >= 4:
            size = _FROM_BYTES(buffer[pos : pos + 4], "big")
            if not 0 < size <= self._frame_bytes_max:
                if self._may_be_cut(buffer[pos : pos + 6], size):
                    if held >= 6:
                        self._cut_left = size
                        self._cut += buffer[pos : pos + 4]
                        self._pos = pos + 4
                        return self._discard()
                    size = held  # The next bytes decide.
                else:
                    self._error = self._refusal(buffer[pos : pos + 4])
                    raise self._error
            end = pos + 4 + size
            if end <= len(buffer):
                self._pos = end
                return buffer[pos + 4 : end]
        # An incomplete frame moves to `_rest`, so that the received object is not kept for its last bytes.
        self._rest += buffer[pos:]
        self._buffer = b""
        self._pos = 0
        return None

    def _is_ready(self, head: bytes | bytearray, held: int) -> bool:
        """Whether `next` has something to say of held bytes that begin so."""
        if held < 4:
            return False
        size = _FROM_BYTES(head[:4], "big")
        if 0 < size <= self._frame_bytes_max:
            return held - 4 >= size
        return held >= 6 or not self._may_be_cut(head, size)

    def _may_be_cut(self, head: bytes | bytearray, size: int) -> bool:
        """Whether a frame that is too long begins like a call, as far as that is known."""
        begins = bytes(head[4:6])
        return self._frame_bytes_max < size <= CUT_BYTES_MAX and (
            len(begins) < 2 or begins in (b"\x80\x01", b"\x82\x21")
        )

    def _discard(self) -> CutFrame | None:
        """Drop the received part of a frame that is too long, but for its head; that is returned with its end."""
        data = bytes(self._rest) if self._pos >= len(self._buffer) else self._buffer[self._pos :]
        taken = data[: self._cut_left]
        self._cut += taken[: max(0, 4 + CUT_HEAD_BYTES - len(self._cut))]
        self._cut_left -= len(taken)
        self._buffer, self._pos, self._rest = data[len(taken) :], 0, bytearray()
        if self._cut_left:
            return None
        frame = CutFrame(self._cut[4:])
        frame.size, frame.limit = _FROM_BYTES(self._cut[:4], "big"), self._frame_bytes_max
        self._cut = bytearray()
        return frame

    def _refusal(self, head: bytes) -> FrameError:
        """Say what four bytes are that cannot be a frame's length."""
        size = _FROM_BYTES(head, "big", signed=True)
        limit = self._frame_bytes_max
        if head in _HTTP_BEGINNINGS:
            hint = f" HTTP is served at {self._admin_hint}." if self._admin_hint else ""
            text = f"This port speaks framed Thrift, not HTTP.{hint}"
            return FrameError(text, reason="http", answer=_http_answer(text))
        if head[:2] in (b"\x80\x01", b"\x82\x21"):
            text = "a Thrift call without a frame; wrap the client's transport in TFramedTransport"
            return FrameError(text, reason="unframed")
        if head[0] == 0x16 and head[1] == 0x03:
            text = "a TLS greeting, and this port does not speak TLS; use the port under `tls`, or connect without TLS"
            return FrameError(text, reason="tls", answer=ALERT)
        if size == 0:
            return FrameError(
                "a frame of 0 bytes; each frame must have one whole Thrift message",
                reason="empty",
            )
        if size < 0:
            return FrameError(
                f"a frame of {size} bytes is not valid; connect with a client of framed Thrift",
                reason="negative",
            )
        text = _too_long(size, limit)
        return FrameError(text, reason="too_long")


def _too_long(size: int, limit: int) -> str:
    return (
        f"a frame of {size} bytes; the limit is {limit} (maxReadBufferBytes); send fewer or smaller "
        "messages at once. If the number makes no sense, check that the client speaks framed Thrift"
    )


def _http_answer(text: str) -> bytes:
    """Return a complete HTTP/1.1 response with a text for people."""
    body = (text + "\n").encode()
    head = (
        "HTTP/1.1 400 Bad Request\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
