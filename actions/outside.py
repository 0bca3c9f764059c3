"""What built-in actions reach outside the node by: randomness, and what opens clients of other servers.

A registry is made with one `Outside`, and hands it to the actions that ask for it. The real one, the default, imports a
client library when the first action opens it (D38). The simulation hands in one whose servers are in memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING

from pyddmq.actions import Action

if TYPE_CHECKING:
    from aiohttp import BaseConnector


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


def real_connector(wish: HttpWish) -> BaseConnector:
    """Make aiohttp's connector over the system's sockets, in the running loop. Raises OSError for a bad `ca_file`."""
    from actions.http.edge import connector  # aiohttp is imported when somebody pushes (D38)

    return connector(wish)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The bundle; see the module.

    Attributes:
        random: Draws first URLs, jitter, and ids of requests.
        http: Makes what HTTP clients connect by.
    """

    random: random.Random = field(default_factory=random.Random)
    http: Callable[[HttpWish], BaseConnector] = real_connector


class OutsideAction(Action):
    """A built-in action that reaches outside the node; `outside` is set before `open`."""

    outside: Outside
