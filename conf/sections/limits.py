"""The section `limits`: what one client may take, by its principal and by its address (docs/security.md)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from conf.base import Model, Reload, setting
from conf.sections.access import PrincipalPattern, check_network

_LIVE = Reload.LIVE

LINES_MAX = 10_000
"""Lines of one list."""

Rate = Annotated[float, Field(gt=0, le=1e9)]
Bytes = Annotated[int, Field(ge=1024, le=2**40)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]


class ClientLimits(Model):
    """What both kinds of lines may limit; each client that a line is about has all of it for itself."""

    connections: Count | None = setting(
        None,
        "Connections over both Thrift ports. For a principal: connections that make calls; a further one "
        "is answered as above a rate and closed. For an address: a further one is closed immediately. Idle "
        "ones (node.idleTimeout) make room.",
        reload=_LIVE,
        absent="no limit",
    )
    parked_pulls: Count | None = setting(
        None,
        "Pulls, fetches and fetches of checks that wait for messages.",
        reload=_LIVE,
        absent="no limit",
    )
    requests_per_second: Rate | None = setting(
        None,
        "Calls per second, of each Thrift port. Bursts of one second are allowed; above that calls are "
        "delayed, and refused if the delay would be long.",
        reload=_LIVE,
        absent="no limit",
    )
    bytes_in_per_second: Bytes | None = setting(
        None, "Bytes per second that it sends to a port, whole frames.", reload=_LIVE, absent="no limit"
    )
    bytes_out_per_second: Bytes | None = setting(
        None, "Bytes per second that a port sends to it, whole frames.", reload=_LIVE, absent="no limit"
    )
    idle_timeout: Annotated[int, Field(ge=1000, le=2_000_000_000)] | None = setting(
        None,
        "Silence in ms, with nothing waiting or unanswered, after which a connection is closed, whether or "
        "not its place is needed.",
        reload=_LIVE,
        absent="only where its place is needed",
    )

    @model_validator(mode="after")
    def _check_some(self) -> Self:
        about = {"principals", "networks"}
        if all(getattr(self, name) is None for name in type(self).model_fields if name not in about):
            raise ValueError(
                "sets no limit; set at least one of `requestsPerSecond`, `connections` or another, or remove it"
            )
        return self


class PrincipalLimits(ClientLimits):
    """One line of `limits.principals`."""

    principals: list[PrincipalPattern] = setting(
        ...,
        "The principals that the limit is for; `*` matches any characters. No pattern matches `anonymous`.",
        reload=_LIVE,
        min_length=1,
    )
    open_transactions: Count | None = setting(None, "Undecided transactions.", reload=_LIVE, absent="no limit")
    pending_timers: Count | None = setting(
        None,
        "Pending delayed messages, timers and loops, of those stored since the node was started.",
        reload=_LIVE,
        absent="no limit",
    )


class AddressLimits(ClientLimits):
    """One line of `limits.addresses`."""

    networks: list[Annotated[str, AfterValidator(check_network)]] = setting(
        ...,
        "The addresses, such as `10.20.0.0/16`; `0.0.0.0/0` and `::/0` are all. An IPv6 client is "
        "identified by its /64.",
        reload=_LIVE,
        min_length=1,
    )


class LimitsConfig(Model):
    """The section `limits`; without it no client has a limit of its own but `node.maxConnectionsPerAddress`."""

    share: Annotated[float, Field(gt=0, le=1000)] | None = setting(
        None,
        "Share of the free capacity that one client may have: its connections on a port are at most this "
        "factor times the free connections, and likewise its waiting pulls of a group. 1: a single client "
        "gets half, two a third each. Near the memory limit, connections of the client that holds the most "
        "memory are closed first.",
        reload=_LIVE,
        absent="first come, first served",
    )
    principals: list[PrincipalLimits] = setting(
        [], "By principal; the first entry that matches applies.", reload=_LIVE, max_length=LINES_MAX
    )
    addresses: list[AddressLimits] = setting(
        [],
        "By address; the first entry whose network contains the address applies.",
        reload=_LIVE,
        max_length=LINES_MAX,
    )

    @property
    def limits_any(self) -> bool:
        """Whether there is any limit."""
        return self.share is not None or bool(self.principals or self.addresses)
