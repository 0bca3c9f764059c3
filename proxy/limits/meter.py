"""What one client takes at present, against what its line of the section `limits` allows.

Rates are token buckets (`upstream.waiting.limits`), each full with one second's worth. A call continues while there is
a whole token, and may take more than there are: the debt is paid by what comes after it. So one large frame is never
stuck, and over time the rate is exact.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from typing import Literal

from broker.runtime.seams import Clock
from conf.sections.limits import ClientLimits, PrincipalLimits
from upstream.waiting.limits import TokenBucket

# How many of a client's messages wait for their moment: by when each is due, since its end is not reported to it.
#
# A message that is due counts no more; one that was cancelled is taken off by the moment that it would have been due.


_MINUTE_MS = 60_000


class _Moments:
    """Some moments, and the names of what is due then, as far as it has one."""

    __slots__ = ("counts", "names")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.names: set[str] = set()

    def add(self, due_ms: int, name: str) -> bool:
        """Count one; False: one of this name is counted already."""
        if name in self.names:
            return False
        if name:
            self.names.add(name)
        self.counts[due_ms] = self.counts.get(due_ms, 0) + 1
        return True

    def end(self, due_ms: int, name: str) -> bool:
        """Count one no more; False: it is not counted."""
        count = self.counts.get(due_ms, 0)
        if not count or (name and name not in self.names):
            return False
        self.names.discard(name)
        if count == 1:
            del self.counts[due_ms]
        else:
            self.counts[due_ms] = count - 1
        return True


class WaitingTimes:
    """The due times of what one client has waiting, ms since the epoch.

    They may be a year away, and as many may be cancelled as are sent: nothing is kept of these. A cancel may be
    repeated, or be of a message of before the start, and is answered alike; so what can be cancelled has a name. The
    moments of the present minute are in a heap besides.
    """

    __slots__ = ("_heap", "_later", "_later_ms", "_soon", "_total")

    def __init__(self) -> None:
        self._soon = _Moments()
        self._heap: list[int] = []
        """The moments of `_soon`; some have ended, or are in it twice."""
        self._later: dict[int, _Moments] = {}
        """By minute."""
        self._later_ms = 0
        """What is due from here on is in `_later`."""
        self._total = 0

    def add(self, due_ms: int, name: str = "") -> None:
        """Count one that is due then, once by its name."""
        if due_ms < self._later_ms:
            added = self._soon.add(due_ms, name)
            if added and self._soon.counts[due_ms] == 1:
                heappush(self._heap, due_ms)
        else:
            added = self._later.setdefault(due_ms // _MINUTE_MS, _Moments()).add(due_ms, name)
        self._total += added

    def end(self, due_ms: int, name: str = "") -> None:
        """Count one no more that was due then; one that is not counted, by its name or at all, ends no other."""
        if due_ms < self._later_ms:
            self._total -= self._soon.end(due_ms, name)
            return
        minute = due_ms // _MINUTE_MS
        moments = self._later.get(minute)
        if moments is not None:
            self._total -= moments.end(due_ms, name)
            if not moments.counts:
                del self._later[minute]

    def count(self, now_ms: int) -> int:
        """Return how many wait."""
        if now_ms >= self._later_ms:
            following = now_ms // _MINUTE_MS + 1
            self._later_ms = following * _MINUTE_MS
            self._total -= sum(self._soon.counts.values())
            self._soon = self._later.pop(following - 1, _Moments())
            self._heap = sorted(self._soon.counts)
            for minute in [each for each in self._later if each < following]:
                self._total -= sum(self._later.pop(minute).counts.values())
        while self._heap and self._heap[0] <= now_ms:
            self._total -= self._soon.counts.pop(heappop(self._heap), 0)
        return self._total

    def next_ms(self) -> int | None:
        """Return when the first of them is due, as of the last count; None where none waits."""
        while self._heap and self._heap[0] not in self._soon.counts:
            heappop(self._heap)
        if self._heap:
            return self._heap[0]
        return min(self._later[min(self._later)].counts) if self._later else None


Kind = Literal["principal", "address"]

QUIET_SECONDS = 60.0
"""After so long without being held back a client is held no more; the next time counts from then on."""

RATES = (
    ("requestsPerSecond", "requests_per_second", "requests"),
    ("bytesInPerSecond", "bytes_in_per_second", "bytes in"),
    ("bytesOutPerSecond", "bytes_out_per_second", "bytes out"),
)
"""Key in YAML, attribute, and what people call it."""
_UNITS = {key: unit for key, _, unit in RATES}


class LimitedClient:
    """How a client is being held to one limit.

    Attributes:
        since_ms: Since when, wall clock.
        said: What the limit says, for people; it may be another one by now, or none.
        last: When it last was, monotonic seconds.
        waited: Calls that it was held back for.
        refused: Calls, connections, messages that were refused.
    """

    __slots__ = ("last", "refused", "said", "since_ms", "waited")

    def __init__(self, since_ms: int, said: str) -> None:
        self.since_ms = since_ms
        self.said = said
        self.last = 0.0
        self.waited = 0
        self.refused = 0


class Rates:
    """The rates of one client on one port: sends and pulls wait for different lengths, and would starve each other."""

    __slots__ = ("_all", "_buckets", "_bytes_in", "_bytes_out", "_clock", "_requests")

    def __init__(self, limits: ClientLimits | None, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}
        self._all: tuple[tuple[str, TokenBucket], ...] = ()
        self._requests: TokenBucket | None = None
        self._bytes_in: TokenBucket | None = None
        self._bytes_out: TokenBucket | None = None
        self.configure(limits)

    def configure(self, limits: ClientLimits | None) -> None:
        """Take another line; what was taken stays taken, a rate that is new begins full."""
        for key, attribute, _ in RATES:
            rate = None if limits is None else getattr(limits, attribute)
            if rate is None:
                self._buckets.pop(key, None)
            elif key in self._buckets:
                self._buckets[key].configure(rate)
            else:
                self._buckets[key] = TokenBucket(rate, self._clock)
        self._all = tuple(self._buckets.items())
        self._requests, self._bytes_in, self._bytes_out = (self._buckets.get(key) for key, _, _ in RATES)

    def wait(self, now: float) -> tuple[float, str]:
        """Return the seconds until it may ask something, and the limit that it waits for; 0 and "" when it may now."""
        seconds, limit = 0.0, ""
        for key, bucket in self._all:
            wait = bucket.wait_at(now)
            if wait > seconds:
                seconds, limit = wait, key
        return seconds, limit

    def charge(self, size: int) -> None:
        """Take what a call of so many bytes costs, after a look at how long it would wait."""
        if self._requests is not None:
            self._requests.take(1)
        if self._bytes_in is not None:
            self._bytes_in.take(size)

    def sent(self, size: int) -> None:
        """Take what a reply of so many bytes costs."""
        if self._bytes_out is not None:
            self._bytes_out.wait_at(self._clock.monotonic())
            self._bytes_out.take(size)


class Meter:
    """One client.

    Attributes:
        kind: Whether it is known by its principal or by its address.
        name: Which.
        limits: Its line; None where it has none and is counted for its share alone.
        connections: Of each port.
        parked: What waits, by group (`Parked` names others).
        pending: Messages that wait for their moment, since the start.
        halves: Halves whose answer is on its way.
        held: By limit, how it is being held.
    """

    __slots__ = (
        "_clock",
        "_rates",
        "connections",
        "halves",
        "held",
        "kind",
        "limits",
        "name",
        "parked",
        "pending",
    )

    def __init__(self, kind: Kind, name: str, limits: ClientLimits | None, clock: Clock) -> None:
        self.kind: Kind = kind
        self.name = name
        self.limits: ClientLimits | None = None
        self.connections: Counter[str] = Counter()
        self.parked: Counter[str] = Counter()
        self.pending = WaitingTimes()
        self.halves = 0
        self.held: dict[str, LimitedClient] = {}
        self._clock = clock
        self._rates: dict[str, Rates] = {}
        self.configure(limits)

    def configure(self, limits: ClientLimits | None) -> None:
        """Take another line, with what was taken."""
        self.limits = limits
        for rates in self._rates.values():
            rates.configure(limits)

    def rates(self, service: str) -> Rates:
        """Return its rates on a port."""
        found = self._rates.get(service)
        if found is None:
            found = self._rates[service] = Rates(self.limits, self._clock)
        return found

    # Numbers

    @property
    def connections_max(self) -> int | None:
        """Connections that it may have."""
        return None if self.limits is None else self.limits.connections

    @property
    def parked_max(self) -> int | None:
        """Pulls that it may have waiting."""
        return None if self.limits is None else self.limits.parked_pulls

    @property
    def halves_max(self) -> int | None:
        """Transactions that it may have undecided."""
        return self.limits.open_transactions if isinstance(self.limits, PrincipalLimits) else None

    @property
    def pending_max(self) -> int | None:
        """Messages that it may have waiting for their moment."""
        return self.limits.pending_timers if isinstance(self.limits, PrincipalLimits) else None

    # How it is held

    def note(self, limit: str, *, waited: int = 0, refused: int = 0) -> None:
        """Note that it was held to a limit."""
        now = self._clock.monotonic()
        held = self.held.get(limit)
        if held is None or now - held.last > QUIET_SECONDS:
            held = self.held[limit] = LimitedClient(self._clock.wall_ms(), self.said(limit))
        held.last = now
        held.waited += waited
        held.refused += refused

    def held_now(self) -> dict[str, LimitedClient]:
        """Return the limits that it was held to within the last minute."""
        now = self._clock.monotonic()
        return {limit: held for limit, held in self.held.items() if now - held.last <= QUIET_SECONDS}

    @property
    def who(self) -> str:
        """How a text calls it."""
        return self.name if self.kind == "principal" else f"the address {self.name}"

    def said(self, limit: str) -> str:
        """Say a limit, for people."""
        limits = self.limits
        if limit in _UNITS:
            rate = next(getattr(limits, attribute) for key, attribute, _ in RATES if key == limit)
            return f"{rate:,.10g} {_UNITS[limit]} a second"
        words = {
            "connections": (self.connections_max, "connections"),
            "parkedPulls": (self.parked_max, "waiting pulls"),
            "openTransactions": (self.halves_max, "undecided transactions"),
            "pendingTimers": (self.pending_max, "pending timed messages"),
        }
        if limit in words:
            count, what = words[limit]
            return f"{count:,} {what}" if count is not None else what
        return "its share of the free capacity"
