"""Actions that cannot be made, with the key that asks for them."""

from __future__ import annotations

from actions.registry import Registry
from conf import ActionError, Config, GroupConfig
from conf.diff import ReloadRefusal
from conf.places import Path


def group_path(config: Config, name: str) -> Path:
    """Positions of a group."""
    return ("groups", list(config.groups).index(name))


def unmakeable(
    registry: Registry, config: Config, group: str, *, running: GroupConfig | None = None
) -> ReloadRefusal | None:
    """Make the actions of a group's subscriptions, which makes its own later; return why the first failure came.

    Those that the group in `running` has, too, are not tried.
    """
    known = {} if running is None else running.by_topic
    for place, subscription in enumerate(config.groups[group].topics):
        if not subscription.enabled or known.get(subscription.topic) == subscription:
            continue
        try:
            registry.make(subscription)
        except ActionError as error:
            return ReloadRefusal((*group_path(config, group), "topics", place, "actions"), str(error))
    return None
