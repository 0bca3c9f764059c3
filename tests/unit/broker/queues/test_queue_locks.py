"""Queue locks against a plain model.

Invariants: a queue has one owner at most; only the owner renews and unlocks; 60 s without renewal end a lock.
"""

from __future__ import annotations

from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.queues.queue_locks import EXPIRY_SECONDS, QueueLocks
from pyddmq.testing import ManualClock

GROUPS, CLIENTS = ("g", "h"), ("a", "b", "c")
PLACES = [("t", 0), ("t", 1), ("u", 0)]
batches = some.lists(some.sampled_from(PLACES), max_size=4)


class Locks(RuleBasedStateMachine):
    """Random clients lock, unlock and let time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.locks = QueueLocks(self.clock)
        self.model: dict[tuple[str, tuple[str, int]], tuple[str, float]] = {}

    def holder(self, group: str, place: tuple[str, int]) -> str | None:
        """Who has it by the model."""
        client, since = self.model.get((group, place), (None, 0.0))
        return client if self.clock.monotonic() - since <= EXPIRY_SECONDS else None

    @rule(group=some.sampled_from(GROUPS), client=some.sampled_from(CLIENTS), places=batches)
    def lock(self, group: str, client: str, places: list[tuple[str, int]]) -> None:
        """The answer is exactly what is free, expired or the client's own."""
        wanted = {place for place in places if self.holder(group, place) in (None, client)}
        assert self.locks.lock_batch(group, client, places) == wanted
        for place in wanted:
            self.model[group, place] = (client, self.clock.monotonic())
        refusal = self.locks.refusal(group, client, places)
        assert (refusal is None) == (wanted == set(places))
        if refusal is not None:
            assert refusal.owner == self.holder(group, refusal.place) != client
            assert refusal.owner in str(refusal)

    @rule(group=some.sampled_from(GROUPS), client=some.sampled_from(CLIENTS), places=batches)
    def unlock(self, group: str, client: str, places: list[tuple[str, int]]) -> None:
        """Only the owner's locks go."""
        self.locks.unlock_batch(group, client, places)
        for place in places:
            if self.model.get((group, place), ("", 0.0))[0] == client:
                del self.model[group, place]

    @rule(seconds=some.sampled_from([0.5, 20.0, 40.0, EXPIRY_SECONDS, EXPIRY_SECONDS + 0.5]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.clock.advance(seconds)

    @invariant()
    def table_is_the_models(self) -> None:
        """Owners and listing agree with the model."""
        held = {(each.group, (each.topic, each.queue_id)): each.client_id for each in self.locks.held()}
        wanted = {key: client for key in self.model if (client := self.holder(*key)) is not None}
        assert held == wanted
        assert all(self.locks.owner(*key) == client for key, client in wanted.items())


TestLocks = Locks.TestCase
