"""A plain model of what one group may get: a dictionary of messages, and no idea of how a node works.

It keeps, per message, whether it waits, is out (to whom, until when), waits for a retry, is finished or dead, and
answers two questions: which messages may be handed out now, and which must be.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SLACK_SECONDS = 0.005
"""Between what the node and the model call the same moment: milliseconds are rounded, replies travel."""


@dataclass(slots=True)
class Message:
    """One message of the group. `state`: waiting, out, retrying, finished or dead."""

    uid: int
    key: str
    state: str = "waiting"
    holder: str = ""
    until: float = 0.0
    fails: int = 0
    errors: int = 0
    held_until: float = 0.0
    held_by: str = ""
    seen_by: set[str] = field(default_factory=set)


class GroupModel:
    """The messages of a group on one topic, in log order.

    Args:
        intervals: Seconds before each retry of a failed message; after the last: dead.
        errors_max: Time-outs that are retried; one more: dead.
        timeout: Seconds a delivery may be out.
    """

    def __init__(self, *, intervals: tuple[float, ...], errors_max: int, timeout: float) -> None:
        self.messages: dict[int, Message] = {}
        self._intervals = intervals
        self._errors_max = errors_max
        self._timeout = timeout

    def sent(self, uid: int, key: str) -> None:
        """Add a stored message."""
        self.messages[uid] = Message(uid, key)

    def may_come(self, now: float) -> set[int]:
        """Messages that a pull answered now may contain."""
        return self._ready(now + SLACK_SECONDS)

    def must_come(self, now: float) -> set[int]:
        """Messages of which a pull that began now must get some, if there are any."""
        return self._ready(now - SLACK_SECONDS)

    def delivered(self, uid: int, client: str, now: float) -> None:
        """Hand a message out."""
        self._pass_time(now + SLACK_SECONDS)
        message = self.messages[uid]
        message.state, message.holder, message.until = "out", client, now + self._timeout
        message.seen_by.add(client)

    def answered(self, uid: int, client: str, success: bool, now: float) -> None:
        """Take a result (D12): a success counts from anybody, a failure from the holder alone."""
        self._pass_time(now)
        message = self.messages[uid]
        if message.held_by == client:
            message.held_by = ""
        if message.state in ("finished", "dead"):
            return
        mine = message.state == "out" and message.holder == client
        if success:
            if message.state == "out" and not mine:
                # The key waits for the present holder's answer or time-out.
                message.held_by, message.held_until = message.holder, message.until
            message.state = "finished"
        elif mine:
            if message.fails < len(self._intervals):
                message.state, message.until = "retrying", now + self._intervals[message.fails]
            else:
                message.state = "dead"
            message.fails += 1

    def restarted(self, now: float) -> None:
        """Start again after a crash or stop: what was out comes at once, retries after what is left of their wait."""
        self._pass_time(now)
        for message in self.messages.values():
            message.held_by = ""
            if message.state == "out":
                message.state = "waiting"

    def _pass_time(self, now: float) -> None:
        for message in self.messages.values():
            if message.held_by and message.held_until <= now:
                message.held_by = ""
            if message.state == "out" and message.until <= now:
                message.errors += 1
                message.state = "waiting" if message.errors <= self._errors_max else "dead"
            elif message.state == "retrying" and message.until <= now:
                message.state = "waiting"

    def _ready(self, now: float) -> set[int]:
        """First unfinished message of each key, and every one without a key, if it waits for nothing at `now`."""
        found: set[int] = set()
        blocked: set[str] = set()
        for message in self.messages.values():
            over = message.state in ("finished", "dead")
            if over and not (message.held_by and message.held_until > now):
                continue
            expired = message.state == "out" and message.until <= now
            if expired and message.errors >= self._errors_max:
                continue
            due = message.state == "retrying" and message.until <= now
            if not over and message.key not in blocked and (message.state == "waiting" or expired or due):
                found.add(message.uid)
            if message.key:
                blocked.add(message.key)
        return found
