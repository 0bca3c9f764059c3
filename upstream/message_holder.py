"""Who has messages, a connection as groups see it or a call of an action; and bodies that actions made for them."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Holder(Protocol):
    """A connection, as the buffer sees it.

    Attributes:
        heard: Number of the last reply that the client can have had when it sent the request being handled.
        carried: Number of the last reply with messages.
        client: What the client says of itself, fit to be shown; "" where it says nothing. Nothing is decided by it.
    """

    heard: int
    carried: int
    client: str

    @property
    def address(self) -> str:
        """`ip:port` of the client."""

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""


BODY_BYTES = 160
"""What a body takes beside its bytes; measured on 64-bit CPython 3.11."""


class MadeBody:
    """A body, for as long as its job lives."""

    __slots__ = ("_freed", "data")

    def __init__(self, data: bytes, freed: deque[int]) -> None:
        self.data = data
        self._freed = freed

    def __del__(self) -> None:
        self._freed.append(len(self.data) + BODY_BYTES)
