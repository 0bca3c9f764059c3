"""Actions that cannot be made, with the key that asks for them."""

from __future__ import annotations

from actions.registry import Registry
from conf import ActionError, Config
from conf.diff import ReloadRefusal
from conf.places import Path


def group_path(config: Config, name: str) -> Path:
    """Positions of a group."""
    return ("groups", list(config.groups).index(name))


def unmakeable(registry: Registry, config: Config, group: str) -> ReloadRefusal | None:
    """Make the actions of a group's subscriptions, which makes its own later; return why the first failure came."""
    for place, subscription in enumerate(config.groups[group].topics):
        if not subscription.enabled:
            continue
        try:
            registry.make(subscription)
        except ActionError as error:
            return ReloadRefusal((*group_path(config, group), "topics", place, "actions"), str(error))
    return None
