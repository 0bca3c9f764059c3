"""Frames of Thrift's framed transport: a 4-byte big-endian length and that many bytes.

The length is judged before anything is kept for it, so a peer can make us hold no more than one frame of
`frame_bytes_max` and what came in the same read. A length that cannot be one is looked at as text, since the usual
reasons are an HTTP client on the wrong port and a Thrift client without framing; both get a sentence that helps.
"""

from __future__ import annotations

from proxy.wire.errors import FrameError

__all__ = ["FrameError", "FrameSplitter"]

_HTTP_BEGINNINGS = frozenset((b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "))
_FROM_BYTES = int.from_bytes


class FrameSplitter:
    """Cuts the bytes of one connection into frames.

    `feed` what was received, then call `next` until it returns None; frames that came before a bad one are handed
    out first.
    """

    __slots__ = ("_admin_hint", "_buffer", "_error", "_frame_bytes_max", "_pos", "_rest")

    def __init__(self, frame_bytes_max: int, *, admin_hint: str = "") -> None:
        """Set up for one connection.

        Args:
            frame_bytes_max: Longest frame, without the 4 bytes of its length.
            admin_hint: Where HTTP is served, such as "http://127.0.0.1:9813/", for the answer to an HTTP client.
        """
        assert 0 < frame_bytes_max < 1 << 31, "a frame length is a positive i32"
        self._frame_bytes_max = frame_bytes_max
        self._admin_hint = admin_hint
        # What is unread stands in `_buffer` from `_pos` on. `_buffer` is the received object itself as long as it
        # begins with a frame, and `_rest` gathers a frame that came in pieces: one copy, however small they are.
        self._buffer = b""
        self._pos = 0
        self._rest = bytearray()
        self._error: FrameError | None = None

    @property
    def buffered(self) -> int:
        """Bytes held that no `next` has returned yet."""
        return len(self._buffer) - self._pos + len(self._rest)

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and is not complete. Meaningful after `next` returned None."""
        return not self.ready and self.buffered > 0

    @property
    def ready(self) -> bool:
        """Whether `next` would return a frame or raise."""
        if self._error is not None:
            return True
        held = len(self._buffer) - self._pos
        if held:
            if held < 4:
                return False
            size = _FROM_BYTES(self._buffer[self._pos : self._pos + 4], "big")
            return not 0 < size <= self._frame_bytes_max or held - 4 >= size
        return self._rest_is_ready()

    def drop(self) -> None:
        """Let go of everything that was received."""
        self._buffer = b""
        self._pos = 0
        self._rest = bytearray()

    def whole(self, data: bytes) -> bytes | None:
        """Return the frame that received bytes are, when they are exactly one and nothing is held; else `feed` them."""
        size = len(data) - 4
        if (
            0 < size <= self._frame_bytes_max
            and _FROM_BYTES(data[:4], "big") == size
            and self._pos >= len(self._buffer)
            and not self._rest
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
        buffer = self._buffer
        pos = self._pos
        held = len(buffer) - pos
        if not held:
            if not self._rest or not self._rest_is_ready():
                return None
            # The gathered bytes are copied once, into the object that the frame and its successors are cut from.
            buffer = self._buffer = bytes(self._rest)
            self._rest = bytearray()
            pos = self._pos = 0
            held = len(buffer)
        if held >= 4:
            size = _FROM_BYTES(buffer[pos : pos + 4], "big")
            if not 0 < size <= self._frame_bytes_max:
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

    def _rest_is_ready(self) -> bool:
        rest = self._rest
        if len(rest) < 4:
            return False
        size = _FROM_BYTES(rest[:4], "big")
        return not 0 < size <= self._frame_bytes_max or len(rest) - 4 >= size

    def _refusal(self, head: bytes) -> FrameError:
        """Say what four bytes are that cannot be a frame's length."""
        size = _FROM_BYTES(head, "big", signed=True)
        limit = self._frame_bytes_max
        if head in _HTTP_BEGINNINGS:
            hint = f" HTTP is served at {self._admin_hint}." if self._admin_hint else ""
            text = f"This port speaks framed Thrift, not HTTP.{hint}"
            return FrameError(text, reason="http", answer=_http_answer(text))
        if head[:2] in (b"\x80\x01", b"\x82\x21"):
            text = "a Thrift call without a frame: wrap the client's transport in TFramedTransport"
            return FrameError(text, reason="unframed")
        if head[0] == 0x16 and head[1] == 0x03:
            return FrameError("a TLS greeting: this port serves no TLS, connect without it", reason="tls")
        if size == 0:
            return FrameError(
                "a frame of 0 bytes: send nothing between calls; each frame holds one whole Thrift message",
                reason="empty",
            )
        if size < 0:
            return FrameError(
                f"a frame of {size} bytes: what came is no frame length; connect with a client of framed Thrift",
                reason="negative",
            )
        text = (
            f"a frame of {size} bytes: the limit is {limit} (maxReadBufferBytes); send fewer or smaller messages at "
            "once, and if the number makes no sense, see that the client speaks framed Thrift"
        )
        return FrameError(text, reason="too_long")


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
