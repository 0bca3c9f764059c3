"""What an opening learns: which halves are undecided (D27).

Op records name halves and, ours, what became of them. Records that replace a half (commit, put-back, discard) are
decisions in themselves, also where a kill came before their op record: that is written then, since RocketMQ looks at
nothing else. Where a power loss took such a record and left its op record, nothing is decided. With a checkpoint only
what came after it is read, else all that is kept.
"""

from __future__ import annotations

from collections.abc import Generator

import structlog

from broker.errors import DamagedRecord, RecordGone
from broker.format.record import prepared_offset, split
from broker.log.decisions import DecisionRecord
from broker.log.shared_walk import Reading, decided
from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue
from broker.transaction.ages import Ages
from broker.transaction.half import Half
from broker.transaction.halves import Halves
from broker.transaction.names import DISCARD_NAME, HALF_NAME, Fate
from broker.transaction.ops import OpPlaces, OpWriter, members_of
from broker.transaction.state import TransactionCheckpoint, TransactionFiles
from broker.transaction.states import HalfState, HalfStates

# Halves that RocketMQ put again: its copies name no half that they replace, as ours do.
#
# RocketMQ counts the old place as done because the offset in `consumerOffset.json` passes it. It writes that file every
# 5 s, so after a kill old places and copies are all undecided by what is on the disk: one message would be checked, and
# committed, several times. A copy is known by its count of checks, what it replaces by the transaction's id.

STEP_HALVES = 256


def resolve_copied(halves: Halves, start: int, owed: dict[int, Fate]) -> Generator[None, None, None]:
    """Settle undecided halves of which there is a later copy, in steps of bounded work.

    Args:
        halves: What is known of each half.
        start: Copies below this offset were taken into account before.
        owed: Takes the halves that were resolved, for op records.

    Raises:
        OSError: A file cannot be read.
    """
    states, queue = halves.states, halves.queue()
    if queue is None:
        return
    last: dict[str, int] = {}
    for place, offset in enumerate(range(max(start, states.position, queue.min_offset), states.end)):
        half = _read(halves, offset)
        if half is not None and half.times and not prepared_offset(half.record):
            last[half.transaction_id] = offset
        if place % STEP_HALVES == STEP_HALVES - 1:
            yield
    for place, offset in enumerate(states.waiting(states.position, max(last.values(), default=-1))):
        half = _read(halves, offset)
        if half is not None and last.get(half.transaction_id, -1) > offset:
            states.resolve(offset, HalfState.ELSEWHERE)
            owed[offset] = Fate.MOVED
        if place % STEP_HALVES == STEP_HALVES - 1:
            yield


def _read(halves: Halves, offset: int) -> Half | None:
    try:
        return halves.read(offset)
    except (DamagedRecord, RecordGone):
        # The half is lost if it is still undecided; the next reader of the half records the loss.
        return None


STEP_UNITS = 512
KNOWN = {
    Fate.COMMITTED: HalfState.COMMITTED,
    Fate.ROLLED_BACK: HalfState.ROLLED_BACK,
    Fate.MOVED: HalfState.ELSEWHERE,
    Fate.DISCARDED: HalfState.ELSEWHERE,
}

log = structlog.get_logger()


class TransactionReplay:
    """One opening.

    Attributes:
        times: Checks by half, as the checkpoint counts them.
    """

    def __init__(self, halves: Halves, ops: OpWriter, files: TransactionFiles) -> None:
        self._halves = halves
        self._ops = ops
        self._files = files
        self._unsaid = 0
        self._named: set[int] = set()
        """Halves that op records say were replaced."""
        self.times: dict[int, int] = {}

    def steps(self) -> Reading[None]:
        """Learn it, in steps of bounded work. Raises OSError: a file cannot be read."""
        halves, store = self._halves, self._halves.store
        queue = halves.queue()
        if queue is None and halves.discard_queue() is None:
            return
        checkpoint = self._files.load(0 if queue is None else queue.max_offset)
        whole_log = None
        if checkpoint is None:
            whole_log = "the checkpoint of the transactions is missing"
        elif checkpoint.log_end > store.end:
            whole_log = "the log ends before the checkpoint of the transactions"
        if whole_log is None and checkpoint is not None:
            self._restore(checkpoint)
            start, op_offset = checkpoint.log_end, checkpoint.ops
        else:
            start, op_offset = 0, self._files.op_offset
            first = 0 if queue is None else max(queue.min_offset, min(self._files.half_offset, queue.max_offset))
            halves.states = HalfStates(first)
        known_end = halves.states.end
        if queue is not None:
            halves.states.grow(queue.max_offset)
            halves.states.begin_at(queue.min_offset)
        ops = halves.op_queue()
        if ops is not None:
            yield from self._read_ops(ops, op_offset)
        discards = halves.discard_queue()
        if halves.states.undecided or self._unsaid or (discards is not None and discards.max_offset):
            log.info("transactions_reading_log", start=max(start, store.min_offset), end=store.end, whole_log=whole_log)
            yield from decided(start, self._decided)
            lost = sum(map(halves.states.is_undecided, self._named))
            if lost:
                log.warning("transaction_decisions_lost", halves=lost)
        # RocketMQ continued from there, or the file is the newer of the two. What the log says of them comes first.
        halves.states.begin_at(self._files.half_offset)
        yield from resolve_copied(halves, known_end, self._ops.owed)
        halves.seen = halves.checks.cursor = halves.states.position
        halves.ages.begin(halves.states.position)

    def _restore(self, checkpoint: TransactionCheckpoint) -> None:
        halves = self._halves
        halves.states = checkpoint.states
        self._ops.owed.update(checkpoint.owed)
        halves.ages = Ages(checkpoint.uptime, checkpoint.marks)
        self.times = checkpoint.times
        for start, end in checkpoint.resumed:
            self._halves.resumed.add(start, end)

    def _read_ops(self, queue: ConsumeQueue, offset: int) -> Generator[None, None, None]:
        states = self._halves.states
        # Blocks below are needed for the offset that RocketMQ begins with, not for what is known.
        known_from = offset
        offset = max(queue.min_offset, min(offset, self._files.op_offset or queue.min_offset))
        places = self._ops.places = OpPlaces(offset)
        half_queue, behind = self._halves.queue(), 0
        while offset < queue.max_offset:
            for physical, size, _ in queue.read(offset, STEP_UNITS):
                highest = -1
                if size != FILLER_SIZE:
                    try:
                        body, block = split(self._halves.store.read(physical, size))
                    except (DamagedRecord, RecordGone):
                        body, block = memoryview(b""), b""
                    members = members_of(bytes(body), block)
                    highest = max((each.offset for each in members), default=-1)
                    if highest >= behind and half_queue is not None:
                        behind = half_queue.first_at(physical)
                    for member in members:
                        if offset < known_from or member.offset >= behind:
                            # (A half behind its op record has the place of one that a power loss took.)
                            continue
                        self._ops.owed.pop(member.offset, None)
                        if member.fate in (None, Fate.ROLLED_BACK):
                            # RocketMQ says neither: rolled back, unless a commit record says otherwise.
                            self._unsaid += member.fate is None
                            states.resolve(member.offset, HalfState.ROLLED_BACK)
                        else:
                            self._named.add(member.offset)
                places.note(offset, highest)
                offset += 1
            yield

    def _decided(self, decision: DecisionRecord) -> None:
        halves, states = self._halves, self._halves.states
        entry = halves.store.record_at(decision.replaced)
        if entry is None:
            return
        if entry.topic == DISCARD_NAME:
            self._halves.resumed.add(entry.queue_offset, entry.queue_offset + 1)
            return
        if entry.topic != HALF_NAME:
            return
        fate = Fate.COMMITTED
        if decision.topic == HALF_NAME:
            fate = Fate.MOVED
        elif decision.topic == DISCARD_NAME:
            fate = Fate.DISCARDED
        if states.resolve(entry.queue_offset, KNOWN[fate]):
            if entry.queue_offset not in self._named:
                self._ops.owed[entry.queue_offset] = fate
        elif fate is Fate.COMMITTED and states.get(entry.queue_offset) is HalfState.ROLLED_BACK:
            states.correct(entry.queue_offset, HalfState.COMMITTED)
