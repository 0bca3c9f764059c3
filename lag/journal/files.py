"""Names of the journal's files, and which of them count. No I/O.

`raw.0000000007.lag` is the seventh file of a folder, over all starts. `minute.0000000003-0000000006.lag` holds what the
raw files 3 to 6 held, by the minute; `hour.` likewise. The names alone say what contains what: there is no list of
files that a kill could leave wrong.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

SPARE_SUFFIX: Final = ".new"
"""Of a file that is being made; no reader looks at it."""
_DIGITS = 10
NUMBER_MAX: Final = 10**_DIGITS - 1
_NAME = re.compile(r"(raw|minute|hour)\.(\d{10})(?:-(\d{10}))?\.lag")


class Tier(IntEnum):
    """How fine the rows of a file are; higher is coarser. The numbers are those of `lag.blocks.FileKind`."""

    RAW = 1
    MINUTE = 2
    HOUR = 3


WIDTH_MS: Final = {Tier.RAW: 0, Tier.MINUTE: 60_000, Tier.HOUR: 3_600_000}
"""How much time a row of a tier is about; a raw one is of a moment."""


class JournalFile(NamedTuple):
    """What a file's name says: which raw files it is, or contains, both included."""

    tier: Tier
    first: int
    last: int

    @property
    def name(self) -> str:
        """The name."""
        assert 0 < self.first <= self.last <= NUMBER_MAX, "numbers count from 1"
        if self.tier is Tier.RAW:
            assert self.first == self.last, "a raw file is one"
            return f"raw.{self.first:0{_DIGITS}d}.lag"
        return f"{self.tier.name.lower()}.{self.first:0{_DIGITS}d}-{self.last:0{_DIGITS}d}.lag"


def parse(name: str) -> JournalFile | None:
    """Return what a name says; None: it is no name of a file of this journal."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    tier, first = Tier[found[1].upper()], int(found[2])
    last = first if found[3] is None else int(found[3])
    if (tier is Tier.RAW) != (found[3] is None) or not 0 < first <= last:
        return None
    return JournalFile(tier, first, last)


def next_number(names: Iterable[str]) -> int:
    """Return the number of the next raw file of a folder with such files."""
    return max((file.last for name in names if (file := parse(name)) is not None), default=0) + 1


def live_files(files: Iterable[JournalFile], finest: Tier = Tier.RAW) -> list[JournalFile]:
    """Return the files that count, in order: each raw file's rows once, as fine as they are kept whole.

    A file of minutes gives way to its raw files where all of them are there; where one is gone, its raw files give way.
    Likewise hours and minutes. So a kill between any two of the steps that make and delete files changes nothing.

    Args:
        files: All that are there.
        finest: Nothing finer is wanted, where there are summaries: then those do not give way.
    """
    by_tier: dict[Tier, list[JournalFile]] = {tier: [] for tier in Tier}
    for file in sorted(files, key=lambda file: (file.first, -file.last)):
        kept = by_tier[file.tier]
        # Of two that overlap the longer one contains the other.
        if not kept or file.first > kept[-1].last:
            kept.append(file)
    live = by_tier[Tier.RAW]
    for tier in (Tier.MINUTE, Tier.HOUR):
        firsts = [each.first for each in live]
        gone: set[JournalFile] = set()
        coarser = []
        for file in by_tier[tier]:
            near = live[bisect_left(firsts, file.first) : bisect_right(firsts, file.last)]
            contained = [each for each in near if each.last <= file.last]
            is_whole = sum(each.last - each.first + 1 for each in contained) == file.last - file.first + 1
            if is_whole and finest < tier:
                continue
            gone.update(contained)
            coarser.append(file)
        live = sorted([*(each for each in live if each not in gone), *coarser], key=lambda file: file.first)
    return live
