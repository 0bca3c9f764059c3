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
        name it, and is told apart by nothing else: one to a delivery from before a restart, or one to a delivery that
        the node had for answered already (`_had_for_answered`).
        """
        return any(
            each.stamp.turn <= turn and self._may_answer(number, delivery)
            for number, each in enumerate(self.answers)
            if each.client == delivery.client and each.stamp.sequence > delivery.stamp.sequence
        )

    def _may_answer(self, number: int, delivery: Delivery) -> bool:
        """Whether the node may have taken an answer for one of a delivery before it, to the same client."""
        answer = self.answers[number]
        if answer.of is None or answer.of == delivery.stamp:
            return True
        before_the_restart = answer.of.life < delivery.stamp.life
        return not answer.named and (before_the_restart or self._had_for_answered(number))

    def _had_for_answered(self, number: int) -> bool:
        """Whether the delivery that is answered had an answer before, for what the node knows.

        That was its own, or one that was itself mistaken for it: whoever is taken at an answer from before a restart is
        one answer ahead from then on. Both may be in one request: their stamps are the same, but not their places.
        """
        of = next((each for each in self.deliveries if each.stamp == self.answers[number].of), None)
        return of is not None and any(
            self._may_answer(earlier, of)
            for earlier, each in enumerate(self.answers[:number])
            if each.client == of.client and each.stamp.sequence > of.stamp.sequence
        )
