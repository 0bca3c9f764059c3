"""The three kinds of faults that a sink meets: of one message, of one connection, of one server (docs/sinks.md).

Each sink sorts the errors of its server into these, and treats the kinds alike: a message has an outcome of its own,
a connection is renewed and the work tried again, and for a server the whole sink waits (`actions.sinks.away`).
"""

from __future__ import annotations


class MessageRefused(Exception):
    """The server refuses this message; other messages continue.

    Attributes:
        waits: The message lacks room or a permission, which an operator can give: it is tried again, uncounted.
            False: it fails, and the failure is counted.
    """

    def __init__(self, reason: str, *, waits: bool = False) -> None:
        super().__init__(reason)
        self.waits = waits


class ServerAway(Exception):
    """The server cannot be used now; whether the message had an effect is unknown."""


class ConnectionStale(ServerAway):
    """The connection cannot be used: the server's role, a slot or a secret changed. The message had no effect."""
