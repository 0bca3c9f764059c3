"""A consumer group of the configuration, over all generations of its subscriptions.

What `proxy` calls: pull, park, apply, give_back. Trackers, group queues and the pull buffer belong to the group and
outlive generations, so that a reload of one topic disturbs neither parked pulls nor deliveries of another (D22).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from broker.errors import QueuesOwned
from broker.runtime.steps import run_now
from conf.models import GroupConfig, SubscriptionConfig
from pyddmq.actions import Action
from upstream.budget import Budget
from upstream.delivery.generations import Generations, TopicPlace, same_generation
from upstream.delivery.group_figures import GroupFigures
from upstream.delivery.group_queues import GroupQueues, UnknownTopic
from upstream.delivery.pauses import Pause
from upstream.delivery.results import Applied, Result, apply_result
from upstream.delivery.stats import LISTED_MAX, TopicOffsets
from upstream.delivery.subscription import Subscription
from upstream.figures.counters import PARKED_REFUSED, UNKNOWN_QUEUE
from upstream.group_parts import FetchHooks, GroupLimits, GroupParts, NodeSeams
from upstream.job import GroupQueue, PartialBatch, UpstreamJob
from upstream.message_holder import Holder
from upstream.retry.dead_letters import DeadLetters, recover_dead_letters
from upstream.retry.retry_topic import RetryTopic
from upstream.state import JobState
from upstream.views import GroupView
from upstream.waiting.buffer import Parked, ParkedFull, PullBuffer, PulledBatch

if TYPE_CHECKING:
    from upstream.queues import NodeTopic, QueueView

_new = tuple.__new__

QUEUES_AT_ONCE = 128
"""Queues of a topic that a start makes in one step, in a few milliseconds."""
DELIVERY_BITS = 62
"""Of the number with which deliveries begin: it goes on the wire as a positive 64-bit integer."""

MakeActions = Callable[[SubscriptionConfig], Sequence[Action]]
"""Makes the pipeline of one subscription: one instance per entry of `actions`."""


class ConsumerGroup:
    """One group. All methods are called from the loop's thread.

    Attributes:
        name: Its name.
        config: The configuration in force.
        is_low_level: As its configuration says; kept beside it, since every pull and every result asks.
        node: What it has of its node.
        fetch_hooks: Who serves its fetches, where it is low level.
        queues_by_topic: Every queue that it has read: by topic, by qid.
    """

    def __init__(
        self,
        config: GroupConfig,
        *,
        node: NodeSeams,
        make_actions: MakeActions,
        qid_prefix: str,
        limits: GroupLimits | None = None,
        budget: Budget | None = None,
        paused: Callable[[str], Pause | None] = lambda _: None,
        client_id: str = "proxy",
    ) -> None:
        """Set up; nothing is read before `start`.

        Args:
            config: The group as configured.
            node: What it has of its node.
            make_actions: Makes the actions of a subscription; raises when one cannot be made.
            qid_prefix: Text before the queue number in a qid: `<brokerCluster>_<brokerName>_` (section 1.5).
            limits: Its bounds; the defaults when absent.
            budget: The node's account of memory; without one there is no ceiling.
            paused: The pause that holds for a topic; asked when a generation starts and by `apply_pauses`.
            client_id: Who the proxy is where queue locks are held (D36): `proxy@` and the node's name.

        Raises:
            Exception: What `make_actions` raised.
        """
        limits = limits or GroupLimits()
        broker, progress, runtime = node.broker, node.progress, node.runtime
        self.name = config.group
        self._configure(config)
        self.node = node
        self._progress = progress
        self._limited_log = runtime.limited_log
        self._make_actions = make_actions
        self._waiting_max = limits.waiting_max
        self._paused = paused
        self._buffer = PullBuffer(
            clock=runtime.clock,
            limits=limits.buffer,
            first_delivery=runtime.random.getrandbits(DELIVERY_BITS),
            budget=budget,
            may_hand_out=node.may_hand_out,
        )
        self._dead_letters = DeadLetters(config.group, broker=broker, progress=progress, scheduler=runtime.scheduler)
        self._retry_topic: RetryTopic | None = None
        if node.retry_queues is not None:
            self._retry_topic = RetryTopic(config.group, node.retry_queues, progress=progress, runtime=runtime)
        self.fetch_hooks = FetchHooks()
        self._parts = GroupParts(
            group=config.group,
            node=node,
            buffer=self._buffer,
            dead_letters=self._dead_letters,
            retry_topic=self._retry_topic,
            fetch_hooks=self.fetch_hooks,
        )
        self._queues = GroupQueues(self._parts, qid_prefix)
        self.queues_by_topic = self._queues.by_topic
        self._slots = {each.topic: TopicPlace(each, make_actions(each)) for each in config.enabled_topics}
        self._claims = broker.claims(config.group, client_id, progress=progress, lost=self._lost)
        self._generations = Generations(
            config.group,
            self._slots,
            make=self._subscription,
            runtime=runtime,
            drain_seconds=limits.drain_seconds,
            ended=self._ended,
        )
        self._figures = GroupFigures(
            parts=self._parts,
            places=self._slots,
            generations=self._generations,
            queues_by_topic=self.queues_by_topic,
            paused=paused,
        )

    # Pulls

    @property
    def consumes(self) -> bool:
        """Whether it subscribes any topic; without one no pull can ever get a message (W6, W24)."""
        for slot in self._slots.values():  # noqa: SIM110 - asked at every pull
            if slot.config is not None:
                return True
        return False

    def has_topic(self, topic: str) -> bool:
        """Whether the group subscribes this topic."""
        slot = self._slots.get(topic)
        return slot is not None and slot.config is not None

    def works_on(self, topic: str) -> bool:
        """Whether a generation reads this topic, or one that is to end has not drained."""
        self._generations.end_drained()
        return topic in self._slots

    def topic_names(self) -> list[str]:
        """Return the topics that it subscribes."""
        return [name for name, slot in self._slots.items() if slot.config is not None]

    def pull(self, topic: str | None, count_max: int | None, holder: Holder) -> PulledBatch | None:
        """Hand out what is there: one batch of one (topic, queue), or None.

        Args:
            topic: Only this topic; None: any of the group's, in rotation (R38).
            count_max: Messages wanted at most; None, 0 and below: the topic's maxPullBatchSize (R40).
            holder: The connection that gets them.
        """
        return self._buffer.take(topic, count_max, holder)

    def park(
        self, topic: str | None, count_max: int | None, holder: Holder, wake: Callable[[PulledBatch], None]
    ) -> Parked:
        """Let a pull wait until something arrives; the caller ends the wait with `unpark`.

        Raises:
            ParkedFull: Too many pulls of the group wait.
        """
        try:
            return self._buffer.park(topic, count_max, holder, wake)
        except ParkedFull:
            self.node.runtime.metrics.counter(PARKED_REFUSED, self.name).add()
            raise

    @property
    def parked_free(self) -> int:
        """Places left for pulls that wait."""
        return max(0, self._buffer.limits.parked_max - self._buffer.parked_count)

    def unpark(self, parked: Parked) -> None:
        """Withdraw a parked pull; harmless after it was answered."""
        self._buffer.unpark(parked)

    def give_back(self, batch: PulledBatch, holder: Holder) -> None:
        """Take back a batch whose reply never left the node: at once available again and uncounted (D18, W9)."""
        subscription = self._generation_with(batch.jobs[0]) if batch.jobs else None
        if subscription is not None:
            subscription.outcomes.give_back(batch.jobs, holder)

    @property
    def reply_bytes_max(self) -> int:
        """Bytes of one reply beyond which no further message goes into it."""
        return self._buffer.limits.reply_bytes_max

    def settle(self, reply: PartialBatch) -> None:
        """Settle the jobs of a batch that its reply does not have.

        Those whose records turned out damaged or gone are finished, those whose bodies cannot be unpacked are
        dead-lettered (D17), and those without room are at once available again and uncounted (D18).
        """
        jobs = [*reply.unreadable, *(job for job, _ in reply.unusable), *reply.left]
        subscription = self._generation_with(jobs[0]) if jobs else None
        if subscription is None:
            return
        ended: list[tuple[UpstreamJob, Exception]] = [
            *((job, subscription.why_unreadable(job)) for job in reply.unreadable),
            *reply.unusable,
        ]
        for job, error in ended:
            if job.state is JobState.OUT:
                subscription.outcomes.leave_delivery(job)
                subscription.outcomes.error(job, error)
        subscription.outcomes.return_undelivered([job for job in reply.left if job.delivery is not None])

    def generation_of(self, group_queue: GroupQueue) -> Subscription | None:
        """Return the generation that reads a group queue; None while none does."""
        slot = self._slots.get(group_queue.line.topic)
        running = None if slot is None else slot.subscription
        return running if running is group_queue.subscription else None

    def _generation_with(self, job: UpstreamJob) -> Subscription | None:
        """The generation that a job is of; None once that has ended."""
        running = self.generation_of(job.group_queue)
        return running if running is job.subscription else None

    # Results

    def apply(  # noqa: PLR0917 - it runs for every result
        self,
        topic: str,
        queue_id_text: str,
        success: Sequence[int],
        fail: Sequence[int],
        holder: Holder,
        deliveries: dict[int, int] | None = None,
        reasons: dict[int, bytes] | None = None,
    ) -> Applied:
        """Apply a client's result; never an error for what it holds (D13).

        Args:
            topic, queue_id_text: Topic and qid of the context.
            success, fail, holder, deliveries, reasons: As those of `Result`.
        """
        group_queue: GroupQueue | None
        try:
            group_queue = self.queues_by_topic[topic][queue_id_text]
        except KeyError:
            group_queue = None
        if (group_queue is None or group_queue.subscription is None) and self.node.awaits_partitions is not None:
            group_queue = self._unread(topic, queue_id_text)
        if group_queue is None or self._progress.failed is not None:
            # Unknown, or the ack journal cannot be written: then no ack counts and keys wait (D5).
            ignored = len(success) + len(fail)
            self.node.runtime.metrics.counter(UNKNOWN_QUEUE, self.name).add(ignored)
            if ignored:
                reason = "unknown_queue" if group_queue is None else "acks_refused"
                self._limited_log.note(
                    "result_ignored", self.name, ignored, kind=reason, reason=reason, topic=topic, qid=queue_id_text
                )
            return Applied(ignored=ignored)
        # `generation_of`, inline.
        slot = self._slots.get(topic)
        running = None if slot is None else slot.subscription
        if running is not group_queue.subscription:
            running = None
        return apply_result(running, group_queue, _new(Result, (success, fail, holder, deliveries, reasons)))

    # By an operator's hand

    @property
    def retry_topic(self) -> str | None:
        """Name of the topic in which failed messages are redelivered; None where they wait in place."""
        return None if self._retry_topic is None else self._retry_topic.topic

    def group_queue(self, topic: str, queue_id: int, offset: int = -1) -> GroupQueue | None:
        """Return a queue as this group sees it, or None when it reads no such queue; `offset` as `GroupQueues.find`."""
        return self._queues.find(topic, queue_id, offset)

    def _unread(self, topic: str, queue_id_text: str) -> GroupQueue | None:
        """Return a queue that no generation reads, as while the actions of the next are opened; None: there is none.

        A partition may have been given back, or have gone, since the generation before.
        """
        found, slot = self.node.broker.topic(topic), self._slots.get(topic)
        if found is None or slot is None:
            return None
        known = self.queues_by_topic.get(topic, {}).get(queue_id_text)
        for queue in found.queues:
            if self._queues.qid(queue.queue_id) == queue_id_text:
                is_same = known is not None and known.queue is queue
                return known if is_same else self._queues.taken(found, [queue], slot.config)[0]
        return None

    def has_queue(self, topic: str | None, queue_id_text: str | None) -> bool:
        """Whether the group reads a queue, as results name it."""
        return queue_id_text in self.queues_by_topic.get(topic or "", ())

    def note_client(self) -> None:
        """Note that a client is at work, as by a pull."""
        self._buffer.asked_at = self.node.runtime.clock.monotonic()

    def is_at_work(self, seconds: float) -> bool:
        """Whether a client has pulled within this time, waits or holds messages, or whether it pushes."""
        buffer = self._buffer
        lines = [buffer.line(name).asked_at for name in self._slots]
        asked_at = max([buffer.asked_at, *lines])
        if buffer.parked_count or (asked_at >= 0 and self.node.runtime.clock.monotonic() - asked_at < seconds):
            return True
        if any(each.pushes for each in self._generations.running()):
            return True
        return any(each.in_flight or each.calls for each in self.group_queues())

    def group_queues(self) -> list[GroupQueue]:
        """Return all queues that this group has read."""
        return [group_queue for group_queues in self.queues_by_topic.values() for group_queue in group_queues.values()]

    def drain_topic(self, topic: str) -> Subscription | None:
        """Read and hand out nothing more of a topic; returns what drains, None when none runs.

        To be followed by `restart_topic` or `undrain_topic`.
        """
        slot = self._slots.get(topic)
        if slot is None or slot.subscription is None:
            return None
        slot.subscription.begin_drain()
        return slot.subscription

    def undrain_topic(self, topic: str) -> None:
        """Start a topic's generation again if `drain_topic` has ended it and nothing else has begun."""
        slot = self._slots.get(topic)
        drains = slot is not None and slot.subscription is not None and slot.subscription.draining
        if slot is not None and slot.config is not None and drains and slot.replace_at is None:
            self._generations.renew(slot, slot.config, self._make_actions(slot.config))

    def restart_topic(self, topic: str, change: Callable[[], None] = lambda: None) -> None:
        """End a topic's generation at once, run `change`, and start it again from where its trackers then stand.

        Raises:
            Exception: An action cannot be made, and nothing has happened; or what `change` raised.
        """
        slot = self._slots.get(topic)
        if slot is not None and slot.subscription is not None:
            if slot.config is not None:
                slot.actions = self._make_actions(slot.config)
            slot.subscription.stop()
            slot.subscription = slot.replace_at = None
        group_queues = self.queues_by_topic.get(topic, {}).values()
        out = [(group_queue, group_queue.unfinished_adopted()) for group_queue in group_queues]
        try:
            change()
        finally:
            for group_queue, offsets in out:
                group_queue.pass_over(offsets)
            if slot is not None:
                self._generations.start_slot(slot)

    def apply_pauses(self) -> None:
        """Bring running subscriptions in line with what is paused now."""
        for name, slot in self._slots.items():
            if slot.subscription is not None:
                slot.subscription.set_paused(self._paused(name) is not None)

    # Life

    def start(self) -> None:
        """Finish what retries and dead letters prove to be finished, make the trackers and begin to read."""
        run_now(self.starting())

    def starting(self) -> Generator[None, None, None]:
        """`start` in steps of QUEUES_AT_ONCE queues, or a few topics."""
        if self._retry_topic is not None:
            self._retry_topic.recover(self._begin)
        recover_dead_letters(self.name, broker=self.node.broker, progress=self._progress, begin=self._begin)
        for config in self.config.enabled_topics:
            yield from self._making_queues(config)
        yield from self._generations.starting()

    def _making_queues(self, config: SubscriptionConfig) -> Generator[None, None, None]:
        """Make the group queues of a topic with many queues in steps; its generation finds them made."""
        try:
            topic = self._queues.topic(config.topic)
            if len(topic.queues) <= QUEUES_AT_ONCE:
                return
            self._claims.take(topic)
        except Exception:
            return
        for number, queue in enumerate(list(topic.queues)):
            if number % QUEUES_AT_ONCE == QUEUES_AT_ONCE - 1:
                yield
            self._queues.group_queue(topic, queue, config)

    def _configure(self, config: GroupConfig) -> None:
        self.config, self.is_low_level = config, config.is_low_level

    def _begin(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where this group starts in a queue that it subscribes; None for any other."""
        config = self.config.by_topic.get(topic)
        if group != self.name or config is None or not config.enabled:
            return None
        return self._queues.begin(config, queue_id)

    def reconfigure(self, config: GroupConfig, limits: GroupLimits | None = None) -> None:
        """`reconfiguring` at once. Raises the same."""
        run_now(self.reconfiguring(config, limits))

    def reconfiguring(self, config: GroupConfig, limits: GroupLimits | None = None) -> Generator[None, None, None]:
        """Take a changed configuration (D22): limits live, the rest as new generations, removed topics end (W24).

        Args:
            config: The configuration.
            limits: Changed bounds; as they are when absent.

        Raises:
            Exception: An action cannot be made; nothing has changed then.
        """
        wanted = {each.topic: each for each in config.enabled_topics}
        made: dict[str, Sequence[Action]] = {}
        for number, (name, each) in enumerate(wanted.items(), start=1):
            if name not in self._slots or not same_generation(self._slots[name].config, each):
                made[name] = self._make_actions(each)
            if number % QUEUES_AT_ONCE == 0:
                yield
        self._configure(config)
        if limits is not None:
            self._buffer.limits = limits.buffer
            self._waiting_max = limits.waiting_max
            self._generations.drain_seconds = limits.drain_seconds
        yield from self._generations.reconfiguring(wanted, made, waiting_max=self._waiting_max)

    @property
    def live_jobs(self) -> int:
        """Unfinished jobs that were read; each takes memory."""
        return sum(len(group_queue.live) for group_queue in self.group_queues())

    @property
    def out_count(self) -> int:
        """Messages that clients hold."""
        return sum(job.delivery is not None for each in self.group_queues() for job in each.live.values())

    def go_on(self) -> None:
        """Read and hand out what was held back for want of memory."""
        self._buffer.serve()
        for subscription in self._generations.running():
            subscription.pump()

    def begin_drain(self) -> None:
        """Read and hand out nothing more; answers to what is out still count."""
        self._generations.begin_drain()

    @property
    def drained(self) -> bool:
        """Whether nothing is out and every dead letter is durable."""
        return self._generations.drained

    def stop(self) -> None:
        """End all generations at once; nothing acknowledged is lost."""
        self._generations.stop()
        self._dead_letters.stop()
        if self._retry_topic is not None:
            self._retry_topic.stop()

    def stats(self, *, details_max: int = LISTED_MAX) -> GroupView:
        """Return the lag, at most `details_max` messages in flight with their clients, and keys that block others."""
        return run_now(self.reading_stats(details_max=details_max))

    def reading_stats(self, *, details_max: int) -> Generator[None, None, GroupView]:
        """`stats` in steps."""
        return self._figures.reading(details_max)

    def offsets(self, topic: str | None = None) -> list[TopicOffsets]:
        """Return the positions of each topic, or of the one named."""
        return self._figures.offsets(topic)

    def _subscription(self, config: SubscriptionConfig, slot: TopicPlace) -> Subscription:
        """Make the next generation of a topic, paused where the topic is. Raises UnknownTopic, QueuesOwned, others."""
        topic = self._queues.topic(config.topic)
        self._claims.take(topic)
        retries = self._queues.retries(config)
        group_queues = [self._queues.group_queue(topic, queue, config) for queue in topic.queues]
        if retries is not None:
            try:
                self._claims.take(retries)
            except QueuesOwned:
                self._claims.release(topic.name)
                raise
            group_queues += self._queues.retry_group_queues(topic, retries)
        for group_queue in group_queues:
            self._progress.follow(group_queue.tracker)
        # Of one generation alone: those of one that lost its queues may be closed only when the next is at work.
        actions, slot.actions = slot.actions or self._make_actions(config), ()
        subscription = Subscription(
            self._parts,
            config,
            topic=topic,
            retries=retries,
            group_queues=group_queues,
            more_group_queues=lambda queues: self._more_group_queues(topic, queues, slot.config),
            revoked=lambda gone: self._revoked(topic.name, gone),
            start_failed=lambda error: self._generations.start_failed(slot, error),
            actions=actions,
            waiting_max=self._waiting_max,
        )
        if self._paused(config.topic) is not None:
            subscription.set_paused(True)
        return subscription

    def _more_group_queues(
        self, topic: NodeTopic, queues: Sequence[QueueView], config: SubscriptionConfig | None
    ) -> list[GroupQueue]:
        """Take queues that a topic got since; none while another consumer has one of them."""
        try:
            self._claims.take(topic)
        except QueuesOwned as owned:
            self._limited_log.note("queues_owned", self.name, topic=topic.name, owner=owned.owner)
            return []
        return self._queues.taken(topic, queues, config)

    def _ended(self, topic: str | None) -> None:
        """Give up the queues of a topic that is consumed no more, and the retry topic's with the last that reads it."""
        self._claims.release(topic)
        retry_topic = self.retry_topic
        # `release(None)` gives up all topics: without a retry topic there is nothing more to release.
        if None not in (topic, retry_topic) and not any(each.reads_retries for each in self._generations.running()):
            self._claims.release(retry_topic)

    def _revoked(self, topic: str, gone: Sequence[GroupQueue]) -> None:
        """Read a topic on without the queues that were taken away; what is out of the others stays in flight (D12)."""
        self._queues.revoke(topic, gone)
        self._progress.let_go(self.name, topic)
        self._lost(topic)

    def _lost(self, topic: str) -> None:
        """End the generations that read a topic: another consumer has it. They start again when it is free."""
        for slot in list(self._slots.values()):
            running = slot.subscription
            if running is not None and any(group_queue.topic == topic for group_queue in running.group_queues):
                running.stop()
                slot.subscription = slot.replace_at = None
                self._generations.start_slot(slot)


__all__ = ["Applied", "ConsumerGroup", "Holder", "Parked", "ParkedFull", "PulledBatch", "UnknownTopic"]
