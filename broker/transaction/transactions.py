"""Transactions of one store: half messages, their decisions, and the checks that ask for one.

Guarantees:

- A half is invisible until its commit is durable. A decision is final and idempotent: a second one stores nothing.
- The log decides (D27): a record that names a half as replaced, or the op record of a rollback. After any stop, with or
  without the files that only save reading it, what was decided is decided, and everything else is undecided and will be
  checked.
- A half that cannot be read, or whose producers are gone, delays no other. None ends by itself but after its checks or
  its age in uptime, and then it is in the discard topic.
- A check writes nothing to the log. What is undecided costs two bits of memory, and 8 bytes once its check is due.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import chain
from typing import Any, Unpack

from broker.errors import MessageRefused
from broker.format.properties import PROPERTIES_BYTES_MAX, find_property
from broker.log.put import OWNER_NAME, LogPosition, Put
from broker.log.shared_walk import Reading, alone
from broker.queues.offsets import ConsumerOffsets
from broker.runtime.bundle import Runtime, runtime_of
from broker.runtime.file_writes import AT_ONCE, TURN, FileWrite, StateWriter, Steps, can_wait
from broker.runtime.later import Repeated
from broker.runtime.step_size import StepSize
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.release import check_waits, closed, without
from broker.scheduled.timer.puts import TimedPuts
from broker.store import Store
from broker.store_seams import StoreSeams
from broker.transaction import metrics as counted
from broker.transaction.checker import HalfCheck, TransactionChecker, handle_of
from broker.transaction.ending import Reported, TransactionEnder
from broker.transaction.half import PRIVATE
from broker.transaction.halves import Halves
from broker.transaction.listing import Page, discarded, finding, pending
from broker.transaction.names import DELAY_MS, DELIVER_AT, HALF_TOPIC, LEVEL, OP_TOPIC, Fate, State
from broker.transaction.ops import OpWriter
from broker.transaction.outcomes import End, EndOutcome
from broker.transaction.replay import TransactionReplay
from broker.transaction.settings import CheckSettings
from broker.transaction.state import TransactionFiles
from broker.views import TransactionView

# A message on its way into the half topic: RocketMQ's form of a half (TransactionalMessageBridge).


GROUP_BYTES_MAX = 255
_ROOM_BYTES = 512
"""Left in the property block for what a put-back, a discard or a commit with a delay adds."""
_FACTS = b"TRAN_MSG\x01true\x02PGROUP\x01%b\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02__transactionId__\x01%b\x02"


def half_put(
    halves: Halves,
    put: Put,
    *,
    group: str,
    delay_level: int,
    deliver_at_ms: int,
    delay_ms: int,
    immunity_seconds: int | None,
    owner: str | None,
) -> Put:
    """Return what to append so that a message waits for its producer's decision; see `Transactions.half`."""
    store, now_ms = halves.store, halves.clock.wall_ms()
    check_waits(put, body_bytes_max=store.options.message_bytes_max, which="half")
    name = group.encode("utf-8", "surrogatepass")
    if not name or len(name) > GROUP_BYTES_MAX or b"\x01" in name or b"\x02" in name:
        raise MessageRefused(
            f"the producer group {group[:80]!r} is not a valid name: 1 to {GROUP_BYTES_MAX} bytes, "
            "without 0x01 and 0x02"
        )
    if put.reconsume_times > 0 and delay_level > 0:
        # A retry of a message that came out of a transaction is an ordinary one (RocketMQ's SendMessageProcessor).
        return store.waiting(DelayedPuts).put(put, delay_level)
    _check_delay(store, delay_level, deliver_at_ms, delay_ms, now_ms)
    block = put.properties
    immunity = find_property(block, b"CHECK_IMMUNITY_TIME_IN_SECONDS")
    key = put.unique_key or store.unique_keys.take(1, now_ms)[0]
    block = closed(without(block, PRIVATE))
    own = _FACTS % (name, put.topic.name_bytes, put.queue_id, key)
    if not put.unique_key:
        own += b"UNIQ_KEY\x01%b\x02" % key
    if immunity_seconds is not None:
        immunity = b"%d" % immunity_seconds
    if immunity:
        own += b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01%b\x02" % immunity
    for kind, value in ((LEVEL, delay_level), (DELIVER_AT, deliver_at_ms), (DELAY_MS, delay_ms)):
        if value:
            own += b"%b\x01%d\x02" % (kind, value)
    if owner is not None:
        own += b"%b\x01%b\x02" % (OWNER_NAME, owner.encode())
    room = PROPERTIES_BYTES_MAX - _ROOM_BYTES
    if len(block) + len(own) > room:
        raise MessageRefused(
            f"key, tags and properties of a message in a transaction have {len(block) + len(own)} bytes; "
            f"the limit is {room}"
        )
    return put._replace(topic=halves.topic(HALF_TOPIC), queue_id=0, properties=block + own, unique_key=key)


def _check_delay(store: Store, level: int, deliver_at_ms: int, delay_ms: int, now_ms: int) -> None:
    """Refuse now what the commit would be refused for. Raises MessageRefused."""
    if level < 0 or deliver_at_ms < 0 or delay_ms < 0:
        raise MessageRefused("a delay level, time or delay is negative; use 0 for none")
    if not level:
        limit = store.waiting(TimedPuts).options.delay_ms_max
        wait = delay_ms or deliver_at_ms - now_ms
        if (delay_ms or deliver_at_ms) and wait > limit:
            raise MessageRefused(
                f"the message of the transaction is due in {wait / 86400000:,.1f} days; the limit is "
                f"{limit / 86400000:,.1f} (timerMaxDelaySec)"
            )


SAVE_SECONDS = 5.0
UPTIME_SAVE_SECONDS = 60.0

__all__ = ["End", "EndOutcome", "HalfCheck", "Page", "State", "Transactions"]


class Transactions:
    """The transactions of one store.

    Attributes:
        halves: What is known of each half.
        resumed: Offsets in the discard queue that lie there no more.
    """

    def __init__(
        self, store: Store, runtime: Runtime, *, offsets: ConsumerOffsets, settings: CheckSettings | None = None
    ) -> None:
        """Set up; `opening` does the work.

        Args:
            store: An open store. Without an event loop that flushes it, appends are flushed here.
            runtime: Its disk has the files, and its scheduler runs the steps.
            offsets: The table of committed offsets; a program has one (a node's is `Progress.offsets`).
            settings: When half messages are checked and discarded.
        """
        self.store = store
        scheduler = runtime.scheduler
        self._clock = runtime.clock
        self._scheduler = scheduler
        self._metrics = runtime.metrics
        self.halves = Halves(store, runtime)
        self._ops = OpWriter(store, runtime, topic=lambda: self.halves.topic(OP_TOPIC))
        self._checker = TransactionChecker(self.halves, self._ops, runtime, settings=settings or CheckSettings())
        self._on_committed: list[Callable[[str, int], None]] = []
        self._ending = TransactionEnder(self.halves, self._ops, scheduler=scheduler, committed=self._report_commit)
        self._files = TransactionFiles(store.root, runtime, offsets=offsets)
        self.resumed = self.halves.resumed
        self._attached = False
        self._running = False
        self._state_writer = StateWriter(runtime.disk, store.file_writes, self._writing)
        self._saves = Repeated(scheduler, SAVE_SECONDS, self._state_writer.begin)
        self._uptime_saved = 0.0

    # Opening and closing

    @classmethod
    def opening(
        cls,
        store: Store,
        *,
        offsets: ConsumerOffsets,
        settings: CheckSettings | None = None,
        **seams: Unpack[StoreSeams],
    ) -> Generator[None, None, Transactions]:
        """Find out what is undecided, in steps of bounded work; returns the transactions, which `start` sets going.

        Raises:
            OSError: A file cannot be read.
        """
        return alone(store, cls.reading(store, offsets=offsets, settings=settings, **seams))

    @classmethod
    def reading(
        cls,
        store: Store,
        *,
        offsets: ConsumerOffsets,
        settings: CheckSettings | None = None,
        **seams: Unpack[StoreSeams],
    ) -> Reading[Transactions]:
        """`opening`, for `broker.log.shared_walk.together`."""
        return cls.reading_of(store, runtime_of(**seams), offsets=offsets, settings=settings)

    @classmethod
    def reading_of(
        cls, store: Store, runtime: Runtime, *, offsets: ConsumerOffsets, settings: CheckSettings | None = None
    ) -> Reading[Transactions]:
        """`reading`, of a program that has a bundle of all this."""
        transactions = cls(store, runtime, offsets=offsets, settings=settings)
        replay = TransactionReplay(transactions.halves, transactions._ops, transactions._files)
        yield from replay.steps()
        transactions._checker.times = replay.times
        transactions._attach()
        return transactions

    def _attach(self) -> None:
        """Hear of new halves, once there is a topic for them."""
        topic = self.store.topics.get(HALF_TOPIC)
        if topic is not None and not self._attached:
            self._attached = True
            topic.listeners.append(self._checker.arrived)
            if self._running:
                self._saves.begin()

    def start(self) -> None:
        """Make checks, and write op records that a kill prevented."""
        self._running = True
        self._ops.write_owed()
        self._checker.start()
        if self._attached:
            self._saves.begin()

    def stop(self) -> None:
        """Do nothing any more by itself."""
        self._running = False
        self._checker.stop()
        self._ops.stop()
        self._saves.end()

    def close(self) -> None:
        """Stop, write every op record, and save how far all is; call it before the store is closed."""
        self.stop()
        if self.store.failed is None and not self.store.closed:
            # Commits in the first flush may leave op records to write.
            self._ops.write()
            self.store.flush()
            self._ops.write()
            self.store.flush()
        self.save(force=True)

    def save(self, *, force: bool = False) -> None:
        """Write how far all is; a full disk postpones that, another failure stops the store's write side."""
        self._state_writer.now(self._writing(force=force))

    def _writing(self, *, force: bool = False) -> FileWrite:
        store = self.store
        self.measure()
        if not self._attached or store.failed is not None or store.closed:
            return
        try:
            times = yield from self._times()
            # Under `async` what was decided is not on the disk yet, and the files must not be ahead of the log.
            store.make_durable()
            states = self.halves.states
            running = self.halves.running()
            force = force or (states.undecided > 0 and running - self._uptime_saved >= UPTIME_SAVE_SECONDS)
            yield from self._files.writing(
                self._content(running, times),
                half_offset=states.position,
                op_offset=self._ops.places.first(states.position),
                log_end=store.end,
                force=force,
            )
            if force:
                self._uptime_saved = running
        except OSError as error:
            if not can_wait(error):
                store.writes.fail("writing how far transactions are", error)

    def _times(self) -> Steps[list[list[int]]]:
        """Return how often each undecided half was checked that was; some at a time, since there may be many."""
        found: list[list[int]] = []
        counts = chain(list(self._checker.times.items()), self.halves.checks.counts())
        for number, (offset, count) in enumerate(counts, start=1):
            if number % AT_ONCE == 0:
                yield TURN
            if count and self.halves.states.is_undecided(offset):
                found.append([offset, count])
        return found

    def _content(self, running: float, times: list[list[int]]) -> dict[str, Any]:
        halves = self.halves
        return {
            "halves": halves.states.saved(),
            "ops": self._ops.places.next,
            "owed": [[offset, fate.value] for offset, fate in self._ops.owed.items()],
            "times": times,
            "uptime": halves.ages.uptime(running),
            "marks": halves.ages.saved(),
            "resumed": halves.resumed.ranges,
        }

    def measure(self) -> None:
        """Bring the gauges up to date."""
        halves, metrics = self.halves, self._metrics
        by_topic: dict[str, int] = {}
        for (topic, _), count in halves.pending.items():
            by_topic[topic] = by_topic.get(topic, 0) + count
        for _, labels, _ in metrics.some((counted.PENDING,)):
            if labels[0] not in by_topic:
                metrics.counter(counted.PENDING, *labels).value = 0
        for topic, count in by_topic.items():
            metrics.counter(counted.PENDING, topic).value = count
        metrics.counter(counted.UNDECIDED).value = halves.states.undecided
        oldest = self.oldest_ms()
        age = 0 if oldest is None else max(0, self._clock.wall_ms() - oldest) // 1000
        metrics.counter(counted.OLDEST_SECONDS).value = age

    # Halves

    def half(
        self,
        put: Put,
        *,
        group: str,
        delay_level: int = 0,
        deliver_at_ms: int = 0,
        delay_ms: int = 0,
        immunity_seconds: int | None = None,
        owner: str | None = None,
    ) -> Put:
        """Return what to append in place of a message, so that it waits for its producer's decision.

        The position of the append makes the handle: `handle_of`. The position's unique key is the transaction's id.

        Args:
            put: The message as it would be appended without a transaction, and without a delay.
            group: Producer group: its members may decide, and are checked.
            delay_level: Level that the commit starts (D32); it wins over the other two, a moment over a delay.
            deliver_at_ms: Moment of delivery, ms since the epoch; a commit after it delivers at once.
            delay_ms: Delay from the commit on.
            immunity_seconds: How long no check is made; None: `timeout_ms` of the settings.
            owner: The principal that owns it; None without authentication.

        Raises:
            MessageRefused: It can never be stored, or never be committed.
            DiskFull, StoreFailed: The half topic is not there yet and cannot be made.
        """
        made = half_put(
            self.halves,
            put,
            group=group,
            delay_level=delay_level,
            deliver_at_ms=deliver_at_ms,
            delay_ms=delay_ms,
            immunity_seconds=immunity_seconds,
            owner=owner,
        )
        if not self._attached:
            self._attach()
        return made

    @staticmethod
    def handle_of(position: LogPosition) -> str:
        """Return the handle of a half that was put at a position."""
        return handle_of(position)

    def end(
        self,
        handle: str,
        *,
        group: str,
        state: State,
        done: Callable[[EndOutcome], None],
        transaction_id: str | None = None,
        from_check: bool = False,
        remark: str = "",
        owner: str | None = None,
    ) -> None:
        """Decide a transaction.

        Args:
            handle: As `handle_of` or a check gave it.
            group: Producer group of who decides.
            state: COMMIT and ROLLBACK are final; UNKNOWN leaves it to the next check.
            done: Called once the answer is durable; immediately if nothing is stored.
            transaction_id: Compared with the handle's, where given.
            from_check: The answer to a check.
            remark: Why it is not known yet, for people.
            owner: The principal that decides; transactions of others are unknown to it. None means any principal.
        """
        self._ending.end(
            handle,
            group=group,
            transaction_id=transaction_id,
            state=state,
            from_check=from_check,
            remark=remark,
            done=done,
            owner=owner,
        )

    def on_committed(self, callback: Callable[[str, int], None]) -> None:
        """Call `callback` for every durable commit with the topic, and the bytes of the body."""
        self._on_committed.append(callback)

    def _report_commit(self, topic: str, body_bytes: int) -> None:
        for callback in self._on_committed:
            callback(topic, body_bytes)

    # Checks

    @property
    def step_size(self) -> StepSize:
        """How many halves a step of the checks looks at."""
        return self._checker.step_size

    @property
    def settings(self) -> CheckSettings:
        """When half messages are checked and discarded; may be replaced."""
        return self._checker.settings

    @settings.setter
    def settings(self, settings: CheckSettings) -> None:
        self._checker.configure(settings)

    def fetch_checks(self, group: str, count_max: int, *, owner: str | None = None) -> list[HalfCheck]:
        """Return due checks of a producer group, in the order in which they became due.

        No other client receives them within the interval of the settings, which is the time for the group to answer
        with `end`, `from_check`. Each counts as a check.
        """
        return self._checker.fetch(group, count_max, owner)

    def give_back(self, check: HalfCheck) -> None:
        """Take back a check that never reached a producer: it does not count and is due at once."""
        self._checker.give_back(check)

    def on_checks(self, group: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` called whenever checks of a group became due, until the returned function is called."""
        return self._checker.on_checks(group, callback)

    # For the retention hold

    def is_busy(self, offset: int) -> bool:
        """Whether a half is being decided or discarded right now."""
        return self.halves.is_busy(offset)

    def times_of(self, offset: int) -> int:
        """Checks of a half that are counted here, not in its record."""
        asked = self.halves.checks.asked.get(offset)
        return asked.times if asked is not None else self._checker.times.get(offset, 0)

    def name_in_op(self, offset: int, fate: Fate) -> None:
        """Have the next op record name a half whose place another record has taken."""
        self._ops.add(offset, fate)

    def write_ops(self) -> None:
        """Append what is to be named now; the caller flushes."""
        self._ops.write()

    # Admin

    def pending(
        self, *, topic: str | None = None, group: str | None = None, cursor: int = 0, count_max: int = 100
    ) -> Generator[None, None, Page]:
        """Find undecided halves from an offset of the half queue on, the oldest first, in steps of bounded work."""
        return pending(self.halves, topic=topic, group=group, cursor=cursor, count_max=count_max)

    def discarded(
        self, *, topic: str | None = None, group: str | None = None, cursor: int = 0, count_max: int = 100
    ) -> Generator[None, None, Page]:
        """Find discarded halves that were not resumed, from an offset of the discard queue on, in steps."""
        return discarded(self.halves, topic=topic, group=group, cursor=cursor, count_max=count_max)

    def finding(self, text: str) -> Generator[None, None, list[TransactionView]]:
        """Find the halves of a transaction by its id or a handle, in steps; the newest first. Raises OSError."""
        return finding(self.halves, text)

    def decide(self, handle: str, state: State, done: Reported) -> None:
        """Decide an undecided transaction in its producers' place; resume discarded ones first."""
        self._ending.end(handle, group=None, state=state, from_check=True, done=done)

    def resume(self, offset: int, done: Reported) -> None:
        """Make the half at an offset of the discard queue undecided again, with no checks counted.

        Args:
            offset: As in `broker.transaction.listing.discarded`.
            done: OK once that is durable; UNKNOWN_HANDLE where no discarded half is.
        """
        self._ending.resume(offset, done)
        self._attach()

    def oldest_ms(self) -> int | None:
        """When the oldest undecided half message was stored, ms since the epoch; None without one."""
        states = self.halves.states
        if not states.undecided:
            return None
        half = self.halves.read_or_lose(states.position)
        return None if half is None else half.store_ms
