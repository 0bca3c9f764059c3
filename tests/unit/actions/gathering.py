"""A pipeline whose last action remembers what those before it made of each message."""

from __future__ import annotations

from typing import Any, ClassVar

from actions.registry import BUILT_IN, Registry
from pyddmq.actions import Action, Job, Outgoing, Status
from tests.unit.upstream_world import World


class Ends(Action):
    """Consumes a message and remembers it."""

    may_be_last = True
    ended: ClassVar[list[tuple[Any, Outgoing]]] = []

    def act(self, job: Job) -> Status:
        self.ended.append((job.data, job.outgoing))
        return Status.FINISH


def world(*actions: str, options: dict[str, Any] | None = None, **settings: Any) -> World:
    """Make a group of these actions and `Ends`; what was remembered before is forgotten."""
    Ends.ended.clear()
    subscription = {"topic": "t", "actions": [*actions, "Ends"], "options": options or {}, **settings}
    return World(subscription, queues=1, registry=Registry({**BUILT_IN, "Ends": Ends}))


def events(made: World, action: str, event: str) -> int:
    """Events that an action counted."""
    return made.count("pyddmq_action_events_total", "g", "t", action, event)


def reasons(made: World) -> list[str]:
    """Why each dead letter is one."""
    made.advance(60)
    return [letter["DLQ_REASON"] for letter in made.dead_letters()]
