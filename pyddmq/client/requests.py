"""A call of a producer as it is handed over by both clients, and what a message holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from pyddmq.client.errors import ClientMisuse

T = TypeVar("T")

Body = bytes | bytearray | memoryview
"""What a message holds."""


class NodeRequest(NamedTuple, Generic[T]):
    """One call.

    Attributes:
        method, arguments: As in the IDL.
        timeout_ms: How long the node may take for it.
        messages: Those of the arguments that get numbers.
        made: Makes what the caller gets of its result, whose code is 0, and of how often it was sent.
    """

    method: str
    arguments: Mapping[str, object]
    timeout_ms: int
    messages: Sequence[Any]
    made: Callable[[Any, int], T]


def body_bytes(body: object) -> bytes:
    """Return a message's body as bytes. Raises ClientMisuse: it is none."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    kind = type(body).__name__
    raise ClientMisuse(f"the body of a message is {kind}: give bytes, of a text for example text.encode()")
