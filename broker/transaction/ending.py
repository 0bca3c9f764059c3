"""The end of a transaction: commit, rollback, or not known yet.

A decision is final and idempotent. A commit stores the message, then names the half in an op record of the same write;
a rollback is the op record alone. Who decides is answered when the commit's record, or the op record, is durable. What
was decided before is known from the halves' states, else from the op records behind the half.

Two decisions of one half may be under way at once: the producer's own and a check's answer, or an operator's. The
first that comes here counts; it is in `halves.deciding` until its record is durable, and the others wait there to
be answered by what it was: ALREADY_SAME or ALREADY_OTHER. When the write fails all of them receive the error, and the
half is undecided as before.

A half may have several offsets in its life: each check, and each resumption of a discarded one, puts it again at the
tail, and its handle names the first. `halves.moved` has the present one by transaction id. A decision that meets a
copy on its way to the disk is made again when that is there, since only one of the two records may be named by the
op.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import NamedTuple

from broker.errors import DamagedRecord, DiskFull, MessageRefused, RecordGone, StoreError
from broker.format.record import split
from broker.log.put import OWNER_NAME, Put, is_foreign
from broker.query import NotFound, by_unique_key
from broker.queues.consume_queue import FILLER_SIZE
from broker.queues.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_system
from broker.runtime.seams import Scheduler
from broker.runtime.steps import StepRunner
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.timer.puts import TimedPuts
from broker.transaction import metrics as counted
from broker.transaction.half import Half, commit_of, resumed_of
from broker.transaction.halves import Halves
from broker.transaction.names import (
    DISCARD_TOPIC,
    FATES,
    HALF_TOPIC,
    STATES,
    Fate,
    State,
    TransactionHandle,
    parse_handle,
)
from broker.transaction.ops import OpWriter, members_of
from broker.transaction.outcomes import End, EndOutcome
from broker.transaction.states import HalfState

LATE_SECONDS_MIN = 6.0
STEP_UNITS = 256
Reported = Callable[[EndOutcome], None]
Again = Callable[[], None]

_DECIDED = {HalfState.COMMITTED: State.COMMIT, HalfState.ROLLED_BACK: State.ROLLBACK}


class TransactionEnder:
    """Takes decisions for one store.

    Args:
        halves: Of the store.
        ops: Names what is decided.
        scheduler: Runs searches.
        committed: Told of every commit that is durable: the topic, and the bytes of the body.
    """

    def __init__(
        self,
        halves: Halves,
        ops: OpWriter,
        *,
        scheduler: Scheduler,
        committed: Callable[[str, int], None],
    ) -> None:
        self._halves = halves
        self._ops = ops
        self._scheduler = scheduler
        self._searches = StepRunner(scheduler.call_soon)
        self._resuming: set[int] = set()
        self._committed_reported = committed

    def end(
        self,
        text: str,
        *,
        group: str | None,
        state: State,
        done: Reported,
        transaction_id: str | None = None,
        from_check: bool = False,
        remark: str = "",
        owner: str | None = None,
    ) -> None:
        """Decide a transaction, as `Transactions.end`; `group` None is an operator's decision."""
        again = partial(
            self.end,
            text,
            group=group,
            transaction_id=transaction_id,
            state=state,
            from_check=from_check,
            remark=remark,
            done=done,
            owner=owner,
        )
        who = _Who(group, owner)
        done = partial(self._count, done)
        decision = _Decision(who, state, done, again)
        handle = parse_handle(text)
        if handle is None:
            done(EndOutcome(End.UNKNOWN_HANDLE, f"{text[:80]!r} is not a valid transaction handle"))
            return
        if transaction_id is not None and transaction_id != handle.transaction_id:
            done(EndOutcome(End.UNKNOWN_HANDLE, "handle and transactionId are of different transactions"))
            return
        half = self._half_at(handle)
        moved = self._halves.moved.get(handle.transaction_id)
        if moved is not None and (
            half is None or self._halves.states.get(handle.offset) in (None, HalfState.ELSEWHERE)
        ):
            handle = handle._replace(offset=moved)
            half = self._halves.read_or_lose(moved)
        if handle.offset in self._halves.moving:
            # Its copy is on its way to the disk, and is visible in the turn after its callback.
            self._halves.moving[handle.offset].append(partial(self._scheduler.call_soon, again))
        elif half is None:
            self._answer_in_steps(self._elsewhere(handle, decision), done)
        elif who.must_not_know(half.group, half.owner):
            done(EndOutcome(End.UNKNOWN_HANDLE, _UNKNOWN))
        elif group is not None and group != half.group:
            done(
                EndOutcome(
                    End.WRONG_GROUP, f"the transaction belongs to the producer group {half.group!r}, not {group!r}"
                )
            )
        elif self._halves.states.is_undecided(handle.offset):
            self._decide(
                handle.offset, half, state, late=group is not None and not from_check, remark=remark, done=done
            )
        else:
            self._answer_decided(handle, half, decision)

    def _count(self, done: Reported, outcome: EndOutcome) -> None:
        if not outcome.resolved:
            self._halves.metrics.counter(counted.REFUSED, outcome.end.value).add()
            end = outcome.end.value
            self._halves.limited_log.note("transaction_end_refused", kind=end, end=end, reason=outcome.text)
        done(outcome)

    def _half_at(self, handle: TransactionHandle) -> Half | None:
        try:
            half = self._halves.read(handle.offset)
        except (DamagedRecord, RecordGone):
            return None
        return half if (half.physical, half.transaction_id) == handle[1:] else None

    # Undecided

    def _decide(self, offset: int, half: Half, state: State, *, late: bool, remark: str, done: Reported) -> None:
        halves = self._halves
        if offset in halves.discarding:
            done(EndOutcome(End.DISCARDED, _DISCARDED))
            return
        if offset in self._halves.deciding:
            self._join(offset, state, done)
            return
        if state is State.UNKNOWN:
            halves.checks.remark(offset, remark)
            done(EndOutcome(End.OK))
            return
        if late and half.immune:
            seconds = max(LATE_SECONDS_MIN, 0 if half.immunity_ms is None else half.immunity_ms / 1000)
            if halves.clock.wall_ms() - half.store_ms > seconds * 1000:
                text = f"the transaction is older than the {seconds:g} s that it requested"
                done(EndOutcome(End.TOO_LATE, f"{text}: only the answer to a check decides it now"))
                return
        if state is State.COMMIT:
            self._commit(offset, half, done)
        else:
            self._halves.deciding[offset] = (state, [])
            self._ops.add(offset, Fate.ROLLED_BACK, partial(self._decided, offset, half, state, done))

    def _join(self, offset: int, state: State, done: Reported) -> None:
        """Answer a half that was decided in the same turn, once that is durable."""
        first, waiters = self._halves.deciding[offset]

        def reported(error: StoreError | None) -> None:
            done(_already(state, first) if error is None else _failed(error))

        waiters.append(reported)

    def _commit(self, offset: int, half: Half, done: Reported) -> None:
        store = self._halves.store
        try:
            put, born_ms, born_host = self._committed(half)
            self._ops.expect()
            self._halves.deciding[offset] = (State.COMMIT, [])
            store.append(
                [put],
                born_ms=born_ms,
                born_host=born_host,
                done=partial(self._decided, offset, half, State.COMMIT, done),
            )
        except StoreError as error:
            self._halves.deciding.pop(offset, None)
            done(_failed(error))
            return
        self._ops.add(offset, FATES[State.COMMIT])

    def _committed(self, half: Half) -> tuple[Put, int, bytes]:
        """Make what a commit appends: the message, or what waits for its time. Raises StoreError."""
        store = self._halves.store
        topic = store.topics.get(half.topic)
        if topic is None:
            raise MessageRefused(f"topic {half.topic!r} does not exist; create it, the transaction stays undecided")
        if is_system(half.topic) and not half.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            raise MessageRefused(f"{half.topic} is an internal topic of the broker; it accepts no messages")
        if not 0 <= half.queue_id < len(topic.queues):
            raise MessageRefused(f"topic {half.topic} has no queue {half.queue_id}; add queues")
        made = commit_of(half, topic)
        return _waiting(self._halves, made.put, half), made.born_ms, made.born_host

    def _decided(self, offset: int, half: Half, state: State, done: Reported, error: StoreError | None) -> None:
        _, waiters = self._halves.deciding.pop(offset)
        if error is None:
            halves = self._halves
            known = HalfState.COMMITTED if state is State.COMMIT else HalfState.ROLLED_BACK
            halves.resolve(offset, known, half)
            name = counted.COMMITTED if state is State.COMMIT else counted.ROLLED_BACK
            halves.metrics.counter(name, half.topic).add()
            if state is State.COMMIT:
                self._committed_reported(half.topic, len(half.body))
            done(EndOutcome(End.OK, decided=state))
        else:
            done(_failed(error))
        for waiter in waiters:
            waiter(error)

    # Decided before

    def _answer_decided(self, handle: TransactionHandle, half: Half, decision: _Decision) -> None:
        state, done = decision.state, decision.done
        known = self._halves.states.get(handle.offset)
        if known in _DECIDED:
            done(_already(state, _DECIDED[known]))
        elif known is HalfState.ELSEWHERE:
            self._answer_in_steps(self._elsewhere(handle, decision), done)
        else:
            self._answer_in_steps(self._said_by_ops(handle, half, decision), done)

    def _said_by_ops(
        self, handle: TransactionHandle, half: Half, decision: _Decision
    ) -> Generator[None, None, EndOutcome | Again]:
        """Answer what the op record says of a half whose bits are gone; one that moved is looked for."""
        fate = yield from self._fate(handle.offset, half)
        if fate in STATES:
            return _already(decision.state, STATES[fate])
        if fate is not None:
            return (yield from self._elsewhere(handle, decision))
        return EndOutcome(End.UNKNOWN_HANDLE, "the transaction has ended; the record with its outcome was deleted")

    def _fate(self, offset: int, half: Half) -> Generator[None, None, Fate | None]:
        """Look for the op record that names a half; they stand behind it in the log."""
        queue = self._halves.op_queue()
        if queue is not None:
            place = queue.first_at(half.physical)
            while place < queue.max_offset:
                place = max(place, queue.min_offset)
                for physical, size, _ in queue.read(place, STEP_UNITS):
                    place += 1
                    if size == FILLER_SIZE:
                        continue
                    try:
                        body, block = split(self._halves.store.read(physical, size))
                    except (DamagedRecord, RecordGone):
                        continue
                    for member in members_of(bytes(body), block):
                        if member.offset == offset and member.fate is not None:
                            return member.fate
                yield
        return None

    def _elsewhere(self, handle: TransactionHandle, decision: _Decision) -> Generator[None, None, EndOutcome | Again]:
        """Look for a half by its transaction's id: it was put again, or discarded.

        Where it is undecided, its place is noted and `again` returned: after a start the places of halves that were put
        again are known only when the checks have looked at them.
        """
        who, state = decision.who, decision.state
        halves, store = self._halves, self._halves.store
        is_searched = True
        for name in (HALF_TOPIC, DISCARD_TOPIC):
            try:
                query = by_unique_key(store, name, handle.transaction_id)
            except NotFound:
                continue
            yield from query.steps()
            is_searched = is_searched and not query.unsearched
            for message in query.found:
                group = who.group
                if who.must_not_know(
                    message.properties.get("PGROUP", ""), message.properties.get(OWNER_NAME.decode(), "")
                ):
                    continue
                if name == DISCARD_TOPIC:
                    if group in (None, message.properties.get("PGROUP")):
                        return EndOutcome(End.DISCARDED, _DISCARDED)
                    continue
                known = halves.states.get(message.offset)
                if known is HalfState.ELSEWHERE:
                    continue
                if group not in (None, message.properties.get("PGROUP")):
                    return EndOutcome(End.WRONG_GROUP, "the transaction belongs to another producer group")
                if known in _DECIDED:
                    return _already(state, _DECIDED[known])
                if known is None:
                    fate = yield from self._fate(message.offset, halves.read(message.offset))
                    if fate in STATES:
                        return _already(state, STATES[fate])
                    continue
                if halves.moved.setdefault(handle.transaction_id, message.offset) == message.offset:
                    return decision.again
                return EndOutcome(End.SEARCH_FAILED, "the transaction is being moved; try again")
        if not is_searched:
            return EndOutcome(
                End.SEARCH_FAILED, "the transaction was not found, but part of the log could not be searched; try again"
            )
        return EndOutcome(End.UNKNOWN_HANDLE, _UNKNOWN)

    def _answer_in_steps(self, search: Generator[None, None, EndOutcome | Again], done: Reported) -> None:
        """Tell what a search finds, a piece of it in a turn."""
        self._searches.run(_answering(search, done))

    # Discarded ones

    def resume(self, offset: int, done: Reported) -> None:
        """Make a discarded half one again, with no checks counted; see `Transactions.resume`."""
        halves = self._halves
        if offset in halves.resumed:
            done(EndOutcome(End.UNKNOWN_HANDLE, "it was already resumed"))
            return
        if offset in self._resuming:
            done(EndOutcome(End.UNKNOWN_HANDLE, "it is being resumed"))
            return
        try:
            half = halves.read_from(halves.discard_queue(), offset)
            made = resumed_of(half, halves.topic(HALF_TOPIC))
            self._ops.expect()
            halves.store.append(
                [made.put],
                born_ms=made.born_ms,
                born_host=made.born_host,
                done=partial(self._resumed, offset, done),
            )
        except (DamagedRecord, RecordGone) as error:
            done(EndOutcome(End.UNKNOWN_HANDLE, str(error)))
        except StoreError as error:
            done(_failed(error))
        else:
            self._resuming.add(offset)

    def _resumed(self, offset: int, done: Reported, error: StoreError | None) -> None:
        self._resuming.discard(offset)
        if error is not None:
            done(_failed(error))
            return
        self._halves.metrics.counter(counted.RESUMED).add()
        self._halves.resumed.add(offset, offset + 1)
        done(EndOutcome(End.OK))


class _Who(NamedTuple):
    """Who decides: of which group, None for an operator; which principal, None without access rules."""

    group: str | None
    owner: str | None

    def must_not_know(self, group: str, owner: str) -> bool:
        """Whether a half is to be unknown to it: of another owner, or of another group without an owner."""
        if is_foreign(owner, self.owner):
            return True
        return self.owner is not None and not owner and self.group not in (None, group)


class _Decision(NamedTuple):
    """One call of `end`: who decides what, who is answered, and the call itself, to be made again."""

    who: _Who
    state: State
    done: Reported
    again: Again


_UNKNOWN = "no such transaction, or it has already ended"
_DISCARDED = "the transaction was discarded after its checks; `pyddmq transactions resume` makes it undecided again"


def _waiting(halves: Halves, put: Put, half: Half) -> Put:
    """Return what to append for a message whose delay begins now. Raises StoreError."""
    delay = half.delay
    store = halves.store
    if delay.level:
        return store.waiting(DelayedPuts).put(put, delay.level)
    if delay.deliver_at_ms:
        return store.waiting(TimedPuts).put(put, delay.deliver_at_ms)
    return store.waiting(TimedPuts).after(put, delay.delay_ms) if delay.delay_ms else put


def _already(asked: State, decided: State) -> EndOutcome:
    if asked in (decided, State.UNKNOWN):
        return EndOutcome(End.ALREADY_SAME, decided=decided)
    past = "committed" if decided is State.COMMIT else "rolled back"
    return EndOutcome(End.ALREADY_OTHER, f"the transaction was {past} before; this is final", decided)


def _failed(error: StoreError) -> EndOutcome:
    if isinstance(error, MessageRefused):
        return EndOutcome(End.REFUSED, str(error))
    return EndOutcome(End.DISK_FULL if isinstance(error, DiskFull) else End.FAILED, str(error))


def _answering(search: Generator[None, None, EndOutcome | Again], done: Reported) -> Generator[None, None, None]:
    try:
        outcome = yield from search
    except (StoreError, OSError) as error:
        outcome = EndOutcome(End.SEARCH_FAILED, f"the search for the transaction failed: {error}")
    if isinstance(outcome, EndOutcome):
        done(outcome)
    else:
        outcome()
