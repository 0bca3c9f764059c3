"""What the checkers know of one group: its rules, and what it and its clients did with each message."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.facts import Place, Publish, Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The rules of one (group, topic) as the checker needs them. `order`: KEY, PATH or empty."""

    group: str
    topic: str
    order: str = ""
    tags: frozenset[str] = frozenset()
    timeout: float = 5.0
    intervals: int = 0
    retry_max: int = 2
    json: bool = False
    rules_vary: bool = False

    def wants(self, publish: Publish) -> bool:
        """Whether the message is to reach this group, alive or as a dead letter."""
        return publish.topic == self.topic and (not self.tags or publish.tag in self.tags)

    def key_of(self, publish: Publish) -> str | None:
        """Return the order key's text, or None for an unordered message."""
        if self.order == "KEY":
            return publish.key or None
        return publish.path_key if self.order == "PATH" else None


@dataclass(slots=True)
class Delivery:
    """One message in one reply that a client has read; `copy`: where it was read, which may be the retry topic."""

    place: Place
    uid: int
    client: str
    stamp: Stamp
    copy: Place


@dataclass(slots=True)
class Account:
    """What one group and its clients did with one message."""

    deliveries: list[Delivery] = field(default_factory=list)
    answers: list[tuple[Stamp, str, bool]] = field(default_factory=list)
    confirmed: list[tuple[Stamp, Place]] = field(default_factory=list)
    """When a success was answered, and for which copy."""

    def first_success(self) -> Stamp | None:
        """When the first success reached the node."""
        return min((stamp for stamp, _, success in self.answers if success), default=None)
