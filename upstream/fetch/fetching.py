"""Fetches and acks of one low-level group: what comes back, and which positions move (R79-R87).

A fetch comes in two kinds. One of a *fetcher* (`Fetchers`) is given the queues that it owns. One of *named queues* is
given exactly those that it names, whichever client owns them, and registers no fetcher: many connections may read
ranges side by side. Where neither says otherwise a queue is read from the group's committed offset on (R84), which for
a group that was never seen begins where `consumeFromWhere` says (W71: DDMQ begins at the end, and takes an error for
0).

An ack says up to where all is done. It goes through the group's tracker, as every finished message does: so it is kept
by the ack journal, moves no position back, and shows in lag and offsets. It counts for what the client
was given, and where no other client owns the queue (W73); one that says nothing new counts always, since DDMQ's clients
send all their positions again until an answer is true. Messages that are not delivered to the group (tags, stress
tests) is finished on the way, so that no lag is left behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from broker.runtime.later import Later
from broker.runtime.metrics import declare
from pyddmq.codes import PullCode
from upstream.delivery.group import ConsumerGroup
from upstream.fetch.fetchers import FetcherClient, FetcherQueue, Fetchers, FetchersFull
from upstream.figures.counters import SubscriptionCounters
from upstream.group_parts import NodeSeams
from upstream.job import GroupQueue, Slices
from upstream.source import MessageFilter, Stretch
from upstream.waiting.limits import TokenBucket

LOOK_SECONDS = 1.0
"""How often it is looked for fetchers that have expired."""
NAMED_COUNT_MAX = 10_000
"""Messages per queue of a fetch of named queues at most; it is not bound to maxPullBatchSize, bytes bound it."""

FETCHED = declare(
    "pyddmq_fetched_messages_total", "Messages given to fetches, repetitions included", ("group", "topic")
)
EXPIRED = declare(
    "pyddmq_fetchers_expired_total", "Fetchers that were silent for 30 s and lost their queues", ("group",)
)
ACKS_REFUSED = declare(
    "pyddmq_fetch_acks_refused_total",
    "Queues of acks that changed nothing; by reason: no_such_group, other_cluster, unknown_queue, not_consumed, "
    "not_owned, beyond_end, reset, acks_refused, starting",
    ("reason",),
)

Positions = Mapping[str, Mapping[str, int]]
"""Offset by qid, by topic."""


class FetchRefused(Exception):
    """A fetch cannot be served; `code` says why to programs, the text to people."""

    def __init__(self, code: PullCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class FetchOrder(NamedTuple):
    """What a fetch asks for.

    Attributes:
        consumer: Name of who asks.
        positions: Next offsets wanted, as far as they are known; a negative one counts as not given.
        only_named: Exactly the queues of `positions`.
        count_max: Messages per queue at most; None: the topic's maxPullBatchSize.
        bytes_max: What the messages may take together, but for the first.
        times: Whether their times are wanted.
    """

    consumer: str
    positions: Positions
    only_named: bool
    count_max: int | None
    bytes_max: int
    times: bool


class Row(NamedTuple):
    """What a fetch gets of one queue; `times` of each message where they are wanted."""

    topic: str
    qid: str
    next_offset: int
    messages: list[tuple[int, Slices]]
    times: list[tuple[int, int]]


class FetchResult(NamedTuple):
    """What a fetch gets.

    Attributes:
        rows: One per queue, also of those without a message.
        is_news: Whether there is anything that the client did not say itself; without, the fetch may wait.
    """

    rows: list[Row]
    is_news: bool


class Fetching:
    """Fetches and acks of one group. All methods are called from the loop's thread.

    Attributes:
        group: The group.
        fetchers: Who fetches.
    """

    def __init__(self, group: ConsumerGroup, node: NodeSeams) -> None:
        self.group = group
        self.fetchers = Fetchers(node.runtime.clock)
        assert node.stretches is not None, "the configuration allows low-level topics only where queues can be read so"
        self._stretches, self._runtime = node.stretches, node.runtime
        self._buckets: dict[str, TokenBucket] = {}
        self._wakes: dict[Callable[[], None], None] = {}
        self._next_look = Later(node.runtime.scheduler, self._look)
        group.fetch_hooks.serve(self._wake, self.fetchers.views)

    # Fetches

    def seen(self, order: FetchOrder, address: str) -> FetcherClient | None:
        """Note a fetch: who asks is a fetcher from now on, unless it names its queues.

        Raises:
            FetchRefused: There are too many.
        """
        if order.only_named:
            return None
        try:
            fetcher, is_new = self.fetchers.seen(order.consumer, address)
        except FetchersFull as full:
            raise FetchRefused(PullCode.OVERLOADED, f"{full}: use fewer consumer ids") from full
        topics = self._topics()
        if is_new or not self.fetchers.fits(topics):
            self._share_out(topics)
        self._next_look.unless_due(LOOK_SECONDS)
        return fetcher

    def fetch(self, order: FetchOrder, fetcher: FetcherClient | None) -> FetchResult:
        """Read what is there.

        Args:
            order: What is asked for.
            fetcher: As `seen` returned it.

        Raises:
            FetchRefused: A named queue is not this group's, or nothing reads it now.
        """
        rows: list[Row] = []
        room, is_news = order.bytes_max, False
        for group_queue in self._named(order) if fetcher is None else self._owned(fetcher):
            wanted = order.positions.get(group_queue.topic, {}).get(group_queue.qid, -1)
            start = self._start(group_queue, wanted, fetcher)
            row, taken = self._read(group_queue, start, order, room, is_owner=fetcher is not None)
            room -= taken
            rows.append(row)
            is_news = is_news or bool(row.messages) or row.next_offset not in (wanted, start)
            is_news = is_news or (wanted >= 0 and row.next_offset != wanted)
            if fetcher is not None:
                standing = fetcher.standings[group_queue]
                standing.given = max(standing.given, row.next_offset)
        return FetchResult(rows, is_news)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Have `wake` called when something may be there; returns what ends that."""
        self._wakes[wake] = None
        return lambda: self._wakes.pop(wake, None)

    def _named(self, order: FetchOrder) -> Iterator[GroupQueue]:
        for topic, positions in order.positions.items():
            if not self.group.has_topic(topic):
                known = ", ".join(self.group.topic_names())
                text = f"group {self.group.name!r} does not subscribe {topic!r}: it has {known}"
                raise FetchRefused(PullCode.NO_SUCH_TOPIC, text)
            queues = self.group.queues_by_topic.get(topic, {})
            for qid in positions:
                group_queue = queues.get(qid)
                if group_queue is None or group_queue.retries:
                    known = ", ".join(each for each in queues if not queues[each].retries)
                    text = f"topic {topic!r} has no queue {qid!r}: it has {known or 'none yet'}"
                    raise FetchRefused(PullCode.NO_SUCH_QUEUE, text)
                generation = group_queue.subscription
                if generation is None or not generation.config.is_low_level:
                    raise FetchRefused(PullCode.STARTING, f"topic {topic!r} is not served now: fetch again in a moment")
                yield group_queue

    def _owned(self, fetcher: FetcherClient) -> list[GroupQueue]:
        """Its queues, each time another one first: what takes all the bytes must not keep the others waiting."""
        owned = self.fetchers.owned(fetcher)
        fetcher.turn += 1
        at = fetcher.turn % len(owned) if owned else 0
        return owned[at:] + owned[:at]

    @staticmethod
    def _start(group_queue: GroupQueue, wanted: int, fetcher: FetcherClient | None) -> int:
        """Where to read: where the client says, unless the queue began again since it was given it; else (R84)."""
        generation, tracker = group_queue.subscription, group_queue.tracker
        stored = tracker.watermark
        if fetcher is not None and generation is not None:
            standing = fetcher.standings.get(group_queue)
            if standing is None or standing.generation is not generation:
                # A name that is new here may be a client of before the last reset: this node was started since.
                is_bound = standing is not None or stored < tracker.reset_end
                fetcher.standings[group_queue] = FetcherQueue(generation, stored, is_bound=is_bound)
                wanted = stored if is_bound else wanted
            elif standing.is_bound and wanted <= tracker.reset_end:
                # Its position is of before the reset when the reply that had the new one was lost.
                wanted = min(wanted, standing.given)
        queue = group_queue.queue
        return min(max(stored if wanted < 0 else wanted, queue.min_offset), queue.max_offset)

    def _read(
        self, group_queue: GroupQueue, start: int, order: FetchOrder, room: int, *, is_owner: bool
    ) -> tuple[Row, int]:
        """Read one queue; returns what is there, and how many bytes it takes."""
        generation = group_queue.subscription
        topic, qid = group_queue.topic, group_queue.qid
        nothing = Row(topic, qid, start, [], []), 0
        if generation is None or not generation.hands_out or room <= 0 or start >= group_queue.queue.max_offset:
            return nothing
        config = generation.config
        limit = order.count_max if order.count_max is not None and order.count_max > 0 else generation.batch_max
        count = min(limit, generation.batch_max if is_owner else NAMED_COUNT_MAX)
        bucket = self._buckets.get(topic)
        if bucket is None:
            bucket = self._buckets[topic] = TokenBucket(config.tps_max, self._runtime.clock)
        elif bucket.rate != config.tps_max:
            bucket.configure(config.tps_max)
        tokens = bucket.available()
        count = count if tokens is None else min(count, tokens)
        if count <= 0:
            return nothing
        tags = config.wanted_tags
        wanted = MessageFilter(None if tags is None else frozenset(map(str.encode, tags)), config.pressure_traffic)
        stretch = self._stretches.read_stretch(group_queue.queue, start, count, room, wanted, times=order.times)
        # In a reply with messages already, one that is larger than what is left must wait.
        if room < order.bytes_max and stretch.bytes > room:
            return nothing
        if is_owner:
            stretch = self._finish_passed(group_queue, stretch)
        bucket.take(len(stretch.messages))
        self._runtime.metrics.counter(FETCHED, self.group.name, topic).add(len(stretch.messages))
        return Row(topic, qid, stretch.next_offset, stretch.messages, stretch.times), stretch.bytes

    def _finish_passed(self, group_queue: GroupQueue, stretch: Stretch) -> Stretch:
        """Finish messages that the group does not get, and leave out what it had before it was low level."""
        tracker = group_queue.tracker
        finished = tracker.ahead > 0
        if stretch.passed:
            counters = SubscriptionCounters(self._runtime.metrics, self.group.name, group_queue.topic)
            for first, end, reason in stretch.passed:
                count = tracker.finish_range(first, end)
                counters.skipped(reason).add(count)
                if count and reason not in ("tag_filter", "pressure_traffic"):
                    self._runtime.limited_log.note(
                        "message_unreadable",
                        self.group.name,
                        count,
                        topic=group_queue.topic,
                        qid=group_queue.qid,
                        offset=first,
                        reason=reason,
                    )
        tracker.started = max(tracker.started, stretch.next_offset)
        if not finished:
            return stretch
        kept = [
            place
            for place, (offset, _) in enumerate(stretch.messages)
            if offset < tracker.watermark or not tracker.is_finished(offset)
        ]
        times = [stretch.times[place] for place in kept] if stretch.times else []
        return stretch._replace(messages=[stretch.messages[place] for place in kept], times=times)

    # Acks

    def ack(self, consumer: str, positions: Positions) -> int:
        """Move positions to where a client says that all before is done. Returns how many were refused."""
        refused = 0
        for topic, offsets in positions.items():
            for qid, offset in offsets.items():
                reason = self._ack(consumer, topic, qid, offset)
                if reason is not None:
                    refused += 1
                    self._runtime.metrics.counter(ACKS_REFUSED, reason).add()
                    self._runtime.limited_log.note(
                        "ack_refused", self.group.name, kind=reason, reason=reason, consumer=consumer, topic=topic,
                        qid=qid, offset=offset,
                    )  # fmt: skip
        return refused

    def _ack(self, consumer: str, topic: str, qid: str, offset: int) -> str | None:
        """Move one position; or return why not."""
        group_queue = self.group.queues_by_topic.get(topic, {}).get(qid)
        if group_queue is None or group_queue.retries:
            return "unknown_queue"
        generation = group_queue.subscription
        if generation is None or not generation.config.is_low_level:
            return "not_consumed"
        if not 0 <= offset <= group_queue.queue.max_offset:
            return "beyond_end"
        tracker = group_queue.tracker
        if offset <= tracker.watermark:
            return None
        fetcher = self.fetchers.by_id.get(consumer)
        standing = None if fetcher is None else fetcher.standings.get(group_queue)
        is_others = self.fetchers.owners.get(group_queue, consumer) != consumer
        if standing is None:
            if is_others:
                return "not_owned"
            if offset <= tracker.reset_end:
                return "reset"
        elif standing.generation is not generation or (standing.is_bound and offset > standing.given):
            return "reset"
        elif is_others and offset > standing.given:
            # What it was given while the queue was its own it may ack: the messages were processed.
            return "not_owned"
        moved = tracker.finish_range(tracker.watermark, offset)
        if moved:
            self.fetchers.worked(consumer)
            group_queue.answered_at = self._runtime.clock.monotonic()
            SubscriptionCounters(self._runtime.metrics, self.group.name, topic).finished.add(moved)
        return None

    # Members

    def _topics(self) -> dict[str, list[GroupQueue]]:
        """The queues that are there to be shared out."""
        return {
            topic: [
                each
                for each in queues.values()
                if not each.retries and each.subscription is not None and each.subscription.config.is_low_level
            ]
            for topic, queues in self.group.queues_by_topic.items()
        }

    def _share_out(self, topics: Mapping[str, list[GroupQueue]]) -> None:
        if self.fetchers.rebalance(topics):
            self._wake()

    def _wake(self) -> None:
        for wake in list(self._wakes):
            wake()

    def _look(self) -> None:
        """Let go of fetchers that are silent, while there are any."""
        for fetcher in self.fetchers.expire():
            self._runtime.metrics.counter(EXPIRED, self.group.name).add()
            self._runtime.limited_log.note(
                "fetcher_expired", self.group.name, consumer=fetcher.id, client=fetcher.address
            )
        topics = self._topics()
        if len(set(self.fetchers.owners.values()) - set(self.fetchers.by_id)) or not self.fetchers.fits(topics):
            self._share_out(topics)
        if self.fetchers.by_id:
            self._next_look.unless_due(LOOK_SECONDS)
