"""What a table's run is made of, and where it runs: a disk and a clock that a kill point stops."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import Random
from typing import ClassVar

from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.integration.store_tools import ROOT
from tests.lifecycle.account import Account
from tests.lifecycle.beside import Beside
from tests.lifecycle.walk import Walk

START_MS = 1_700_000_000_000
DAY_S = 86_400.0

POSITIONS = ("config/delayOffset.json", "config/delayOffset.json.bak")
OFFSETS = ("config/consumerOffset.json", "config/consumerOffset.json.bak")
WHEEL = ("timerwheel", "timerlog", "timercheck")
DERIVED: tuple[tuple[str, ...], ...] = (
    (),
    ("pyddmq",),
    POSITIONS,
    OFFSETS,
    *[(name,) for name in WHEEL],
    WHEEL,
    ("pyddmq", *POSITIONS, *OFFSETS, *WHEEL),
)
"""What a kill may be followed by: files and folders that go. The log decides without them (D27)."""

MADE_ANEW = ("consumequeue", "index", *WHEEL, "checkpoint", "config", "pyddmq")
"""Files and folders whose pages may go bad without loss: the log has what they say."""
OPENS = ("pyddmq/store.json", "pyddmq/topic_lives.json")
"""While one of these cannot be read, a store does not open, and says so."""
PAGE_BYTES = 4096


def _nothing() -> None:
    """Do nothing."""


class Moment:
    """A disk and a clock, and the change of the disk at which the run is to end.

    Args:
        seed: Of all that is drawn.
        stop_at: Number of that change.
        beside: Syncs and file writes go on beside the loop, as in a node; else each is made at once.
    """

    def __init__(self, seed: int, *, stop_at: int | None = None, beside: bool = False) -> None:
        self.disk = SimDisk()
        self.clock = ManualClock(START_MS)
        self.random = Random(seed)
        self.account = Account()
        self.beside = beside
        self._syncs_random = Random(seed)
        self._turns: Beside | None = None
        self._stop_at = stop_at
        self._arm()

    def run(
        self,
        store: Store,
        scheduler: ManualScheduler,
        *,
        before: Callable[[], None] = _nothing,
        after: Callable[[], None] = _nothing,
    ) -> None:
        """Have a store that was just opened end its turns as this run does; nothing where all is made at once."""
        if self.beside:
            self._turns = Beside(store, self.disk, scheduler, self._syncs_random, before=before, after=after)

    def under_way(self) -> str:
        """What the store that runs has under way beside the loop, "" for nothing."""
        return "" if self._turns is None else self._turns.under_way()

    def saved(self) -> None:
        """Wait for the file writes that are under way."""
        if self._turns is not None:
            self._turns.saved()

    def _arm(self) -> None:
        if self._stop_at is not None:
            self.disk.stop_after(max(0, self._stop_at - self.disk.operations))

    def stop(self, *, power: bool = False) -> None:
        """End the process, or the machine with it; the run's own end stays where it was."""
        self._turns = None
        if power:
            self.disk.crash(self.random)
        else:
            self.disk.kill()
        self._arm()

    def end(self, *, power: bool) -> None:
        """The last stop; nothing ends what follows."""
        self._stop_at = None
        self.stop(power=power)
        self.disk.heal()
        self.disk.capacity_bytes = None

    def power_off(self) -> None:
        """Lose all that was not synced, and nothing else; to be followed by `stop`."""
        self.disk.crash(self.random, modes=("none",))

    def lose(self, root: str, names: Sequence[str]) -> None:
        """Delete files and folders below the root, those that are there."""
        for name in names:
            self._lose(f"{root}/{name}")

    def spoil(self, root: str, name: str) -> None:
        """Have a page of each file below a file or folder go bad: EIO for what reads it."""
        path = f"{root}/{name}"
        if self.disk.is_folder(path):
            for each in self.disk.list(path):
                self.spoil(path, each)
        elif self.disk.exists(path) and not path.endswith(OPENS):
            pages = max(1, -(-self.disk.open(path).size() // PAGE_BYTES))
            self.disk.bad_pages[path] = {self.random.randrange(pages)}

    def _lose(self, path: str) -> None:
        if self.disk.is_folder(path):
            for name in self.disk.list(path):
                self._lose(f"{path}/{name}")
        with contextlib.suppress(FileNotFoundError):
            self.disk.remove(path)


class Scenario(ABC):
    """One life told by a table. It must be walked in the same way whenever it begins with the same seed.

    Attributes:
        table: Name of the table.
        saves: Whether state files are saved meanwhile.
        root: Where the store lies.
        losses: What may go after the last stop.
        spoils: Files and folders that may have bad pages after it.
    """

    table: ClassVar[str]
    saves: ClassVar[bool] = True
    root: ClassVar[str] = ROOT
    losses: ClassVar[Sequence[Sequence[str]]] = ((),)
    spoils: ClassVar[Sequence[str]] = ("consumequeue", "index", "checkpoint")

    def __init__(self, moment: Moment) -> None:
        self.moment = moment
        self.account = moment.account
        self.disk = moment.disk
        self.clock = moment.clock

    @abstractmethod
    def walk(self, walk: Walk) -> None:
        """Go along every row once, telling the account what is asked and answered; may end at any change."""

    @abstractmethod
    def finish(self) -> None:
        """Start on what is left, clear the way, let time pass, and tell the account what there is."""
