"""What built-in actions reach outside the node by: randomness, and what opens clients of other servers.

A registry is made with one `Outside`, and hands it to the actions that ask for it. The real one, the default, imports a
client library when the first action opens it (D38). The simulation hands in one whose servers are in memory.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pyddmq.actions import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The bundle; see the module.

    Attributes:
        random: Draws first URLs, jitter, and ids of requests.
    """

    random: random.Random = field(default_factory=random.Random)


class OutsideAction(Action):
    """A built-in action that reaches outside the node; `outside` is set before `open`."""

    outside: Outside
