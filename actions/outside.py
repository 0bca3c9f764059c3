"""What built-in actions reach outside the node by: randomness, and what opens clients of other servers.

A registry is made with one `Outside`, and hands it to the actions that ask for it. The real one, the default, imports a
client library when the first action opens it (D38). The simulation hands in one whose servers are in memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actions.http.wish import HttpWish
from pyddmq.actions import Action

if TYPE_CHECKING:
    from aiohttp import BaseConnector


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
