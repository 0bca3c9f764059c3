"""What can go wrong on the wire, in two families: the peer's misbehaviour (`WireError`) and our own (`WireMisuse`)."""

from __future__ import annotations

APPLICATION_UNKNOWN_METHOD = 1
"""TApplicationException kind: no such method."""
APPLICATION_INTERNAL_ERROR = 6
"""TApplicationException kind: the server could not do it."""
APPLICATION_PROTOCOL_ERROR = 7
"""TApplicationException kind: the arguments do not decode."""


class WireError(Exception):
    """The peer sent something that the protocol does not allow. Nothing of what it sent took effect.

    Attributes:
        closes: Whether its connection must close, since the frames that follow on it cannot be separated any more.
        retriable: Whether the same bytes may be taken another time; never.
    """

    closes = True
    retriable = False


class FrameError(WireError):
    """The bytes are no frames of acceptable length; the connection closes.

    Attributes:
        reason: Short label for counters: `http`, `tls`, `unframed`, `empty`, `negative` or `too_long`.
        answer: Bytes to send before closing; empty except for an HTTP client, which gets a response it can show.
    """

    def __init__(self, text: str, *, reason: str, answer: bytes = b"") -> None:
        self.reason = reason
        self.answer = answer
        super().__init__(text)


class FatalWireError(WireError):
    """A frame does not begin with a Thrift call of either protocol; the connection closes."""


class ArgumentsError(WireError):
    """The arguments of a call do not decode, break a limit or lack a required field: kind 7, the connection lives."""

    closes = False
    kind = APPLICATION_PROTOCOL_ERROR


class MessageError(ArgumentsError):
    """A message that is sent breaks a rule that its producer can keep.

    DDMQ's client libraries take a server out of their list after any TApplicationException, so the sends answer this
    with a code of their own result.

    Attributes:
        place: Of a batch, which message, counted from 0; None of a single one.
        count: Messages of the call.
    """

    def __init__(self, text: str) -> None:
        self.place: int | None = None
        self.count = 1
        super().__init__(text)


class PropertiesError(MessageError):
    """The messages of one call have too many properties."""


class TextError(MessageError):
    """A string of a message is not valid UTF-8.

    Attributes:
        field: Which text it is.
    """

    def __init__(self, field: str) -> None:
        self.field = field
        super().__init__(f"the {field} is not UTF-8; encode it as UTF-8, or put the bytes into the body")


class WireMisuse(ValueError):
    """Our own code asked for something that cannot be put on the wire, such as a number that is too large."""
