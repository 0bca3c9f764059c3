"""Who is counted: the clients of one node by principal and by address, and the section `limits` that is in force.

Clients with a connection are all there; of those without one the last KEPT_MAX of each kind are kept, for what they
took a moment ago, so that no client gets another second's worth by connecting again. IPv6 clients choose the lower half
of their address: such an address counts by its /64.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from broker.runtime.metrics import Counter, Metrics, declare
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Clock
from conf.sections.access import ANONYMOUS
from conf.sections.limits import ClientLimits, LimitsConfig
from proxy.access.access import DENIED_WAY
from proxy.access.rights import Rights
from proxy.access.rules import Patterns
from proxy.limits.meter import Kind, Meter
from proxy.limits.quota import AFTER_MS, LimitExceeded, Quota

HELD = declare(
    "pyddmq_limits_held_total",
    "Calls whose connection was paused for a limit of its client. client: principal, address; limit: its "
    "key in the section limits",
    ("client", "limit"),
)
REFUSED = declare(
    "pyddmq_limits_refused_total",
    "Calls, messages, waiting pulls and connections refused for a limit of their client; the same labels, "
    "and limit share",
    ("client", "limit"),
)
COUNTED = declare("pyddmq_limits_clients", "Clients that have limits", ("client",), kind="gauge")

KEPT_MAX = 10_000
"""Clients of each kind without a connection that are kept."""
IPV6_BITS = 64

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class HeldClient(NamedTuple):
    """A client that was held to a limit within the last minute; see `proxy.limits.meter.LimitedClient`."""

    kind: Kind
    name: str
    limit: str
    said: str
    since_ms: int
    waited: int
    refused: int


class _Meters:
    """Clients of one kind by name."""

    def __init__(self, kind: Kind, clock: Clock, shown: Counter) -> None:
        self._kind = kind
        self._clock = clock
        self._shown = shown
        self._busy: dict[str, Meter] = {}
        self._kept: dict[str, Meter] = {}

    def find(self, name: str) -> Meter | None:
        """Return a client that is counted."""
        return self._busy.get(name) or self._kept.get(name)

    def get(self, name: str, limits: ClientLimits | None) -> Meter:
        """Return a client, with this line from now on."""
        meter = self.find(name)
        if meter is None:
            meter = self._kept[name] = Meter(self._kind, name, limits, self._clock)
            self._bound()
        elif meter.limits is not limits:
            meter.configure(limits)
        return meter

    def enter(self, meter: Meter, service: str) -> None:
        """Count a connection."""
        meter.connections[service] += 1
        self._kept.pop(meter.name, None)
        self._busy[meter.name] = meter

    def leave(self, meter: Meter, service: str) -> None:
        """Count one less."""
        meter.connections[service] -= 1
        assert meter.connections[service] >= 0, "a connection leaves once"
        if not meter.connections.total():
            del self._busy[meter.name]
            self._kept[meter.name] = meter
            self._bound()

    def _bound(self) -> None:
        if len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._shown.value = len(self._busy) + len(self._kept)

    def __iter__(self) -> Iterator[Meter]:
        yield from self._busy.values()
        yield from self._kept.values()


class Limiter:
    """The limits of one node's clients.

    Attributes:
        active: Whether there is any limit; without one no connection has a quota.
        share: See `conf.sections.limits`.
    """

    def __init__(self, config: LimitsConfig, *, clock: Clock, metrics: Metrics, limited_log: RateLimitedLog) -> None:
        self._clock = clock
        self._metrics = metrics
        self._limited_log = limited_log
        self._principals = _Meters("principal", clock, metrics.counter(COUNTED, "principal"))
        self._addresses = _Meters("address", clock, metrics.counter(COUNTED, "address"))
        self._noted: dict[Meter, None] = {}
        """Those that were held to a limit not long ago."""
        self.configure(config)

    def configure(self, config: LimitsConfig) -> None:
        """Bring a section into force; the ports then have their connections counted by it (`renew`)."""
        self.active = config.limits_any
        self.share = config.share
        self._of_principals = [(Patterns(line.principals), line) for line in config.principals]
        self._of_addresses: list[tuple[Sequence[Network], ClientLimits]] = [
            ([ipaddress.ip_network(each) for each in line.networks], line) for line in config.addresses
        ]
        for meter in [*self._principals, *self._addresses]:
            of = self._line_of_principal if meter.kind == "principal" else self._line_of_address
            meter.configure(of(meter.name))

    # Lines

    def _line_of_principal(self, name: str) -> ClientLimits | None:
        for patterns, line in self._of_principals:
            found = patterns.match(name)
            if found is not None and (name != ANONYMOUS or found == ANONYMOUS):
                return line
        return None

    def _line_of_address(self, name: str) -> ClientLimits | None:
        try:
            network = ipaddress.ip_network(name)
        except ValueError:
            return None
        for networks, line in self._of_addresses:
            for each in networks:
                if each.version == network.version and network.network_address in each:
                    return line
        return None

    # Connections

    def refusal(self, host: str, service: str, free: int) -> LimitExceeded | None:
        """Say why an address may not have one more connection; None when it may.

        Args:
            host: The address.
            service: Which port.
            free: Places left on it, for all clients.
        """
        meter = self._address(host)
        if meter is None:
            return None
        most = meter.connections_max
        if most is not None and meter.connections.total() >= most:
            return LimitExceeded(meter, "connections", AFTER_MS)
        if self.share is not None and meter.connections[service] >= self.share * free:
            return LimitExceeded(meter, "share", AFTER_MS)
        return None

    def enter(self, host: str, service: str) -> Quota:
        """Count a connection that was accepted."""
        meter = self._address(host)
        if meter is not None:
            self._addresses.enter(meter, service)
        return Quota(meter, service, self.share, self.refused)

    def leave(self, quota: Quota, service: str) -> None:
        """Count a connection no more."""
        if quota.address is not None:
            self._addresses.leave(quota.address, service)
        self._leave_principal(quota, service)

    def renew(self, quota: Quota | None, host: str, service: str) -> Quota | None:
        """Return what takes the place of a connection's quota by the section that is in force now."""
        renewed = self.enter(host, service) if self.active else None
        if quota is not None:
            self.leave(quota, service)
        return renewed

    def identify(self, quota: Quota, rights: Rights | None, service: str) -> LimitExceeded | None:
        """Find out whose a connection is; returns why it has no place among those of that principal's, else None."""
        name = "" if rights is None or rights.way == DENIED_WAY else rights.principal
        quota.rights, quota.is_known = rights, True
        if quota.principal is not None and quota.principal.name == name:
            return None
        self._leave_principal(quota, service)
        line = self._line_of_principal(name) if name else None
        if line is not None or (self.share is not None and name not in ("", ANONYMOUS)):
            meter = self._principals.get(name, line)
            most = meter.connections_max
            if most is not None and meter.connections.total() >= most:
                quota.is_known = False
                return LimitExceeded(meter, "connections", AFTER_MS)
            self._principals.enter(meter, service)
            quota.principal = meter
        quota.surplus_since = None
        quota.settle()
        return None

    def _address(self, host: str) -> Meter | None:
        name = _name_of(host)
        meter = self._addresses.find(name)
        if meter is not None:
            return meter
        line = self._line_of_address(name)
        return None if line is None and self.share is None else self._addresses.get(name, line)

    def _leave_principal(self, quota: Quota, service: str) -> None:
        if quota.principal is not None:
            self._principals.leave(quota.principal, service)
            quota.principal = None
            quota.settle()

    # What is reported

    def held(self, meter: Meter, limit: str) -> None:
        """Count a call after which its connection is held back."""
        meter.note(limit, waited=1)
        self._noted[meter] = None
        self._metrics.counter(HELD, meter.kind, limit).value += 1
        self._limited_log.note(
            "client_held", kind=f"{meter.kind} {limit}", client=meter.name, told_by=meter.kind, limit=meter.said(limit)
        )

    def refused(self, over: LimitExceeded, count: int = 1) -> None:
        """Count refusals, and log them once a minute for each kind and limit."""
        meter, limit = over.meter, over.limit
        meter.note(limit, refused=count)
        self._noted[meter] = None
        self._metrics.counter(REFUSED, meter.kind, limit).add(count)
        self._limited_log.note(
            "client_limited",
            "",
            count,
            kind=f"{meter.kind} {limit}",
            client=meter.name,
            told_by=meter.kind,
            limit=meter.said(limit),
        )

    def held_now(self) -> list[HeldClient]:
        """Return who was held to a limit within the last minute, those that were refused most first."""
        self._noted = {meter: None for meter in self._noted if meter.held_now()}
        found = [
            HeldClient(meter.kind, meter.name, limit, held.said, held.since_ms, held.waited, held.refused)
            for meter in self._noted
            for limit, held in meter.held_now().items()
        ]
        return sorted(found, key=lambda each: (-each.refused, -each.waited, each.name, each.limit))

    def meters(self) -> list[Meter]:
        """Return all that are counted, principals first."""
        return [*self._principals, *self._addresses]


def _name_of(host: str) -> str:
    """Return by what an address counts: IPv4 by itself, IPv6 by its /64."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, IPV6_BITS), strict=False))
