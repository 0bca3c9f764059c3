"""Samples of a live node: for each configured group, each queue that it subscribes or still has a position in.

One round is a generator of small steps; each queue is read in one of them, so that its sample is of one moment, which
it names. `committed` is read before the end: a lag that is computed from a sample is never below what it was.

What a node does not keep per message is read off two rounds: `moved_ms` is the last answer between them where the
committed offset rose, and `limited` says whether a rate held something back between them. What is of a whole
subscription (`asked_ms`, `failing`, `succeeded_ms`) takes queues that the round has not come to as the one before left
them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field

from broker.format.java import tags_code
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.topics import retry_topic
from broker.runtime.seams import Clock
from broker.store import Store
from conf.models import LOW_LEVEL, SubscriptionConfig
from lag.samples import QueueKey, QueueSample
from proxy.recording.in_force import InForce
from proxy.recording.jobs import JobFigures, look_at_jobs, one_line, shown_key
from proxy.recording.timestamps import plausible
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.pauses import Pauses
from upstream.delivery.subscription import Subscription
from upstream.embedded.message_times import MessageTimes, matched_share
from upstream.job import GroupQueue
from upstream.message_holder import Holder
from upstream.queues import QueueView
from upstream.views import SinkView, holder_text

OUT_SECONDS = 60.0
"""A message that is out for less is not named."""
_PLACES_AT_ONCE = 256
_TRACKERS_AT_ONCE = 1024
"""Positions that are looked through in one piece of a step, in a fraction of a millisecond."""

Place = tuple[str, int]
"""Topic and number of a queue."""
Samples = list[tuple[QueueKey, QueueSample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueueRound:
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
    """Who works on messages of one topic of a group.

    Attributes:
        asked_at: When a client last pulled or answered; monotonic seconds, -1.0: never.
        holders: Which clients wait for a message now, or fetch.
        limited: A rate held something back since the round before.
        pushing: Its last action sends messages on.
        sink: The server that a sink waits for, for longest; None: none.
    """

    asked_at: float
    holders: frozenset[Holder | str]
    limited: bool
    pushing: bool
    sink: SinkView | None = None


@dataclass(slots=True)
class _TopicRound:
    """What is known of one topic of a group over its queues, from one round to the next.

    Attributes:
        generation: The generation that was looked at.
        held: How often its rate had held something back.
        finished: How many messages had succeeded; None: not known.
        succeeded_ms: When that was last seen to have risen.
        asked_ms: When a client of the group was last at work.
        in_flight: Messages that are out, by queue.
        failing: Messages that have failed and are not finished, by queue.
    """

    generation: Subscription | None = None
    held: int = 0
    finished: int | None = None
    succeeded_ms: int | None = None
    asked_ms: int | None = None
    in_flight: dict[Place, int] = field(default_factory=dict)
    failing: dict[Place, int] = field(default_factory=dict)

    def keep(self, places: set[Place]) -> None:
        """Forget all queues but these."""
        for of_queues in (self.in_flight, self.failing):
            for place in [each for each in of_queues if each not in places]:
                del of_queues[place]


class QueueSampler:
    """Samples all queues of one node, round by round.

    Args:
        in_force: The node's configuration and groups.
        store: The node's.
        pauses: Which groups are paused.
        clock: Dates what was read.

    Attributes:
        topics: What rounds know of a subscription, by group and topic.
    """

    def __init__(self, in_force: InForce, store: Store, pauses: Pauses, clock: Clock) -> None:
        self._in_force = in_force
        self._pauses = pauses
        self._clock = clock
        self.times = MessageTimes(store)
        self._seen: dict[QueueKey, _QueueRound] = {}
        self._rounds = 0
        self.topics: dict[str, dict[str, _TopicRound]] = {}

    def recall(self, group: str, topic: str, queue: int, sample: QueueSample) -> None:
        """Take up what an earlier process noted of a queue: that a group was at work, and when it moved."""
        node = self._in_force.config.node
        key = QueueKey(cluster=node.broker_cluster, node=node.broker_name, group=group, topic=topic, queue=queue)
        self._seen[key] = _QueueRound(
            time_ms=sample.time_ms, committed=sample.committed, moved_ms=sample.moved_ms, matched=None
        )
        of_topic = self.topics.setdefault(group, {}).setdefault(topic, _TopicRound())
        of_topic.asked_ms = latest_of(of_topic.asked_ms, sample.asked_ms)
        of_topic.succeeded_ms = latest_of(of_topic.succeeded_ms, sample.succeeded_ms)

    def round(self) -> Generator[None, None, Samples]:
        """Read every queue once, in steps, each with its own moment."""
        samples: Samples = []
        seen: dict[QueueKey, _QueueRound] = {}
        strays = yield from self._strays()
        for name in list(self._in_force.groups):
            group = self._in_force.groups.get(name)
            if group is None:
                # A reload took it out between two steps.
                continue
            for key, sample in (yield from self._group(group, strays.get(name, ()), seen)):
                samples.append((key, sample))
        self._seen = seen
        self.topics = {name: each for name, each in self.topics.items() if name in self._in_force.groups}
        self._rounds += 1
        self.times.round_over()
        return samples

    def _strays(self) -> Generator[None, None, dict[str, list[Place]]]:
        """Find the queues of which a group has a position and that it does not subscribe; each tracker is read once."""
        strays: dict[str, list[Place]] = {}
        subscribed = {name: group.config for name, group in self._in_force.groups.items()}
        progresses = {id(group.node.progress): group.node.progress for group in self._in_force.groups.values()}
        for progress in progresses.values():
            for number, (owner, topic, queue_id) in enumerate(list(progress.trackers)):
                wanted = subscribed.get(owner)
                if wanted is not None and topic not in wanted.by_topic:
                    strays.setdefault(owner, []).append((topic, queue_id))
                if number % _TRACKERS_AT_ONCE == _TRACKERS_AT_ONCE - 1:
                    yield
        return strays

    def _group(
        self, group: ConsumerGroup, strays: Iterable[Place], seen: dict[QueueKey, _QueueRound]
    ) -> Generator[None, None, Samples]:
        by_place: dict[Place, list[GroupQueue]] = {}
        for number, each in enumerate(group.group_queues(), start=1):
            if number % _TRACKERS_AT_ONCE == 0:
                yield
            by_place.setdefault((each.topic, each.queue_id), []).append(each)
        asking: dict[str, _Asking] = {}
        samples: Samples = []
        places: list[Place] = []
        topics, here = self.topics.setdefault(group.name, {}), dict[str, set[Place]]()
        for place in self._places(group, strays):
            places.append(place)
            if len(places) % _PLACES_AT_ONCE == 0:
                yield
        for place in places:
            group_queues = by_place.get(place, [])
            figures = yield from look_at_jobs(group_queues)
            topic = group_queues[0].line.topic if group_queues else place[0]
            here.setdefault(topic, set()).add(place)
            of_topic = topics.setdefault(topic, _TopicRound())
            of_topic.in_flight[place], of_topic.failing[place] = figures.in_flight, figures.failing
            if topic not in asking:
                asking[topic] = self._asking(group, topic, group_queues)
            key = QueueKey(
                cluster=self._in_force.config.node.broker_cluster,
                node=self._in_force.config.node.broker_name,
                group=group.name,
                topic=place[0],
                queue=place[1],
            )
            sample = self._sample(key, group, group_queues, figures, (asking[topic], of_topic), seen)
            samples.append((key, sample))
            yield
        for topic, known in list(topics.items()):
            if topic in here or topic in group.config.by_topic:
                known.keep(here.get(topic, set()))
            else:
                del topics[topic]
        return samples

    @staticmethod
    def _places(group: ConsumerGroup, strays: Iterable[Place]) -> Iterator[Place]:
        """Yield the queues that a group subscribes, then those of other topics in which it still has a position."""
        broker, wanted = group.node.broker, group.config.by_topic
        for name in list(wanted):
            topic = broker.topic(name)
            if topic is not None:
                yield from ((name, queue.queue_id) for queue in topic.queues)
        for name, queue_id in sorted(strays):
            if name not in wanted and broker.queue(name, queue_id) is not None:
                yield name, queue_id

    def _asking(self, group: ConsumerGroup, topic: str, group_queues: list[GroupQueue]) -> _Asking:
        running = next((found for each in group_queues if (found := group.generation_of(each)) is not None), None)
        fetchers = [each.id for each in group.fetch_hooks.fetchers()]
        config = _subscription_of(group, topic)
        pushing = config is not None and config.actions[-1] not in ("PullServer", LOW_LEVEL)
        if running is None:
            return _Asking(asked_at=-1.0, holders=frozenset(fetchers), limited=False, pushing=pushing)
        of_topic = self.topics[group.name][topic]
        held, finished = running.held_by_rate, running.counters.finished.value
        limited = held > (of_topic.held if of_topic.generation is running else 0)
        if finished > (of_topic.finished or 0):
            of_topic.succeeded_ms = self._clock.wall_ms()
        of_topic.generation, of_topic.held, of_topic.finished = running, held, finished
        parked = running.buffer.parked_holders(topic)
        asked_at = max(running.buffer.asked_at, running.buffer.line(topic).asked_at)
        away = [each for sink in running.sinks for each in sink.servers_away() if not each.messages_alone]
        return _Asking(
            asked_at=asked_at,
            holders=frozenset([*parked, *fetchers]),
            limited=limited,
            pushing=pushing,
            sink=min(away, key=lambda each: each.since_ms, default=None),
        )

    def _sample(  # noqa: PLR0917 - what was found out of one queue on the way here
        self,
        key: QueueKey,
        group: ConsumerGroup,
        group_queues: list[GroupQueue],
        figures: JobFigures,
        of_topic: tuple[_Asking, _TopicRound],
        seen: dict[QueueKey, _QueueRound],
    ) -> QueueSample:
        asking, topic = of_topic
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
        seen[key] = _QueueRound(time_ms=time_ms, committed=committed, moved_ms=moved_ms, matched=matched)
        held, out, sink = figures.held, figures.out, asking.sink
        if out is not None and now - out[0] < OUT_SECONDS:
            out = None
        is_at_work = asking.holders or (not asking.pushing and any(topic.in_flight.values()))
        asked_ms = time_ms if is_at_work else to_wall(max(asking.asked_at, answered_at))
        # The clock may have been set back.
        topic.asked_ms = earliest_of(latest_of(topic.asked_ms, asked_ms), time_ms)
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
            asked_ms=topic.asked_ms,
            holders=len(figures.holders | asking.holders),
            held_key=None if held is None else shown_key(held, self._in_force.config.lag.keys),
            held_since_ms=None if held is None else to_wall(figures.held_since),
            held_offset=None if held is None else held.offset,
            held_attempts=0 if held is None else held.attempts if held.history is not None else held.deliveries,
            held_reason=None if held is None or held.history is None else one_line(held.history.reason),
            paused=self._is_paused(group, key.topic),
            limited=asking.limited,
            pushing=asking.pushing,
            matched=None if matched is None else matched[2],
            skipped=sum(each.skipped for each in group_queues),
            failing=sum(topic.failing.values()),
            succeeded_ms=earliest_of(topic.succeeded_ms, time_ms),
            out_offset=None if out is None else out[1],
            out_client=None if out is None else name_of(out[2]),
            out_since_ms=None if out is None else to_wall(out[0]),
            sink_server=None if sink is None else one_line(sink.server),
            sink_reason=None if sink is None else one_line(sink.reason),
            sink_since_ms=None if sink is None else sink.since_ms,
            base=None if queue is None else queue.base_offset,
        )

    def _time_at(self, group: ConsumerGroup, queue: QueueView, offset: int) -> int | None:
        """When a message was stored: from the log, or of a Kafka what is in hand; None where it is not known."""
        if isinstance(queue, ConsumeQueue):
            return self.times.at(queue, offset)
        stored = group.node.broker.stored(queue, offset) if queue.min_offset <= offset < queue.max_offset else None
        return None if stored is None else plausible(stored.stored_ms, self._clock.wall_ms())

    def _moved_ms(
        self, before: _QueueRound | None, committed: int | None, answered_ms: int | None, now_ms: int
    ) -> int | None:
        """When the committed offset last rose, as far as two rounds show."""
        if before is None:
            # A group that was not there in the round before begins now; in the first round that is unknown.
            return None if not self._rounds or committed is None else now_ms
        if committed is None or before.committed is None or committed <= before.committed:
            return now_ms if committed is not None and before.committed is None else before.moved_ms
        # Without an answer since then it was an action, retention or an operator who finished something.
        return now_ms if answered_ms is None or answered_ms < before.time_ms else min(answered_ms, now_ms)

    def _is_paused(self, group: ConsumerGroup, topic: str) -> bool:
        """Whether an operator has the group, or this topic of it, rest; also by taking it out of the configuration."""
        if self._pauses.of(group.name, topic) is not None:
            return True
        if topic == retry_topic(group.name):
            return not group.consumes
        config = _subscription_of(group, topic)
        return config is None or not config.enabled


def latest_of(*moments: int | None) -> int | None:
    """Return the latest moment; None where none is known."""
    return max((each for each in moments if each is not None), default=None)


def earliest_of(moment: int | None, latest_ms: int) -> int | None:
    """Return a moment, or `latest_ms` where it is after that; None where it is not known."""
    return None if moment is None else min(moment, latest_ms)


def name_of(holder: Holder | str) -> str | None:
    """Return how a client or an action is named, as one line."""
    return one_line(holder if isinstance(holder, str) else holder_text(holder.address, holder.client))


def _subscription_of(group: ConsumerGroup, topic: str) -> SubscriptionConfig | None:
    return group.config.by_topic.get(topic)


def _codes(config: SubscriptionConfig | None) -> frozenset[int] | None:
    """Tags codes that a subscription takes; None: all."""
    tags = None if config is None else config.wanted_tags
    return None if tags is None else frozenset(tags_code(tag.encode()) for tag in tags)
