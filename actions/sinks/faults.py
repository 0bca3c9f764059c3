"""The three kinds of faults that a sink meets: of one message, of one connection, of one server (docs/sinks.md).

Each sink sorts the errors of its server into these, and treats the kinds alike: a message has an outcome of its own,
a connection is renewed and the work tried again, and for a server the whole sink waits (`actions.sinks.server_outage`).
"""

from __future__ import annotations

import errno


class ServerRefusedMessage(Exception):
    """The server refuses this message; other messages continue.

    Attributes:
        waits: The message lacks room or a permission, which an operator can give: it is tried again, uncounted.
            False: it fails, and the failure is counted.
        is_partial: A part of it may have been written.
    """

    def __init__(self, reason: str, *, waits: bool = False, is_partial: bool = False) -> None:
        super().__init__(reason)
        self.waits = waits
        self.is_partial = is_partial


class ServerAway(Exception):
    """The server cannot be used now; whether the message had an effect is unknown."""


class ConnectionStale(ServerAway):
    """The connection cannot be used: the server's role, a slot or a secret changed. The message had no effect."""


_REFUSED = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EILSEQ)
_WAITS = (errno.EACCES, errno.EPERM, errno.EDQUOT)


def fault_of_disk(error: OSError, text: str) -> Exception:
    """Return the fault that an error of a file system means: of the file's messages, or of the whole system."""
    if error.errno in _REFUSED:
        return ServerRefusedMessage(text)
    if error.errno in _WAITS:
        return ServerRefusedMessage(text, waits=True, is_partial=error.errno == errno.EDQUOT)
    return ServerAway(text)
