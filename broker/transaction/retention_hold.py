"""What becomes of undecided halves in a log file that retention is about to delete (D29).

Each is put again at the log's tail, in the form of RocketMQ's put-back, with its count of checks and its age in uptime.
That record is the move; an op record of the same write says so of the old place, for RocketMQ. Its handles stay valid.
"""

from __future__ import annotations

from functools import partial

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.log.durability import AwaitedSteps, all_durable
from broker.retention import ExpiringSegment, Relocation
from broker.runtime.metrics import Metrics
from broker.transaction import metrics as counted
from broker.transaction.half import Half, put_back_of
from broker.transaction.names import DISCARD_TOPIC, HALF_TOPIC, Fate
from broker.transaction.states import HalfState
from broker.transaction.transactions import Transactions


class TransactionHold:
    """The `broker.retention.RetentionHold` of undecided halves; enter it in `store.retention.holds`."""

    def __init__(self, transactions: Transactions, metrics: Metrics) -> None:
        self._transactions = transactions
        self._metrics = metrics

    def needs(self, expiring: ExpiringSegment) -> bool:
        """Whether the file has an undecided half."""
        minimum = expiring.minimums.get((HALF_TOPIC, 0), 0)
        return self._transactions.halves.states.position < minimum

    def relocate(self, expiring: ExpiringSegment, count_max: int) -> AwaitedSteps[Relocation]:
        """Put undecided halves again, once those that are being decided are."""
        transactions = self._transactions
        store = transactions.store
        minimum = expiring.minimums.get((HALF_TOPIC, 0), 0)
        if not self.needs(expiring):
            return Relocation.DONE
        transactions.write_ops()
        yield from all_durable(store.writes)
        left, taken = count_max, True
        for offset in transactions.halves.states.waiting(0, minimum):
            if not left or not taken:
                break
            left -= 1
            taken = not transactions.halves.is_busy(offset) and self._put_again(offset)
        transactions.write_ops()
        yield from all_durable(store.writes)
        if not taken:
            return Relocation.BLOCKED
        return Relocation.DONE if left else Relocation.MORE

    def _put_again(self, offset: int) -> bool:
        transactions = self._transactions
        halves = transactions.halves
        try:
            half = halves.read(offset)
        except (DamagedRecord, RecordGone) as error:
            halves.lose(offset, str(error))
            return True
        asked = halves.checks.asked.get(offset)
        times = max(half.times, transactions.times_of(offset))
        age_ms = int(halves.ages.age(offset, halves.running()) * 1000)
        try:
            put, born_ms, born_host = put_back_of(half, halves.topic(HALF_TOPIC), times=times, age_ms=age_ms)
            lease = asked.due if asked is not None and asked.out else 0.0
            halves.store.append(
                [put], born_ms=born_ms, born_host=born_host, done=partial(self._done, offset, half, lease)
            )
        except StoreError as error:
            self._metrics.counter(counted.WAITS).add()
            halves.limited_log.note("half_put_back_waits", offset=offset, error=str(error))
            return False
        # Nobody decides it until then.
        halves.moving[offset] = []
        transactions.name_in_op(offset, Fate.MOVED)
        return True

    def _done(self, offset: int, half: Half, lease: float, error: StoreError | None) -> None:
        halves = self._transactions.halves
        waiting = halves.moving.pop(offset)
        if error is None:
            halves.resolve(offset, HalfState.ELSEWHERE, half)
            if lease:
                halves.checks.leases[half.transaction_id] = lease
            self._metrics.counter(counted.PUT_BACK).add()
        for decide in waiting:
            decide()

    def dropped(self, expiring: ExpiringSegment) -> None:
        """Begin the halves at what is kept."""
        transactions = self._transactions
        transactions.halves.states.begin_at(expiring.minimums.get((HALF_TOPIC, 0), 0))
        transactions.halves.resumed.cut(expiring.minimums.get((DISCARD_TOPIC, 0), 0))
