"""The built-in actions and the registry that finds others by name, entry point or dotted path.

May import `upstream` and `conf`. An action sees its job and nothing of connections or files. The protocol is
re-exported here, for people who write their own.
"""

from upstream.action import Action, MessageUnreadable, Status, Unprocessable
from upstream.job import Message, UpstreamJob

__all__ = ["Action", "Message", "MessageUnreadable", "Status", "Unprocessable", "UpstreamJob"]
