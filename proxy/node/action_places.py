"""Actions that cannot be made, with the key that asks for them."""

from __future__ import annotations

from collections.abc import Generator

from actions.registry import Registry
from broker.runtime.steps import run_now
from conf import ActionError, Config, GroupConfig
from conf.diff import ReloadRefusal
from conf.places import Path


def group_path(config: Config, name: str) -> Path:
    """Positions of a group."""
    return ("groups", list(config.groups).index(name))


_MADE_AT_ONCE = 128
"""Topics of which one step makes the actions."""


def unmakeable(
    registry: Registry, config: Config, group: str, *, running: GroupConfig | None = None
) -> ReloadRefusal | None:
    """`finding_unmakeable` at once."""
    return run_now(finding_unmakeable(registry, config, group, running=running))


def finding_unmakeable(
    registry: Registry, config: Config, group: str, *, running: GroupConfig | None = None
) -> Generator[None, None, ReloadRefusal | None]:
    """In steps make the actions of a group's topics, which makes its own later; return why the first failure came.

    Those that the group in `running` has, too, are not tried.
    """
    known = {} if running is None else running.by_topic
    for place, subscription in enumerate(config.groups[group].topics):
        if place % _MADE_AT_ONCE == _MADE_AT_ONCE - 1:
            yield
        if not subscription.enabled or known.get(subscription.topic) == subscription:
            continue
        try:
            registry.make(subscription)
        except ActionError as error:
            return ReloadRefusal((*group_path(config, group), "topics", place, "actions"), str(error))
    return None
