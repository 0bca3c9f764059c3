"""What a push client wants of its connections, and what it meets where one may not be made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network


class AddressRefused(Exception):
    """A connection was about to be made to an address that is not allowed; the text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpWish:
    """What connections a push client wants.

    Attributes:
        connections_max: Open at a time.
        ca_file: PEM file of the authorities that https servers are checked by; None for the system's.
        allowed: None: every address may be connected to. Otherwise only public ones and those of these blocks (D43).
        keep: Whether connections are kept for further requests.
    """

    connections_max: int
    ca_file: str | None = None
    allowed: Sequence[IPv4Network | IPv6Network] | None = None
    keep: bool = True
