"""Generations: which subscription of a group runs for each topic, and which is to take its place (D22).

A changed configuration ends a generation gently: it reads and hands out nothing more, and the next one starts when
nothing of it is out, or after `drain_seconds`. What keeps a generation from starting is said and tried again (R8, W45).

A place has one generation at most, and goes round:

    starting  --made and started-->  running  --replace-->  draining  --drained, or drain_seconds-->  starting

`starting` is tried again every 5 s where it raised, and every second where the queues are another's ("waiting"). With
no configuration wanted the place ends instead.

What the next one will be is read when it starts, so that of several reloads during one drain the last counts. The
time of a drain is counted from the first of them: a configuration that is changed all the time is replaced all the
same. Trackers, attempts and held keys are the group queues', which outlive generations: what a replacement costs is
what was read ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

from broker.errors import QueuesOwned
from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from broker.runtime.seams import ScheduledCall
from conf.models import SubscriptionConfig
from pyddmq.actions import Action
from upstream.calls.user_code import described
from upstream.delivery.subscription import Subscription

TOPICS_AT_ONCE = 16
"""Topics that a start begins to read in one step, in a few milliseconds."""
_DRAIN_CHECK_SECONDS = 0.05
_START_AGAIN_SECONDS = 5.0
_OWNED_LOOK_SECONDS = 1.0
"""How often queues are tried again that a consumer inside the program has (D36)."""


class TopicPlace:
    """A topic of the group.

    Attributes:
        config: The configuration wanted; None when the topic is to end.
        actions: The pipeline of the next generation; empty: it is made when that starts.
        problem: Why the last attempt to start a generation failed, "" when it did not.
        owner: The consumer that has the topic's queues for this group instead (D36), or None.
        subscription: The generation that runs.
        replace_at: Monotonic seconds when it is replaced even if it has not drained; None while it stays.
        again: The next attempt to start it; None while none is due.
    """

    __slots__ = ("actions", "again", "config", "owner", "problem", "replace_at", "subscription")

    def __init__(self, config: SubscriptionConfig | None, actions: Sequence[Action]) -> None:
        self.config = config
        self.again: ScheduledCall | None = None
        self.actions = actions
        self.owner: str | None = None
        self.problem = ""
        self.subscription: Subscription | None = None
        self.replace_at: float | None = None


class Generations:
    """The generations of one group.

    Attributes:
        slots: By topic.
        drain_seconds: How long a replaced generation may take to drain.
    """

    def __init__(
        self,
        group: str,
        slots: dict[str, TopicPlace],
        *,
        make: Callable[[SubscriptionConfig, TopicPlace], Subscription],
        runtime: Runtime,
        drain_seconds: float,
        ended: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        """Set up; nothing is read before `start`.

        Args:
            group: Name of the group.
            slots: Its topics; changed here from now on.
            make: Makes the next generation of a slot, ready to be started; raises when it cannot be made.
            runtime: Monotonic time; its scheduler looks after drains, and starts again what did not start, which its
                log says.
            drain_seconds: As the attribute.
            ended: Told the topic that is consumed no more; None: all of them.
        """
        self.slots = slots
        self.drain_seconds = drain_seconds
        self._group = group
        self._make = make
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._limited_log = runtime.limited_log
        self._ended = ended
        self._started = False
        self._draining = False
        self._check = Later(runtime.scheduler, self._check_replacements)

    def starting(self) -> Generator[None, None, None]:
        """Start a generation of every topic, in steps of TOPICS_AT_ONCE, of fewer where they have many queues."""
        self._started = True
        begun = 0
        for name, slot in list(self.slots.items()):
            if self.slots.get(name) is slot:
                self.start_slot(slot)
            queues = 0 if slot.subscription is None else len(slot.subscription.group_queues)
            begun += max(1, queues // 8)
            if begun >= TOPICS_AT_ONCE:
                begun = 0
                yield

    def begin_drain(self) -> None:
        """Read and hand out nothing more; answers to what is out still count."""
        self._draining = True
        for subscription in self.running():
            subscription.begin_drain()

    @property
    def drained(self) -> bool:
        """Whether nothing is out and every dead letter is durable."""
        return all(subscription.drained for subscription in self.running())

    def stop(self) -> None:
        """End all generations at once."""
        self._draining = True
        self._started = False
        self._check.cancel()
        for slot in self.slots.values():
            _forget_attempt(slot)
            if slot.subscription is not None:
                slot.subscription.stop()
                slot.subscription = None
        self._ended(None)

    def running(self) -> list[Subscription]:
        """Return the generations that run, draining ones included."""
        return [slot.subscription for slot in self.slots.values() if slot.subscription is not None]

    def state_of(self, slot: TopicPlace) -> str:
        """One of "starting", "waiting" (for queues of another owner), "running", "draining", "stopped"."""
        if slot.subscription is None:
            if slot.owner is not None and slot.config is not None:
                return "waiting"
            return "starting" if slot.config is not None and self._started else "stopped"
        if slot.subscription.draining:
            return "draining"
        return "starting" if slot.subscription.opening else "running"

    def reconfiguring(
        self, wanted: Mapping[str, SubscriptionConfig], made: Mapping[str, Sequence[Action]], *, waiting_max: int
    ) -> Generator[None, None, None]:
        """Take changed topics in steps: limits live, the rest as new generations, removed topics end (D22, W24).

        Args:
            wanted: Configuration by topic.
            made: Actions of the topics that need a new generation.
            waiting_max: Jobs of one subscription that may wait behind their keys (D15).
        """
        for number, name in enumerate([name for name in self.slots if name not in wanted], start=1):
            if (slot := self.slots.get(name)) is not None:
                self.replace(slot, None, ())
            if number % TOPICS_AT_ONCE == 0:
                yield
        for number, (name, each) in enumerate(wanted.items(), start=1):
            if number % TOPICS_AT_ONCE == 0:
                yield
            slot = self.slots.get(name)
            if slot is None:
                slot = self.slots[name] = TopicPlace(each, made[name])
                if self._started and not self._draining:
                    self.start_slot(slot)
            elif name in made:
                self.replace(slot, each, made[name])
            else:
                slot.config = each
                if slot.subscription is not None and slot.replace_at is None:
                    slot.subscription.configure(each, waiting_max)

    def start_slot(self, slot: TopicPlace) -> None:
        """Start a slot's generation where none runs; one that is to end, ends.

        There is one attempt at a time: what was to be tried later is tried now instead.
        """
        _forget_attempt(slot)
        config = slot.config
        if slot.subscription is not None or self._draining:
            return
        if config is None:
            self._end(slot)
            return
        try:
            slot.subscription = self._make(config, slot)
            # What it hands out now may come back before this returns.
            slot.subscription.start()
        except QueuesOwned as owned:
            slot.subscription = None
            slot.problem = ""
            slot.owner = owned.owner
            self._limited_log.note(
                "subscription_waits_for_queues", self._group, topic=config.topic, owner=owned.owner, why=str(owned)
            )
            slot.again = self._scheduler.call_later(_OWNED_LOOK_SECONDS, self.start_slot, slot)
            return
        except Exception as error:
            self.start_failed(slot, error)
            return
        slot.owner = None
        if not slot.subscription.opening:
            slot.problem = ""

    def start_failed(self, slot: TopicPlace, error: Exception) -> None:
        """Note why a slot's generation did not start, and try again later."""
        slot.subscription = slot.replace_at = None
        slot.problem = described(error)
        if self._draining or slot.config is None:
            self.start_slot(slot)
            return
        self._limited_log.note(
            "subscription_start_failed",
            self._group,
            topic=slot.config.topic,
            error=described(error),
            again_seconds=_START_AGAIN_SECONDS,
        )
        slot.again = self._scheduler.call_later(_START_AGAIN_SECONDS, self.start_slot, slot)

    def _end(self, slot: TopicPlace) -> None:
        """Forget a topic, and give up its queues: it was taken out, and nothing of it runs."""
        for name in [name for name, each in self.slots.items() if each is slot]:
            del self.slots[name]
            self._ended(name)

    def renew(self, slot: TopicPlace, config: SubscriptionConfig, actions: Sequence[Action]) -> None:
        """Replace a slot's draining generation now; what is out, and the keys that wait for it, go to the next."""
        slot.replace_at = self._clock.monotonic()
        self.replace(slot, config, actions)

    def replace(self, slot: TopicPlace, config: SubscriptionConfig | None, actions: Sequence[Action]) -> None:
        """End a slot's generation, gently, and start another (or none) in its place."""
        slot.config = config
        slot.actions = actions
        if slot.subscription is None:
            self.start_slot(slot)
            return
        slot.subscription.begin_drain()
        if slot.replace_at is None:
            slot.replace_at = self._clock.monotonic() + self.drain_seconds
        self._check_replacements()

    def end_drained(self) -> None:
        """End now, not at the next look, what was replaced and has drained."""
        if self._check.is_due:
            self._check_replacements()

    def _check_replacements(self) -> None:
        self._check.cancel()
        now = self._clock.monotonic()
        open_ones = False
        for slot in list(self.slots.values()):
            subscription = slot.subscription
            if slot.replace_at is None or subscription is None:
                continue
            if not subscription.drained and now < slot.replace_at:
                open_ones = True
                continue
            subscription.stop()
            slot.subscription = slot.replace_at = None
            self.start_slot(slot)
        if open_ones:
            self._check.unless_due(_DRAIN_CHECK_SECONDS)


def _forget_attempt(slot: TopicPlace) -> None:
    if slot.again is not None:
        slot.again.cancel()
        slot.again = None


def same_generation(old: SubscriptionConfig | None, new: SubscriptionConfig) -> bool:
    """Whether a change needs no new generation (D22)."""
    return old is not None and all(
        getattr(old, name) == getattr(new, name)
        for name in ("actions", "options", "order_key", "tags", "pressure_traffic", "retry_topic")
    )
