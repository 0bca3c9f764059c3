"""What the checkers know of one group: its rules, and what it and its clients did with each message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.facts import Place, Publish, Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The rules of one (group, topic) as the checker needs them.

    `order`: KEY, PATH or empty. `stops`: what is out of attempts waits for an operator, who alone dead-letters.
    """

    group: str
    topic: str
    order: str = ""
    tags: frozenset[str] = frozenset()
    timeout: float = 5.0
    intervals: int = 0
    retry_max: int = 2
    json: bool = False
    rules_vary: bool = False
    stops: bool = False

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


class Answer(NamedTuple):
    """One result that has reached the node.

    Attributes:
        stamp: When.
        client: Whose.
        success: What it says.
        of: The stamp of the delivery that it answers; None where that is not known.
        named: It names the delivery, so that the node can know it, too.
    """

    stamp: Stamp
    client: str
    success: bool
    of: Stamp | None = None
    named: bool = False


@dataclass(slots=True)
class Account:
    """What one group and its clients did with one message."""

    deliveries: list[Delivery] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    confirmed: list[tuple[Stamp, Place]] = field(default_factory=list)
    """When a success was answered, and for which copy."""

    def first_success(self) -> Stamp | None:
        """When the first success reached the node."""
        return min((each.stamp for each in self.answers if each.success), default=None)

    def is_answered(self, delivery: Delivery, turn: int) -> bool:
        """Whether a delivery was answered by its client until a turn, or the node may think so (D40).

        What may be mistaken for its answer is one of another delivery of the message to the same client that does not
        name it, and is told apart by nothing else: one of several answers to that delivery (`repeated`), or one to a
        delivery from before a restart (`before the restart`).
        """
        stamp = delivery.stamp
        for each in self.answers:
            if each.client != delivery.client or each.stamp.sequence <= stamp.sequence or each.stamp.turn > turn:
                continue
            if each.of is None or each.of == stamp:
                return True
            repeated = sum(
                other.of == each.of and other.stamp.sequence <= each.stamp.sequence for other in self.answers
            )
            before_the_restart = each.of.life < stamp.life
            if not each.named and (repeated > 1 or before_the_restart):
                return True
        return False
