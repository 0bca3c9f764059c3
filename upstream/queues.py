"""What progress and queues need of the store of messages; `upstream.source` says what groups need besides.

Kept apart from that because it is lower: a job has its queue, and a source makes jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Protocol

from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import Steps
from broker.runtime.metrics import Metrics
from upstream.progress.tracker import OffsetTracker

UNKNOWN = -1
"""An unknown identity."""


class QueueView(Protocol):
    """One queue of a topic as it is now; offsets rise and may have gaps."""

    @property
    def topic(self) -> str:
        """Name of its topic."""

    @property
    def queue_id(self) -> int:
        """Its number there."""

    @property
    def min_offset(self) -> int:
        """First offset that is kept."""

    @property
    def max_offset(self) -> int:
        """Offset that the next message gets at the earliest: the end of what may be read."""

    @property
    def base_offset(self) -> int:
        """End of the offsets that begin at `void_from`."""

    @property
    def void_from(self) -> int:
        """First of the offsets up to `base_offset` of which it is known that none ever held a message."""

    @property
    def reused_from(self) -> int | None:
        """Offsets from here on may have named other messages, which clients may still answer; None: there are none.

        Of what they name now no group that begins with this queue has had anything.
        """

    def void_above(self, offset: int) -> int:
        """Return how many offsets from `offset` on are known never to have held a message."""

    def identity(self, offset: int, *, checked: bool = True) -> int:
        """Return what distinguishes the message at an offset from another that gets the offset later; else UNKNOWN.

        A queue may lose its end and be written on, and then acks of what was lost must not count for what came instead.

        Args:
            offset: Any.
            checked: Compare it with the message itself; for one that is only written down that is too dear.
        """


class NodeTopic(Protocol):
    """One topic as this node sees it now.

    Attributes:
        listeners: Called, in no order, when something may be there to read, and after `queues` changed.
    """

    listeners: list[Callable[[], None]]

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def queues(self) -> Sequence[QueueView]:
        """The queues that this node may read, by number; one that is taken and given again is another object."""


class CommittedOffsets(Protocol):
    """The first unfinished offset of each group and queue, as others see it too.

    Attributes:
        changed_outside: Somebody else wrote it since this program did.
        finish_writes: Ends a save that is under way in steps; called before another one.
    """

    changed_outside: bool
    finish_writes: Callable[[], None]

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return what is committed; None when nothing ever was."""

    def set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Change it in memory; it may go back (a reset)."""

    def items(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield group, topic, queue number and offset of all."""

    def writing(self) -> Steps[bool]:
        """Save what was set, in steps, each of which is waited for beside the loop or at once; whether there was any.

        Raises:
            OSError: It was not saved; what was set is saved by the next call.
        """


TrackerOf = Callable[[str, str, int], OffsetTracker]
TakeOver = Callable[[TrackerOf, Metrics], bool]
"""Makes unfinished what an earlier owner had in hand, in memory; whether anything changed."""


class Queues(Protocol):
    """What a broker is to the progress of groups."""

    @property
    def truncated_to(self) -> int:
        """The identity from which on the last start lost messages; UNKNOWN when it lost none."""

    def queue(self, topic: str, queue_id: int) -> QueueView | None:
        """Return a queue; None when there is none of that name and number."""

    def make_durable(self) -> None:
        """Make durable what readers see, where that is not so already (`flush: async`). Raises OSError."""

    def opening_offsets(self, root: str, runtime: Runtime, *, finish_writes: Callable[[], None]) -> CommittedOffsets:
        """Read the committed offsets; `finish_writes` as there. Raises OSError, StoreUnreadable."""

    def taking_over(self, offsets: CommittedOffsets) -> Generator[None, None, TakeOver]:
        """Find, in steps, what an earlier owner had in hand below the committed offsets. Raises OSError."""
