"""Pulls that wait for messages until their linger ends, the client goes, or a batch comes (R48)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.runtime.seams import Clock, Scheduler
from proxy.limits.meter import Meter
from proxy.limits.quota import unpark
from proxy.port.reply_slot import ReplySlot
from proxy.wire.replies import encode_empty_pull_reply
from proxy.wire.values import PullRequest
from upstream.delivery.group import ConsumerGroup, Parked, PulledBatch

LINGER_MS_MIN = 20
"""R48: the shortest wait of a pull, or a fetch, that finds nothing."""
_EARLY_SECONDS = 5e-4
"""Loops round their timers to milliseconds; what ends within this ends now, so that a call never spins for the rest."""


class WaitingPull:
    """A pull that waits: for its turn on its connection, then for messages; it is answered once."""

    __slots__ = ("_counted", "_group", "_lingers", "_parked", "_request", "_slot", "deadline", "linger_ms")

    def __init__(self, slot: ReplySlot, request: PullRequest, group: ConsumerGroup, lingers: Lingers) -> None:
        """Set up; `request` has no results any more, which are as large as the client likes."""
        # Nor does it keep its frame.
        slot.wait()
        self._slot = slot
        self._request = request
        self._group = group
        self._lingers = lingers
        self._parked: Parked | None = None
        self._counted: Sequence[Meter] = ()
        self.linger_ms = 0
        self.deadline = 0.0
        """Monotonic seconds at which its linger ends."""

    @property
    def waits(self) -> bool:
        """Whether it waits for messages."""
        return self._parked is not None

    def wait_turn(self) -> None:
        """Wait until those before it on its connection are answered (D18)."""
        self._slot.start, self._slot.withdraw = self._start, self.withdraw

    def _start(self) -> None:
        slot = self._slot
        try:
            self._lingers.start(slot, self._request, self._group)
        except Exception as error:
            # Who calls answers for others: a fault costs its own call alone.
            slot.connection.fail(slot, error)

    def park(self, linger_ms: int) -> None:
        """Wait up to `linger_ms` for messages. Raises ParkedFull; nothing has changed then."""
        connection = self._slot.connection
        self._parked = self._group.park(self._request.topic, self._request.count_max, connection, self.wake)
        self._slot.withdraw = self.withdraw
        quota = connection.quota
        if quota is not None:
            self._counted = quota.park(self._group.name)
        self.linger_ms = linger_ms
        self._lingers.add(self)

    def wake(self, batch: PulledBatch) -> None:
        """Answer with what came."""
        slot = self._slot
        slot.withdraw = self._parked = None
        if self._counted:
            unpark(self._counted, self._group.name)
        lingers = self._lingers
        lingers.remove(self)
        try:
            lingers.send(slot, self._group, batch)
        except Exception as error:
            slot.connection.fail(slot, error)

    def withdraw(self) -> None:
        """Wait no longer: answer empty, where there is still a client to answer."""
        parked, slot = self._parked, self._slot
        slot.withdraw = self._parked = None
        if parked is not None:
            if self._counted:
                unpark(self._counted, self._group.name)
            self._lingers.remove(self)
            self._group.unpark(parked)
        if not slot.connection.closed:
            slot.answer(encode_empty_pull_reply(slot.call))


class Lingers:
    """The waiting pulls by the length of their linger: one scheduled call for all of a length, not one for each.

    Those of one length end in the order in which they began. A call that finds its pulls answered meanwhile is made
    again for the first that waits then, so a client that is answered every millisecond costs a call per linger.

    Attributes:
        start: Serves a pull whose turn has come.
        send: Assembles a batch's reply, and answers with it.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        scheduler: Scheduler,
        start: Callable[[ReplySlot, PullRequest, ConsumerGroup], None],
        send: Callable[[ReplySlot, ConsumerGroup, PulledBatch], None],
    ) -> None:
        self.start = start
        self.send = send
        self._clock = clock
        self._scheduler = scheduler
        self._waiting: dict[int, dict[WaitingPull, None]] = {}

    def add(self, pull: WaitingPull) -> None:
        """Have a pull's wait end when its linger has passed."""
        linger_ms = pull.linger_ms
        pull.deadline = self._clock.monotonic() + linger_ms / 1000
        waiting = self._waiting.get(linger_ms)
        if waiting is None:
            waiting = self._waiting[linger_ms] = {}
            self._scheduler.call_later(linger_ms / 1000, self._look, linger_ms)
        waiting[pull] = None

    def remove(self, pull: WaitingPull) -> None:
        """Forget a pull; harmless twice."""
        waiting = self._waiting.get(pull.linger_ms)
        if waiting is not None:
            waiting.pop(pull, None)

    def _look(self, linger_ms: int) -> None:
        """End the waits whose time has come, and come again for the next one."""
        waiting = self._waiting[linger_ms]
        now = self._clock.monotonic()
        ended = []
        for pull in waiting:
            if pull.deadline > now + _EARLY_SECONDS:
                self._scheduler.call_later(pull.deadline - now, self._look, linger_ms)
                break
            ended.append(pull)
        else:
            # What begins to wait from here on gets a call of its own.
            del self._waiting[linger_ms]
        for pull in ended:
            # One that ended may have led to an answer for another.
            if pull.waits:
                pull.withdraw()
