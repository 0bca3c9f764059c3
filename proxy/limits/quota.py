"""The limits of one connection: those of its address, and of its principal once that is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from proxy.access.rights import Rights
from proxy.limits.meter import Meter, Rates

FETCHES = "(fetches)"
CHECKS = "(checks)"
"""In which lines fetches and fetches of checks wait, beside those of groups, whose names have no brackets."""


class LimitExceeded(NamedTuple):
    """A client that is at a limit.

    Attributes:
        meter: Who.
        limit: Its key in the section `limits`.
        after_ms: When it may come again.
    """

    meter: Meter
    limit: str
    after_ms: int

    @property
    def text(self) -> str:
        """A sentence for who is refused."""
        meter, limit = self.meter, self.limit
        above = "above its limit of" if limit.endswith("PerSecond") else "at its limit,"
        return f"{meter.who} is {above} {meter.said(limit)}; retry after {self.after_ms} ms"


class Refuse(Protocol):
    """Counts and logs refusals."""

    def __call__(self, over: LimitExceeded, count: int = 1) -> None:
        """Count so much of it."""


class Quota:
    """What one connection's client may take.

    Attributes:
        address: Of the address; None where it is not limited.
        principal: Of the principal that `rights` name; None where it is not limited, or has no place for one more
            connection.
        rights: Of whom that is; another object when the connection has other rights by now.
        is_known: Whether `rights` were looked at.
        over: Why the call that is being handled is not to be served; None where it is.
        surplus_since: Monotonic seconds since when it has asked without a place among its principal's connections.
        share: See `conf.sections.limits`.
        idle_seconds: Silence after which it is closed; None: never.
        refused: Counts and logs refusals, `count` of them.
    """

    __slots__ = (
        "_rates",
        "_service",
        "address",
        "idle_seconds",
        "is_known",
        "meters",
        "over",
        "principal",
        "refused",
        "rights",
        "share",
        "surplus_since",
    )

    def __init__(self, address: Meter | None, service: str, share: float | None, refused: Refuse) -> None:
        self._service = service
        self._rates: Sequence[tuple[Meter, Rates]] = ()
        self.address = address
        self.refused = refused
        self.principal: Meter | None = None
        self.rights: Rights | None = None
        self.is_known = False
        self.over: LimitExceeded | None = None
        self.surplus_since: float | None = None
        self.share = share
        self.idle_seconds: float | None = None
        self.meters: Sequence[Meter] = ()
        self.settle()

    def settle(self) -> None:
        """Bring together what holds, after a change of one of the two."""
        self.meters = tuple(each for each in (self.principal, self.address) if each is not None)
        self._rates = tuple((each, each.rates(self._service)) for each in self.meters)
        idle = [each.limits.idle_timeout for each in self.meters if each.limits is not None]
        given = [each for each in idle if each is not None]
        self.idle_seconds = min(given) / 1000 if given else None

    @property
    def client(self) -> Meter | None:
        """Who shares with others: the principal where it is known, else the address."""
        return self.principal or self.address

    # Rates

    def wait(self, now: float) -> tuple[float, Meter | None, str]:
        """Return the seconds until a call may continue, the principal, and the limit; 0, None, "" where it may now."""
        seconds, whose, limit = 0.0, None, ""
        for meter, rates in self._rates:
            wait, which = rates.wait(now)
            if wait > seconds:
                seconds, whose, limit = wait, meter, which
        return seconds, whose, limit

    def charge(self, size: int) -> None:
        """Take what a call of so many bytes costs."""
        for _, rates in self._rates:
            rates.charge(size)

    def sent(self, size: int) -> None:
        """Take what a reply of so many bytes costs."""
        for _, rates in self._rates:
            rates.sent(size)

    # What waits

    def full(self, line: str, free: int) -> LimitExceeded | None:
        """Say why one more pull may not wait; None when it may.

        Args:
            line: Where: the group, FETCHES or CHECKS.
            free: Places left there, for all clients.
        """
        for meter in self.meters:
            most = meter.parked_max
            if most is not None and meter.parked.total() >= most:
                return LimitExceeded(meter, "parkedPulls", AFTER_MS)
        client = self.client
        if self.share is not None and client is not None and client.parked[line] >= self.share * free:
            return LimitExceeded(client, "share", AFTER_MS)
        return None

    def park(self, line: str) -> Sequence[Meter]:
        """Count one more that waits; returns where, for `unpark`."""
        for meter in self.meters:
            meter.parked[line] += 1
        return self.meters


AFTER_MS = 1000
"""When to come again where no moment is known: that of the next look."""


def unpark(meters: Sequence[Meter], line: str) -> None:
    """Count one that waits no more, where it was counted."""
    for meter in meters:
        meter.parked[line] -= 1
        if meter.parked[line] <= 0:
            del meter.parked[line]
