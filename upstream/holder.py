"""Who has messages: a connection that they were handed to, as the buffer sees it, or a call of an action."""

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


class CallOut(Protocol):
    """A call of an action that is out (`upstream.calls.call.Call`).

    Attributes:
        action: Name of the action.
        since: Monotonic seconds when it began.
        limit_ms: Its time limit.
        late: It went on beyond that.
        successors: Jobs of a later generation that took the places of its jobs, and wait for its end.
    """

    action: str
    since: float
    limit_ms: int
    late: bool
    successors: list[Any]
