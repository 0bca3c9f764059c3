"""Samples of a live node: for each configured group, each queue that it subscribes or still has a position in.

One round is a generator of small steps; each queue is read in one of them, so that its sample is of one moment, which
it names. `committed` is read before the end: a lag that is computed from a sample is never below what it was.

What a node does not keep per message is read off two rounds: `moved_ms` is the last answer between them where the
committed offset rose, and `limited` says whether a rate held something back between them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

from broker.format.java import tags_code
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.topics import retry_topic
from broker.runtime.seams import Clock
from conf.models import SubscriptionConfig
from lag.samples import QueueKey, QueueSample
from proxy.recording.jobs import JobFigures, look_at_jobs, one_line, shown_key
from proxy.recording.node import Observed
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.subscription import Subscription
from upstream.embedded.message_times import MessageTimes, matched_share
from upstream.holder import Holder
from upstream.job import GroupQueue
from upstream.queues import QueueView

_TRACKERS_AT_ONCE = 1024
"""Positions that are looked through in one piece of a step, in a fraction of a millisecond."""

Place = tuple[str, int]
"""Topic and number of a queue."""
Samples = list[tuple[QueueKey, QueueSample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a round leaves for the next one, of one queue of a group.

    Attributes:
        time_ms: When it was read.
        committed: The committed offset.
        moved_ms: When it last rose.
        matched: Committed offset, end, and the share that was found between them.
    """

    time_ms: int
    committed: int | None
    moved_ms: int | None
    matched: tuple[int, int, float | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """Who asks for messages of one topic of a group.

    Attributes:
        asked_at: When somebody last did; monotonic seconds, -1.0: never.
        holders: Who waits for a message now.
        limited: A rate held something back since the round before.
        pushing: Its last action is where messages go.
    """

    asked_at: float
    holders: frozenset[Holder]
    limited: bool
    pushing: bool


class QueueSampler:
    """Samples all queues of one node, round by round.

    Args:
        node: The node, open.
        clock: Dates what was read.
    """

    def __init__(self, node: Observed, clock: Clock) -> None:
        self._node = node
        self._clock = clock
        self.times = MessageTimes(node.store)
        self._seen: dict[QueueKey, _Seen] = {}
        self._rounds = 0
        self._held: dict[tuple[str, str], tuple[Subscription, int]] = {}
        """By group and topic: the generation that was looked at, and how often its rate had held something back."""

    def round(self) -> Generator[None, None, Samples]:
        """Read every queue once, in steps, each with its own moment."""
        samples: Samples = []
        seen: dict[QueueKey, _Seen] = {}
        strays = yield from self._strays()
        for name in list(self._node.groups):
            group = self._node.groups.get(name)
            if group is None:
                # A reload took it out between two steps.
                continue
            for key, sample in (yield from self._group(group, strays.get(name, ()), seen)):
                samples.append((key, sample))
        self._seen = seen
        self._rounds += 1
        self.times.round_over()
        return samples

    def _strays(self) -> Generator[None, None, dict[str, list[Place]]]:
        """Find the queues of which a group has a position and that it does not subscribe; each tracker is read once."""
        strays: dict[str, list[Place]] = {}
        subscribed = {
            name: frozenset(each.topic for each in group.config.topics) for name, group in self._node.groups.items()
        }
        progresses = {id(group.node.progress): group.node.progress for group in self._node.groups.values()}
        for progress in progresses.values():
            for number, (owner, topic, queue_id) in enumerate(list(progress.trackers)):
                wanted = subscribed.get(owner)
                if wanted is not None and topic not in wanted:
                    strays.setdefault(owner, []).append((topic, queue_id))
                if number % _TRACKERS_AT_ONCE == _TRACKERS_AT_ONCE - 1:
                    yield
        return strays

    def _group(
        self, group: ConsumerGroup, strays: Iterable[Place], seen: dict[QueueKey, _Seen]
    ) -> Generator[None, None, Samples]:
        by_place: dict[Place, list[GroupQueue]] = {}
        for each in group.group_queues():
            by_place.setdefault((each.topic, each.queue_id), []).append(each)
        asking: dict[str, _Asking] = {}
        samples: Samples = []
        for place in list(self._places(group, strays)):
            group_queues = by_place.get(place, [])
            figures = yield from look_at_jobs(group_queues)
            topic = group_queues[0].line.topic if group_queues else place[0]
            if topic not in asking:
                asking[topic] = self._asking(group, topic, group_queues)
            key = QueueKey(
                cluster=self._node.config.node.broker_cluster,
                node=self._node.config.node.broker_name,
                group=group.name,
                topic=place[0],
                queue=place[1],
            )
            samples.append((key, self._sample(key, group, group_queues, figures, asking[topic], seen)))
            yield
        return samples

    @staticmethod
    def _places(group: ConsumerGroup, strays: Iterable[Place]) -> Iterator[Place]:
        """Yield the queues that a group subscribes, then those of other topics in which it still has a position."""
        broker = group.node.broker
        wanted = [each.topic for each in group.config.topics]
        for name in wanted:
            topic = broker.topic(name)
            if topic is not None:
                yield from ((name, queue.queue_id) for queue in topic.queues)
        for name, queue_id in sorted(strays):
            if name not in wanted and broker.queue(name, queue_id) is not None:
                yield name, queue_id

    def _asking(self, group: ConsumerGroup, topic: str, group_queues: list[GroupQueue]) -> _Asking:
        running = next((found for each in group_queues if (found := group.generation_of(each)) is not None), None)
        if running is None:
            return _Asking(asked_at=-1.0, holders=frozenset(), limited=False, pushing=self._pushes(group, topic))
        before = self._held.get((group.name, topic))
        held = running.held_by_rate
        self._held[group.name, topic] = (running, held)
        parked = running.buffer.parked_holders(topic)
        asked_at = max(running.buffer.asked_at, running.buffer.line(topic).asked_at)
        if parked:
            asked_at = self._clock.monotonic()
        return _Asking(
            asked_at=asked_at,
            holders=frozenset(parked),
            limited=held > (before[1] if before is not None and before[0] is running else 0),
            pushing=running.pushes,
        )

    @staticmethod
    def _pushes(group: ConsumerGroup, topic: str) -> bool:
        config = _subscription_of(group, topic)
        return config is not None and config.actions[-1] != "PullServer"

    def _sample(  # noqa: PLR0917 - what was found out of one queue on the way here
        self,
        key: QueueKey,
        group: ConsumerGroup,
        group_queues: list[GroupQueue],
        figures: JobFigures,
        asking: _Asking,
        seen: dict[QueueKey, _Seen],
    ) -> QueueSample:
        clock = self._clock
        now_us, now = clock.wall_us(), clock.monotonic()
        time_ms = now_us // 1000

        def to_wall(moment: float) -> int | None:
            return None if moment < 0 else (now_us - round((now - moment) * 1_000_000)) // 1000

        tracker = group.node.progress.trackers.get((key.group, key.topic, key.queue))
        committed = None if tracker is None else tracker.watermark
        answered_at = max((each.answered_at for each in group_queues), default=-1.0)
        before = self._seen.get(key)
        moved_ms = self._moved_ms(before, committed, to_wall(answered_at), time_ms)
        queue = group.node.broker.queue(key.topic, key.queue)
        start = end = oldest = None
        matched: tuple[int, int, float | None] | None = None
        if queue is not None:
            start, end = queue.min_offset, queue.max_offset
            oldest = max(start, 0 if committed is None else committed)
            codes = _codes(_subscription_of(group, key.topic))
            if codes is not None and committed is not None and isinstance(queue, ConsumeQueue):
                known = None if before is None else before.matched
                matched = known if known is not None and known[:2] == (committed, end) else None
                matched = matched or (committed, end, matched_share(queue, committed, end, codes))
        seen[key] = _Seen(time_ms=time_ms, committed=committed, moved_ms=moved_ms, matched=matched)
        held = figures.held
        started = None if tracker is None else max(tracker.started, tracker.watermark)
        return QueueSample(
            time_ms=time_ms,
            start=start,
            end=end,
            committed=committed,
            finished=0 if tracker is None else tracker.ahead,
            expired=0 if tracker is None else tracker.expired,
            started=started,
            in_flight=figures.in_flight,
            waiting=figures.waiting,
            retrying=figures.retrying,
            dead_letters=0 if tracker is None else tracker.dead_letters,
            start_ms=None if queue is None else self._time_at(group, queue, queue.min_offset),
            committed_ms=None if queue is None or oldest is None else self._time_at(group, queue, oldest),
            started_ms=None
            if queue is None or started is None
            else self._time_at(group, queue, max(started, queue.min_offset)),
            end_ms=None if queue is None else self._time_at(group, queue, queue.max_offset - 1),
            moved_ms=moved_ms,
            answered_ms=to_wall(answered_at),
            asked_ms=to_wall(asking.asked_at),
            holders=len(figures.holders | asking.holders),
            held_key=None if held is None else shown_key(held, self._node.config.lag.keys),
            held_since_ms=None if held is None else to_wall(figures.held_since),
            held_offset=None if held is None else held.offset,
            held_attempts=0 if held is None else max(held.deliveries, held.attempts),
            held_reason=None if held is None or held.history is None else one_line(held.history.reason),
            paused=self._is_paused(group, key.topic),
            limited=asking.limited,
            pushing=asking.pushing,
            matched=None if matched is None else matched[2],
        )

    def _time_at(self, group: ConsumerGroup, queue: QueueView, offset: int) -> int | None:
        """When a message was stored: from the log, or of a Kafka what is in hand; None where it is not known."""
        if isinstance(queue, ConsumeQueue):
            return self.times.at(queue, offset)
        stored = group.node.broker.stored(queue, offset) if queue.min_offset <= offset < queue.max_offset else None
        return None if stored is None else stored.stored_ms

    def _moved_ms(
        self, before: _Seen | None, committed: int | None, answered_ms: int | None, now_ms: int
    ) -> int | None:
        """When the committed offset last rose, as far as two rounds tell."""
        if before is None:
            # A group that was not there in the round before begins now; in the first round nobody knows.
            return None if not self._rounds or committed is None else now_ms
        if committed is None or before.committed is None or committed <= before.committed:
            return now_ms if committed is not None and before.committed is None else before.moved_ms
        # Without an answer since then it was an action, retention or an operator who finished something.
        return now_ms if answered_ms is None or answered_ms < before.time_ms else min(answered_ms, now_ms)

    def _is_paused(self, group: ConsumerGroup, topic: str) -> bool:
        """Whether an operator has the group, or this topic of it, rest; also by taking it out of the configuration."""
        if self._node.pauses.of(group.name, topic) is not None:
            return True
        if topic == retry_topic(group.name):
            return not group.consumes
        config = _subscription_of(group, topic)
        return config is None or not config.enabled


def _subscription_of(group: ConsumerGroup, topic: str) -> SubscriptionConfig | None:
    return next((each for each in group.config.topics if each.topic == topic), None)


def _codes(config: SubscriptionConfig | None) -> frozenset[int] | None:
    """Tags codes that a subscription takes; None: all."""
    tags = None if config is None else config.wanted_tags
    return None if tags is None else frozenset(tags_code(tag.encode()) for tag in tags)
