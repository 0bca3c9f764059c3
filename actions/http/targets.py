"""The URLs of one subscription: which one a message is pushed to, and which are out. Pure; time is handed in.

Each URL has a circuit breaker. Failures count against it that show that no server works there: no connection, a
reset, no reply in time, a reply that is none, status 429 and 5xx. Another status says something of the message.

| state | event | next | meaning |
| --- | --- | --- | --- |
| CLOSED | ok | CLOSED | its failures in a row are forgotten |
| CLOSED | failed, fewer than `failures` in a row | CLOSED | |
| CLOSED | failed, the last of `failures` in a row | OPEN | it is out for `openMs` |
| OPEN | ok, failed | OPEN | of requests that were out when it opened: an ok closes nothing |
| OPEN | asked for after its time | HALF_OPEN | this request probes it |
| HALF_OPEN | the probe: ok | CLOSED | |
| HALF_OPEN | the probe: failed | OPEN | for twice as long as before, `openMsMax` at most |
| HALF_OPEN | the probe: abandoned, the node drains | OPEN | its time has come at once |

A message's first URL is a matter of its offset, so that its repeats rotate from there: one URL further per error (R53).
A URL that is out is passed over. Where all are, the message waits for the first that may be probed; it was not tried,
so no attempt is counted.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from actions.http.options import BreakerOptions

PROBE_WAIT_MS = 1000
"""How long a message waits while a probe is on its way."""


class Health(enum.Enum):
    """State of a URL."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Ticket(NamedTuple):
    """One request's right to a URL; handed back with what became of it."""

    target: HttpTarget
    is_probe: bool


class HttpTarget:
    """One URL and its breaker.

    Attributes:
        url: As it is shown: without its query.
        place: Where it is in `urls`.
        health: Its state.
        failures: Failures in a row.
        failed_total: Failures since the subscription began.
        since: Monotonic seconds when the present row of failures began; None while there is none.
        reason: Of the last failure.
        due: Monotonic seconds from which it may be probed; of one that is OPEN.
    """

    __slots__ = ("_breaker", "_open_ms", "due", "failed_total", "failures", "health", "place", "reason", "since", "url")

    def __init__(self, url: str, place: int, breaker: BreakerOptions) -> None:
        self.url = url.partition("?")[0]
        self.place = place
        self.health = Health.CLOSED
        self.failures = 0
        self.failed_total = 0
        self.since: float | None = None
        self.reason = ""
        self.due = 0.0
        self._breaker = breaker
        self._open_ms = breaker.open_ms

    def permit(self, now: float) -> Ticket | None:
        """Return the right to one request; None while it is out."""
        if self.health is Health.CLOSED:
            return Ticket(self, False)
        if self.health is Health.OPEN and now >= self.due:
            self.health = Health.HALF_OPEN
            return Ticket(self, True)
        return None

    def wait_ms(self, now: float) -> int:
        """Milliseconds until it is worth to ask again."""
        if self.health is Health.HALF_OPEN:
            return PROBE_WAIT_MS
        return max(0, round((self.due - now) * 1000))


class Targets:
    """All URLs of a subscription."""

    def __init__(self, urls: Sequence[str], breaker: BreakerOptions) -> None:
        self.all = [HttpTarget(url, place, breaker) for place, url in enumerate(urls)]
        self._breaker = breaker

    @property
    def last_reason(self) -> str:
        """Of the failure that is the latest among those of URLs that are out."""
        out = [target for target in self.all if target.health is not Health.CLOSED]
        return max(out, key=lambda target: target.due).reason if out else ""

    def pick(self, start: int, now: float) -> Ticket | None:
        """Return the right to a request: of the URL at `start`, modulo their number, or the next that is not out."""
        count = len(self.all)
        for step in range(count):
            ticket = self.all[(start + step) % count].permit(now)
            if ticket is not None:
                return ticket
        return None

    def wait_ms(self, now: float) -> int:
        """Milliseconds until one of them may be asked; all are out."""
        return min(target.wait_ms(now) for target in self.all)

    def ok(self, ticket: Ticket) -> bool:
        """Note a reply; returns whether the URL is in again by it."""
        target = ticket.target
        if target.health is Health.CLOSED:
            target.failures = 0
            target.since = None
            return False
        if not ticket.is_probe:
            return False
        target.health = Health.CLOSED
        target.failures = 0
        target.since = None
        target._open_ms = self._breaker.open_ms
        return True

    def failed(self, ticket: Ticket, reason: str, now: float) -> bool:
        """Note a failure; returns whether the URL is out by it that was not."""
        target = ticket.target
        target.failures += 1
        target.failed_total += 1
        target.reason = reason
        if target.since is None:
            target.since = now
        if ticket.is_probe:
            target._open_ms = min(target._open_ms * 2, max(self._breaker.open_ms_max, self._breaker.open_ms))
        elif target.health is not Health.CLOSED or not 0 < self._breaker.failures <= target.failures:
            return False
        target.health = Health.OPEN
        target.due = now + target._open_ms / 1000
        return not ticket.is_probe

    def given_up(self, ticket: Ticket, now: float) -> None:
        """Note that a request ended without anything that says something of the URL."""
        if ticket.is_probe:
            ticket.target.health = Health.OPEN
            ticket.target.due = now
