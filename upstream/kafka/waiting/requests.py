"""What a node asks of the owners of partitions: cancels, moves and decisions, each with a definite answer (D65)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from upstream.kafka.link import KafkaFailure, KafkaProducer
from upstream.kafka.waiting import records
from upstream.kafka.waiting.records import HalfDecision, Identity, WaitingRequest
from upstream.kafka.waiting.topics import WaitingSettings


class _PendingRequest(NamedTuple):
    done: Callable[[str], None]
    timer: Later


class OwnerRequests:
    """The requests of one node.

    Each is answered with an outcome: of cancels and moves one of `records`, of decisions an `End`. It is "unknown" too
    where the owner does not respond in time: the request stays, and may be carried out later; asked again, the owner
    says what became of it.

    Args:
        settings: Of the waiting topic.
        producer: Appends requests.
        runtime: Timers and randomness.

    Attributes:
        usable: The topics are as they have to be.
    """

    def __init__(self, settings: WaitingSettings, producer: KafkaProducer, runtime: Runtime) -> None:
        self.usable = False
        self._settings = settings
        self._producer = producer
        self._scheduler = runtime.scheduler
        self._random = runtime.random
        self._asked: dict[str, _PendingRequest] = {}

    def ask(self, identity: Identity, due_ms: int, seconds: float, done: Callable[[str], None]) -> None:
        """Have a message cancelled, or moved to `due_ms` where that is above 0; `done` is called with the outcome."""
        self._request(identity, lambda request: WaitingRequest(request, due_ms), seconds, done)

    def decide(self, identity: Identity, wanted: HalfDecision, seconds: float, done: Callable[[str], None]) -> None:
        """Have a half decided; `done` is called with the outcome."""
        self._request(identity, lambda request: wanted._replace(request=request), seconds, done)

    def _request(
        self,
        identity: Identity,
        made: Callable[[str], WaitingRequest | HalfDecision],
        seconds: float,
        done: Callable[[str], None],
    ) -> None:
        request = f"{self._settings.node}-{self._random.getrandbits(64):016x}"
        timer = Later(self._scheduler, partial(self.answered, request, records.UNKNOWN_ID))
        self._asked[request] = _PendingRequest(done, timer)
        timer.after(seconds if self.usable else 0)
        if not self.usable:
            return
        key = identity.key(f"{self._random.getrandbits(64):016x}", request)
        value = records.encode(made(request))
        place = identity.partition(self._settings.partitions)

        def written(failure: KafkaFailure | None, _: int, __: int) -> None:
            if failure is not None and not failure.unknown:
                self.answered(request, records.UNKNOWN_ID)

        try:
            self._producer.produce(self._settings.topic, place, key, value, (), written)
        except KafkaFailure:
            timer.after(0)

    def answered(self, request: str, outcome: str) -> None:
        """Take an owner's answer; of another node's request nothing happens."""
        asked = self._asked.pop(request, None)
        if asked is not None:
            asked.timer.cancel()
            asked.done(outcome)

    def end(self) -> None:
        """Answer what is open: the owner's answers are not read any more."""
        for request in list(self._asked):
            self.answered(request, records.UNKNOWN_ID)
