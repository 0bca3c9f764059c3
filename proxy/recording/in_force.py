"""What a reload changes: the configuration in force, and the groups that a node has by it."""

from __future__ import annotations

from conf import Config, GroupConfig
from upstream.delivery.group import ConsumerGroup
from upstream.embedded.broker import EmbeddedBroker

GROUPS_AT_ONCE = 512
"""Groups that one step of a change to all of them is about, a few milliseconds."""


class InForce:
    """Of one node.

    Attributes:
        config: The configuration.
        groups: The configured groups.
        leaving: Groups that a reload took out and that still drain.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.groups: dict[str, ConsumerGroup] = {}
        self.leaving: list[ConsumerGroup] = []

    def all_groups(self) -> list[ConsumerGroup]:
        """Return the configured groups and those that leave."""
        return [*self.groups.values(), *self.leaving]

    def stored_groups(self) -> list[ConsumerGroup]:
        """Return those of all groups that read the node's own store: what retention of its log files concerns."""
        return [each for each in self.all_groups() if isinstance(each.node.broker, EmbeddedBroker)]

    def leaving_group(self, name: str) -> ConsumerGroup | None:
        """Return a group that leaves."""
        return next((group for group in self.leaving if group.name == name), None)

    def config_of(self, name: str) -> GroupConfig | None:
        """Return the configuration of a group; None: there is no such group."""
        group = self.groups.get(name)
        return None if group is None else group.config
