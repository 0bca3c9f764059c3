"""How a member of a Kafka in memory takes part in its group: by either protocol, as librdkafka does.

Heartbeats go on while the node gives partitions up. A member that hears nothing for a session's time, by the classic
protocol, takes what it has for lost by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from tests.fakes.kafka.classic import ClassicGroup, Joined
from tests.fakes.kafka.cluster import SimKafka
from tests.fakes.kafka.incremental import IncrementalGroup, Reported
from tests.fakes.kafka.link import Answer, SimLink
from upstream.kafka.link import Commit, KafkaFailure, KafkaPartition

_AGAIN_SECONDS = 0.5


class Body(Protocol):
    """The member, as its rounds see it."""

    group_name: str
    instance_id: str
    dead: bool
    stands: bool

    @property
    def claims(self) -> Collection[KafkaPartition]:
        """What it has, with what it is about to give up."""

    def reads(self, topic: str) -> bool:
        """Whether it subscribes a topic."""

    def nudge(self) -> None:
        """There is news."""

    def to_have(self, places: Collection[KafkaPartition], settled: Callable[[], None]) -> None:
        """Have these and no others; `settled` is called once others are given up, if there are any."""

    def expelled(self) -> None:
        """It has nothing any more."""

    def later(self, seconds: float, call: Callable[..., Any], *arguments: Any) -> None:
        """Call in its thread."""

    def fail(self, failure: KafkaFailure) -> None:
        """It ends by a fault."""


class Rounds:
    """What both protocols share: heartbeats, one at a time."""

    def __init__(self, cluster: SimKafka, link: SimLink, body: Body) -> None:
        self._cluster = cluster
        self._link = link
        self._body = body
        self._beating = False
        self._begun = False
        self._heard = 0.0

    def begin(self) -> None:
        """Join."""
        self._begun = True
        self._heard = self._cluster.now()
        self.beat()
        self._tick()

    def beat(self) -> None:
        """Send a heartbeat, or what stands in its place."""
        if self._begun and not self._body.dead and not self._body.stands and not self._beating:
            self._beating = True
            self._link.ask(self._question(), self._failed)

    def put(self, commits: list[Commit]) -> Callable[[Callable[[KafkaFailure | None], None]], None]:
        """Return what commits with the generation of now."""
        generation = self.generation
        group = self._cluster.group(self._body.group_name)
        return lambda answer: group.commit(self._body, generation, commits, answer)

    def leave(self, done: Callable[[], None]) -> None:
        """Leave the group; nobody waits for an answer."""
        group = self._cluster.group(self._body.group_name)
        self._begun = False

        def request(answer: Answer) -> None:
            # One that has an instance id stays for its session: it may come again.
            if not self._body.instance_id:
                group.expel(self._body)
            answer(lambda: None)

        self._link.ask(request, lambda _: None)
        self._body.later(0.04, done)

    def unsubscribed(self) -> None:
        """It is about to leave."""

    def subscribed(self) -> None:
        """It reads other topics now."""
        self._link.ask(self._resubscribe, lambda _: None)

    @property
    def generation(self) -> int:
        """What its commits carry."""
        raise NotImplementedError

    def _resubscribe(self, answer: Answer) -> None:
        group = self._cluster.group(self._body.group_name)
        if self._body in group.members:
            group.changed()
        answer(lambda: None)

    def _question(self) -> Callable[[Answer], None]:
        raise NotImplementedError

    def _silence(self) -> None:
        """Nothing was heard for a session's time."""

    def _tick(self) -> None:
        if self._body.dead or not self._begun:
            return
        self.beat()
        if self._cluster.now() - self._heard > self._cluster.session_seconds:
            self._heard = self._cluster.now()
            self._silence()
        self._body.later(self._cluster.beat_seconds, self._tick)

    def _failed(self, _: KafkaFailure) -> None:
        self._beating = False
        self._body.later(_AGAIN_SECONDS, self.beat)

    def _settled(self) -> None:
        """What had to be given up is."""
        self.beat()


class IncrementalRounds(Rounds):
    """KIP-848: all is in heartbeats."""

    def __init__(self, cluster: SimKafka, link: SimLink, body: Body) -> None:
        super().__init__(cluster, link, body)
        self._epoch = 0
        self._joins = True
        self._more = False

    @property
    def generation(self) -> int:
        """Its epoch."""
        return self._epoch

    def beat(self) -> None:
        """Send one; news that come while one is under way need another."""
        self._more |= self._beating
        super().beat()

    def _question(self) -> Callable[[Answer], None]:
        group = self._cluster.group(self._body.group_name)
        assert isinstance(group, IncrementalGroup)
        owned, joins = set(self._body.claims), self._joins
        return lambda answer: answer(self._reported, group.heartbeat(self._body, owned, joins=joins))

    def _reported(self, reported: Reported | None) -> None:
        self._beating = False
        self._heard = self._cluster.now()
        if reported is None:
            self._joins, self._epoch = True, 0
            self._body.expelled()
            self.beat()
            return
        self._joins = False
        self._epoch = reported.epoch
        self._body.to_have(reported.places, self._settled)
        if self._more:
            self._more = False
            self.beat()


class ClassicRounds(Rounds):
    """Joins and syncs, and heartbeats between them."""

    def __init__(self, cluster: SimKafka, link: SimLink, body: Body) -> None:
        super().__init__(cluster, link, body)
        self._generation = -1
        self._joining = False
        self._busy = False
        self._again = False
        self._leaves = False
        self._attempt = 0

    def unsubscribed(self) -> None:
        """A join that is under way is none any more: its answer, with the next generation, is not heard."""
        self._leaves = True
        self._joining = False

    @property
    def generation(self) -> int:
        """That of the last join."""
        return self._generation

    def _group(self) -> ClassicGroup:
        group = self._cluster.group(self._body.group_name)
        assert isinstance(group, ClassicGroup)
        return group

    def _question(self) -> Callable[[Answer], None]:
        group, generation = self._group(), self._generation
        if generation < 0:
            self._join()
            return lambda answer: answer(self._beaten, generation, None)
        return lambda answer: answer(self._beaten, generation, group.heartbeat(self._body, generation))

    def _beaten(self, generation: int, failure: KafkaFailure | None) -> None:
        self._beating = False
        if self._joining or generation != self._generation:
            self._heard = self._cluster.now()
            return
        if failure is None:
            self._heard = self._cluster.now()
        elif failure.code == "REBALANCE_IN_PROGRESS":
            self._heard = self._cluster.now()
            self._join()
        elif failure.code == "FENCED_INSTANCE_ID":
            self._body.fail(failure)
        else:
            self._silence()

    def _silence(self) -> None:
        self._generation = -1
        self._joining = self._busy = self._again = False
        self._body.expelled()
        self._join()

    def _join(self) -> None:
        if self._busy:
            # It joins when it has given up what it must.
            self._again = True
            return
        if self._joining or self._leaves or self._body.dead or self._body.stands or not self._begun:
            return
        self._joining = True
        self._attempt += 1
        group, claims = self._group(), set(self._body.claims)

        def request(answer: Answer) -> None:
            group.join(self._body, claims, lambda joined: answer(self._joined, joined))

        self._link.ask(request, self._join_failed)

    def _join_failed(self, _: KafkaFailure) -> None:
        # Until it has joined it sends no heartbeats, by which it would hear that the generation is over.
        self._body.later(_AGAIN_SECONDS, self._rejoin, self._attempt)

    def _rejoin(self, attempt: int) -> None:
        # One that was begun since has its own end.
        if attempt == self._attempt:
            self._joining = False
            self._join()

    def _joined(self, joined: Joined) -> None:
        if self._body.dead or not self._joining:
            return
        group = self._group()
        self._heard = self._cluster.now()
        self._generation = joined.generation
        assigned = None if joined.claims is None else group.assign(joined.claims)

        def request(answer: Answer) -> None:
            group.sync(self._body, joined.generation, assigned, lambda reported: answer(self._synced, reported))

        self._link.ask(request, self._join_failed)

    def _synced(self, reported: list[KafkaPartition] | KafkaFailure) -> None:
        if not self._joining:
            return
        self._joining = False
        self._heard = self._cluster.now()
        if isinstance(reported, KafkaFailure):
            if reported.code == "UNKNOWN_MEMBER_ID":
                self._silence()
            else:
                self._join()
            return
        self._busy = True
        gives = not set(self._body.claims) <= set(reported)
        self._body.to_have(reported, self._settled)
        if not gives:
            self._busy = False

    def _settled(self) -> None:
        self._busy = self._again = False
        self._join()
