"""How often an address may try to sign in: `BURST` times at once, and once in `SECONDS_EACH` in the long run.

Tokens have nothing to guess; this bounds the work and the lines that somebody can make by trying. IPv6 counts by /64,
of which anybody may have all. There is a place for `ADDRESSES_MAX` addresses; while all are taken, new ones share one.
"""

from __future__ import annotations

import ipaddress

from broker.runtime.seams import Clock

BURST = 10
SECONDS_EACH = 6.0
ADDRESSES_MAX = 4_096
_OTHERS = "others"


class Attempts:
    """Counts attempts by address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free: dict[str, float] = {}
        """By address: when it will have all its tries again."""

    def wait_seconds(self, host: str) -> float:
        """Count an attempt from an address; returns 0, or in how many seconds it may make one, and counts nothing."""
        now = self._clock.monotonic()
        name = self._place(_network(host), now)
        free = max(self._free.get(name, now), now) + SECONDS_EACH
        wait_seconds = free - now - BURST * SECONDS_EACH
        if wait_seconds > 0:
            return wait_seconds
        self._free[name] = free
        return 0.0

    def _place(self, name: str, now: float) -> str:
        if name in self._free or len(self._free) < ADDRESSES_MAX:
            return name
        self._free = {each: free for each, free in self._free.items() if free > now}
        return name if len(self._free) < ADDRESSES_MAX else _OTHERS


def _network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
