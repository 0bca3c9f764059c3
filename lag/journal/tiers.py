"""Older figures, coarser: minutes are made of raw files, hours of minutes, and what is too old or too much goes.

All of it is one generator of small steps, which a node runs a millisecond at a time (`TierWork`). A step that yields a
file or a folder waits for its sync; any other step yields None.

What it guarantees: a file of summaries is made under another name, synced, and then put in its place in one step; raw
files that it contains go later, one by one, and from the first of them on it counts in their place (`live_files`). So a
kill at any point loses nothing and counts nothing twice; what it left half made is deleted and made again. A full disk,
or a file that cannot be read, leaves things as they are: the next round tries again, and notes what could not be read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, Final

from broker.runtime.file_writes import Single
from broker.runtime.seams import Clock, Disk, Syncs
from broker.runtime.steps import StepsEnd, step
from lag.blocks import BlockGap, BlockReader, BlockWriter, FileHead, FileKind
from lag.journal.columns import Key
from lag.journal.files import SPARE_SUFFIX, WIDTH_MS, JournalFile, Tier, next_number, parse
from lag.journal.scan import STEP_ROWS, Block, ScanPlace, scan
from lag.journal.snapshots import SnapshotEncoder
from lag.journal.summaries import QUEUE_SUMMARIES, SCHEDULED_SUMMARIES, QueueSums, ScheduledSums
from lag.samples import LagEvent

# What is added up for one block of summaries: a minute, or an hour, of one start of a node.


class JournalWindow:
    """Blocks of one minute, or hour, of one epoch.

    Attributes:
        missing: What is missing in it.

    Args:
        tier: What is made.
    """

    def __init__(self, tier: Tier) -> None:
        self.missing: list[BlockGap] = []
        self._width_ms = WIDTH_MS[tier]
        self._last: Block | None = None
        self._queues: dict[Key, QueueSums] = {}
        self._scheduled: dict[Key, ScheduledSums] = {}
        self._events: list[LagEvent] = []

    def takes(self, block: Block) -> bool:
        """Whether a block is of the same minute, or hour, and start as those before it; the first always is."""
        last = self._last
        return last is None or (
            block.epoch == last.epoch
            and block.time_ms // self._width_ms == last.time_ms // self._width_ms
            # Else the clock was stepped back: rows of two files must not mix their order.
            and block.time_ms >= last.time_ms
        )

    def add(self, block: Block) -> Iterator[None]:
        """Add the rows of a block, in steps."""
        assert self.takes(block), "a window is of one minute, or hour, and of one start"
        self._last = block
        self._events += block.events
        is_raw = block.tier is Tier.RAW
        queues = self._queues
        for number, (key, time_ms, row) in enumerate(block.queues):
            sums = queues.get(key)
            if sums is None:
                sums = queues[key] = QueueSums()
            if is_raw:
                sums.add(time_ms, row)
            else:
                sums.add_summary(time_ms, row)
            if not number % STEP_ROWS:
                yield None
        for key, time_ms, row in block.scheduled:
            waiting = self._scheduled.get(key)
            if waiting is None:
                waiting = self._scheduled[key] = ScheduledSums(key)
            if is_raw:
                waiting.add(time_ms, row)
            else:
                waiting.add_summary(time_ms, row)

    def payload(self, encoder: SnapshotEncoder) -> Generator[bytes | None, None, None]:
        """Yield the block of summaries, after a None per step; nothing where nothing was added."""
        last = self._last
        if last is None:
            return
        encoder.begin(last.time_ms // self._width_ms * self._width_ms, last.sequence, last.epoch)
        for number, (key, sums) in enumerate(self._queues.items()):
            encoder.add(key, sums.time_ms, sums.summary())
            if not number % STEP_ROWS:
                yield None
        waiting: list[tuple[Key, int, Any]] = [
            (key, sums.time_ms, sums.summary()) for key, sums in self._scheduled.items()
        ]
        yield encoder.end(waiting, self._events, self.missing)


HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
SPAN_MS: Final = {Tier.MINUTE: HOUR_MS, Tier.HOUR: DAY_MS}
"""A file of a tier is made of the files that begin in the same hour, or day (UTC), when that has passed."""
FILES_MAX: Final = 2000
"""Files of one tier: a node that starts again and again must not fill the folder."""
STEP_SECONDS: Final = 0.001

Steps = Generator[Single | None, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLimits:
    """How long and how much is kept; what exceeds either is deleted, the oldest first.

    Attributes:
        keep_ms: By tier, how long.
        bytes_max: By tier, how much.
        files_max: Of each tier, how many.
        free_bytes_min: Nothing is made while the disk has less.
    """

    keep_ms: dict[Tier, int] = field(
        default_factory=lambda: {Tier.RAW: 2 * DAY_MS, Tier.MINUTE: 35 * DAY_MS, Tier.HOUR: 400 * DAY_MS}
    )
    bytes_max: dict[Tier, int] = field(
        default_factory=lambda: {Tier.RAW: 256 << 20, Tier.MINUTE: 512 << 20, Tier.HOUR: 256 << 20}
    )
    files_max: int = FILES_MAX
    free_bytes_min: int = 64 << 20


class Tiers:
    """Makes the coarser files of one folder.

    Attributes:
        made: Files of summaries that were made.
        deleted: Files that went.
        lost: Those of them that no coarser file contained: there was no room to wait for it.
        trouble: What went wrong in the last round; None: nothing.

    Args:
        disk: Where.
        folder: The journal's folder.
        limits: How much is kept.
    """

    def __init__(self, disk: Disk, folder: str, limits: TierLimits) -> None:
        self.made = self.deleted = self.lost = 0
        self.trouble: str | None = None
        self._disk = disk
        self._folder = folder
        self._limits = limits
        self._known: dict[JournalFile, tuple[FileHead | None, int]] = {}
        self._last = 0
        """The newest raw file when the round began."""

    def round(self, now_ms: int, current: str | None) -> Steps:
        """Make what can be made, and delete what is too much, in steps; once an hour will do.

        Args:
            now_ms: The wall clock's.
            current: Path of the raw file that grows, which is left alone; None: there is none.
        """
        self.trouble = None
        try:
            names = self._disk.list(self._folder)
            # What begins while this works is growing.
            self._last = next_number(names) - 1
            for name in names:
                if name.endswith(SPARE_SUFFIX):
                    self._disk.remove(f"{self._folder}/{name}")
            # Deleting makes room first. A file without a summary is kept until that is made, unless the disk is full.
            yield from self._delete(now_ms, current, spares=self._has_room())
            for tier in (Tier.MINUTE, Tier.HOUR):
                for group in (yield from self._groups(tier, now_ms, current)):
                    if not self._has_room():
                        raise OSError(f"less than {self._limits.free_bytes_min} bytes are free: no summaries are made")
                    yield from self._make(tier, group)
            yield from self._delete(now_ms, current)
        except OSError as error:
            self.trouble = str(error)

    def _has_room(self) -> bool:
        return self._disk.free_bytes(self._folder) >= self._limits.free_bytes_min

    def _files(self, tier: Tier, current: str | None) -> list[JournalFile]:
        found = [file for name in self._disk.list(self._folder) if (file := parse(name)) is not None]
        known = (file for file in found if file.tier is tier and file.last <= self._last)
        return sorted(file for file in known if self._path(file) != current)

    def _path(self, file: JournalFile) -> str:
        return f"{self._folder}/{file.name}"

    def _look(self, file: JournalFile) -> Generator[None, None, tuple[FileHead | None, int]]:
        """Return a finished file's head and size; looked at once."""
        found = self._known.get(file)
        if found is None:
            path = self._path(file)
            reader = BlockReader(self._disk, path)
            reader.close()
            opened = self._disk.open(path)
            try:
                found = reader.head, opened.size()
            finally:
                opened.close()
            self._known[file] = found
            yield None
        return found

    def _groups(self, tier: Tier, now_ms: int, current: str | None) -> Generator[None, None, list[list[JournalFile]]]:
        """Return the files of which one of this tier is to be made, each, in order; their time has passed."""
        is_made = _containing(self._files(tier, None))
        yield None
        groups: list[list[JournalFile]] = []
        span: tuple[str, str, int] | None = None
        for file in self._files(Tier(tier - 1), current):
            if is_made(file):
                span = None
                continue
            head, _ = yield from self._look(file)
            # A file without a head, torn at its begin, goes with those before it.
            own = span if head is None else (head.cluster, head.node, head.first_ms // SPAN_MS[tier])
            if own is not None and own[2] == now_ms // SPAN_MS[tier]:
                span = None
                continue
            if groups and own == span and groups[-1][-1].last + 1 == file.first:
                groups[-1].append(file)
            else:
                groups.append([file])
            span = own
        return groups

    def _make(self, tier: Tier, group: list[JournalFile]) -> Steps:
        """Make one file of others."""
        target = self._path(JournalFile(tier, group[0].first, group[-1].last))
        heads = []
        for file in group:
            head, _ = yield from self._look(file)
            if head is not None:
                heads.append(head)
        if not heads:
            return
        width_ms = WIDTH_MS[tier]
        first_ms, last_ms = min(each.first_ms for each in heads), max(each.last_ms for each in heads)
        head = FileHead(
            kind=FileKind(tier),
            cluster=heads[0].cluster,
            node=heads[0].node,
            epoch=heads[0].epoch,
            sequence=heads[0].sequence,
            first_ms=first_ms // width_ms * width_ms,
            last_ms=last_ms,
            interval_ms=max(width_ms, *(each.interval_ms for each in heads)),
        )
        spare = BlockWriter(self._disk, target + SPARE_SUFFIX, head)
        try:
            for payload in self._payloads(tier, group):
                if payload is not None:
                    spare.append(payload)
                yield None
            yield spare.file
        except OSError:
            self._disk.remove(target + SPARE_SUFFIX)
            raise
        finally:
            spare.file.close()
        self._disk.replace(target + SPARE_SUFFIX, target)
        yield self._folder
        self.made += 1

    def _payloads(self, tier: Tier, group: list[JournalFile]) -> Iterator[bytes | None]:
        """Yield the blocks of summaries, and None between two steps."""
        encoder = SnapshotEncoder(QUEUE_SUMMARIES, SCHEDULED_SUMMARIES)
        place, window = ScanPlace(), JournalWindow(tier)
        for file in group:
            path = self._path(file)
            for block in scan(self._disk, path, file.tier, place, lambda _: True):
                if block is None:
                    yield None
                    continue
                gaps = place.reach(block, path)
                if not window.takes(block):
                    yield from window.payload(encoder)
                    window = JournalWindow(tier)
                window.missing += gaps
                yield from window.add(block)
        window.missing += place.gaps(None)
        yield from window.payload(encoder)

    def _delete(self, now_ms: int, current: str | None, *, spares: bool = False) -> Steps:
        """Delete what is too old and contained in something coarser, and what is too much.

        With `spares`, files that no summary contains are kept.
        """
        limits = self._limits
        for tier in Tier:
            files = self._files(tier, current)
            yield None
            is_in_coarser = _containing([] if tier is Tier.HOUR else self._files(Tier(tier + 1), None))
            yield None
            sizes = []
            for file in files:
                _, size = yield from self._look(file)
                sizes.append(size)
            total, count = sum(sizes), len(files)
            for file, size in zip(files, sizes, strict=True):
                head, _ = yield from self._look(file)
                is_old = head is None or head.last_ms < now_ms - limits.keep_ms[tier]
                is_contained = tier is Tier.HOUR or is_in_coarser(file)
                is_too_much = total > limits.bytes_max[tier] or count > limits.files_max
                goes = (is_contained or not spares) if is_too_much else (is_old and is_contained)
                if not goes:
                    continue
                self._disk.remove(self._path(file))
                self._known.pop(file, None)
                self.deleted += 1
                self.lost += not is_contained
                total, count = total - size, count - 1
                yield None


def _containing(coarser: Sequence[JournalFile]) -> Callable[[JournalFile], bool]:
    """Return whether a file is contained in one of others, which are in order: each answer is one search."""
    firsts = [each.first for each in coarser]
    # Of those that begin before it, or with it, the one that reaches furthest decides.
    furthest = list(accumulate((each.last for each in coarser), max))

    def contains(file: JournalFile) -> bool:
        place = bisect_right(firsts, file.first) - 1
        return place >= 0 and file.last <= furthest[place]

    return contains


class TierWork:
    """Runs the rounds of a node's tiers beside its other work.

    Args:
        tiers: What is to be done.
        clock: Tells how long a slice has taken.
        disk: For syncs that are made at once.
        syncs: Syncs beside the loop; None: they are made at once.
    """

    def __init__(self, tiers: Tiers, clock: Clock, disk: Disk, syncs: Syncs | None = None) -> None:
        self._tiers = tiers
        self._clock = clock
        self._disk = disk
        self._syncs = syncs
        self._steps: Steps | None = None
        self._is_syncing = False
        self._error: OSError | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a round has begun and not ended."""
        return self._steps is not None

    def begin(self, current: str | None) -> None:
        """Begin a round; nothing when one is under way.

        Args:
            current: Path of the raw file that grows (`JournalWriter.current`).
        """
        if self._steps is None:
            self._steps = self._tiers.round(self._clock.wall_ms(), current)

    def step(self, seconds: float = STEP_SECONDS) -> bool:
        """Work for about so many seconds, one step at least; False: the round has ended, or there is none.

        While a sync is under way nothing is done: call again later. Raises nothing that the disk does.
        """
        until = self._clock.monotonic() + seconds
        while self._steps is not None and not self._is_syncing:
            error, self._error = self._error, None
            what = step(self._steps, error=error)
            if isinstance(what, StepsEnd):
                self._steps = None
                break
            if what is not None:
                self._sync(what)
            if self._clock.monotonic() >= until:
                break
        return self._steps is not None

    def abandon(self) -> None:
        """Give the round up, as a stop would; the next one begins again. A sync under way is left to end."""
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()

    def _sync(self, what: Single) -> None:
        if self._syncs is None:
            try:
                if isinstance(what, str):
                    self._disk.sync_folder(what)
                else:
                    what.sync()
            except OSError as error:
                self._error = error
            return
        self._is_syncing = True
        done = partial(self._synced, self._steps)
        if isinstance(what, str):
            self._syncs.begin_folder(what, done)
        else:
            self._syncs.begin(what, done)

    def _synced(self, steps: Steps | None, error: OSError | None) -> None:
        self._is_syncing = False
        if steps is self._steps:
            self._error = error
