"""Who has messages, a connection as groups see it or a call of an action; and bodies that actions made for them."""

from __future__ import annotations

from typing import Any, Protocol


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
        ...

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""
        ...


class Made(Protocol):
    """A body that actions made.

    Attributes:
        data: Its bytes.
    """

    data: bytes


class CallOut(Protocol):
    """A call of an action that is out; see `upstream.calls.caller.ActionCall`."""

    action: str
    since: float
    limit_ms: int
    late: bool
    successors: list[Any]
