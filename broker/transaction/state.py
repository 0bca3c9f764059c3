"""How far transactions are, on disk: RocketMQ's two offsets, and a checkpoint of our own.

The log decides (D27); both only save reading it. `consumerOffset.json` has, for the group `CID_RMQ_SYS_TRANS`, the
lowest undecided half, and an op offset below which no op record has a member above that half: what RocketMQ begins
with. `pyddmq/transactions.json` has the states of the halves above, the counts of checks, ages in uptime, and the
commit-log offset up to which this holds. Neither may be ahead of the durable log: a half that gets the place of a lost
one would count as decided. Which of the two is the newer makes no difference.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import structlog

from broker.errors import StoreUnreadable
from broker.opening.checkpointer import LOG_BYTES_MAX
from broker.queues.offsets import ConsumerOffsets
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import FileWrite
from broker.runtime.sealed_file import SealedFile
from broker.runtime.store_metrics import FILES_DAMAGED
from broker.transaction.names import GROUP, HALF_TOPIC, OP_TOPIC, Fate
from broker.transaction.states import HalfStates

log = structlog.get_logger()


class TransactionCheckpoint(NamedTuple):
    """What was known below `log_end`.

    Attributes:
        log_end: Commit-log offset.
        states: Of the halves.
        ops: Op records below this offset are in `states`.
        owed: Halves that lack their op record.
        times: Checks by half.
        uptime: Seconds of the broker's.
        marks: For `Ages`.
        resumed: Ranges of discarded halves that are none any more.
    """

    log_end: int
    states: HalfStates
    ops: int
    owed: dict[int, Fate]
    times: dict[int, int]
    uptime: float
    marks: list[list[float]]
    resumed: list[list[int]]


class TransactionFiles:
    """The two files of one store."""

    def __init__(self, root: str, runtime: Runtime, *, offsets: ConsumerOffsets) -> None:
        self._offsets = offsets
        self._metrics = runtime.metrics
        self._file = SealedFile(runtime.disk, f"{root}/pyddmq/transactions.json")
        self._saved: Any = None
        self._log_end = 0

    @property
    def half_offset(self) -> int:
        """The lowest half that is not done, by `consumerOffset.json`."""
        return self._offsets.get(GROUP, HALF_TOPIC, 0) or 0

    @property
    def op_offset(self) -> int:
        """Where op records are to be read from, by the same file."""
        return self._offsets.get(GROUP, OP_TOPIC, 0) or 0

    def load(self, half_end: int) -> TransactionCheckpoint | None:
        """Return the checkpoint, None when there is none that can be believed. Damage is counted and said.

        Raises:
            OSError: The file cannot be read.
        """
        try:
            saved = self._file.load()
            if saved is None:
                return None
            return TransactionCheckpoint(
                log_end=int(saved["log_end"]),
                states=HalfStates.restored(saved["halves"], half_end),
                ops=int(saved["ops"]),
                owed={int(offset): Fate(letter) for offset, letter in saved["owed"]},
                times={int(offset): int(times) for offset, times in saved["times"]},
                uptime=float(saved["uptime"]),
                marks=[[int(offset), float(at)] for offset, at in saved["marks"]],
                resumed=[[int(start), int(end)] for start, end in saved["resumed"]],
            )
        except (StoreUnreadable, ValueError, KeyError, TypeError, zlib.error):
            self._metrics.counter(FILES_DAMAGED, "pyddmq/transactions.json").add()
            log.error("transaction_file_damaged", file="pyddmq/transactions.json", what="the log says what was decided")
            return None

    def writing(
        self, content: dict[str, Any], *, half_offset: int, op_offset: int, log_end: int, force: bool
    ) -> FileWrite:
        """Write both, durably, when something but the uptime has changed, or the log grown much, or on `force`.

        Raises:
            OSError: One cannot be written.
        """
        facts = {name: value for name, value in content.items() if name != "uptime"}
        if facts == self._saved and log_end - self._log_end < LOG_BYTES_MAX and not force:
            return
        self._offsets.set(GROUP, HALF_TOPIC, 0, half_offset)
        self._offsets.set(GROUP, OP_TOPIC, 0, op_offset)
        yield from self._offsets.writing()
        yield from self._file.writing({**content, "log_end": log_end})
        self._saved, self._log_end = facts, log_end
