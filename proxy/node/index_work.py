"""When a node builds its index: after turns that stored enough, and when the loop has nothing better to do (D7).

No publish waits for it: it begins when the replies of a turn have left. A turn that stored n messages has up to 2 n
records built, in pieces that are worth their fixed cost, so that the index keeps up with any rate and what was left
from before (a restart) shrinks meanwhile. What is not enough for a piece waits for a pause of the loop. With nothing
to build, nothing is scheduled.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.index.index import Index
from broker.runtime.bundle import Runtime
from broker.runtime.later import Later

PIECE_RECORDS = 256
"""Of records just stored about half a millisecond of the loop's time, of others read from the log 1.5 ms."""
SMALL_TURN_RECORDS = 32
SMALL_PIECE_RECORDS = 64
"""Of a turn that stored fewer than these: a client that waits for few messages does not wait for a piece that is worth
it."""
TURN_PIECES_MAX = 4
BUSY_SECONDS = 0.05
BUSY_RECORDS = 64
IDLE_SECONDS = 0.005
_OWED_MAX = 1 << 16


class IndexWork:
    """Builds one store's index on a loop.

    Args:
        index: What is built.
        runtime: Its scheduler is the loop; its log says which steps fail.
        turns: Tells a number that grows with each turn in which the node did something.
    """

    def __init__(self, index: Index, runtime: Runtime, *, turns: Callable[[], int]) -> None:
        self._index = index
        self._limited_log = runtime.limited_log
        self._turns = turns
        self._seen = -1
        self._next = Later(runtime.scheduler, self._work)
        self._stored = index.feed.total
        self._owed = 0

    def stored(self) -> None:
        """Build what a turn that stored something owes; the rest follows in a pause. Its replies have left."""
        total = self._index.feed.total
        stored, self._stored = total - self._stored, total
        self._owed = min(self._owed + 2 * stored, _OWED_MAX)
        small = stored < SMALL_TURN_RECORDS
        piece = SMALL_PIECE_RECORDS if small else PIECE_RECORDS
        pieces = min(self._owed // piece, 1 if small else TURN_PIECES_MAX)
        self._owed -= pieces * piece
        while pieces and self._step(piece):
            pieces -= 1
        self._next.unless_due(BUSY_SECONDS)

    def stop(self) -> None:
        """Do nothing more."""
        self._next.cancel()

    def _step(self, records: int) -> bool:
        try:
            if self._index.step(records):
                return True
        except Exception as error:
            self._limited_log.fault("index_work_failed", error, kind="step")
        self._owed = 0
        return False

    def _work(self) -> None:
        """Build a small piece of what is old while turns continue, and large ones when none does."""
        turns = self._turns()
        busy, self._seen = turns != self._seen, turns
        waits = busy and self._index.fresh
        more = self._index.behind if waits else self._step(BUSY_RECORDS if busy else PIECE_RECORDS)
        if more:
            self._next.after(BUSY_SECONDS if busy else IDLE_SECONDS)
