"""Names of exported files, and which of them count. No I/O (D50).

`queues/date=2026-11-23/node-1.00c0ffee00c0ffee.000000000000-000000000359.parquet` holds the snapshots 0 to 359 of one
start of node-1, as far as they are of that day (UTC). Files are written once and never changed. A file whose range
contains another's holds all that the other does; so files are made larger by writing a larger one, and a reader
skips what is contained. There is no list of files and no rename that a kill could come between, and object stores need
neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

TABLES: Final = ("queues", "scheduled", "events")
"""Folders, each of one shape of rows."""
_DIGITS = 12
SEQUENCE_MAX: Final = 10**_DIGITS - 1
"""A snapshot a second for 30,000 years."""
_NAME = re.compile(
    r"(?P<table>[a-z]+)/date=(?P<date>\d{4}-\d\d-\d\d)/"
    r"(?P<node>[A-Za-z0-9_-]+)\.(?P<epoch>[0-9a-f]{16})\.(?P<first>\d{12})-(?P<last>\d{12})\.parquet"
)
_PLAIN = re.compile(r"[^A-Za-z0-9-]")
_ESCAPED = re.compile(r"_([0-9a-f]{2})")


def shown_place(url: str) -> str:
    """Return a place as texts and pages show it: without the key and secret that a URL may have."""
    scheme, mark, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    _, at, host = authority.rpartition("@")
    return f"{scheme}://***@{host}{slash}{path}" if mark and at else url


class ExportFile(NamedTuple):
    """What a file's name says.

    Attributes:
        table: Folder.
        date: Day of the snapshots, UTC, as 2026-11-23.
        node: Name of the node.
        epoch: The node's start.
        first: First sequence.
        last: Last sequence, included.
    """

    table: str
    date: str
    node: str
    epoch: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """Path below the export's folder."""
        assert 0 <= self.first <= self.last <= SEQUENCE_MAX, "sequences count from 0"
        node = _PLAIN.sub(lambda found: "".join(f"_{byte:02x}" for byte in found[0].encode()), self.node)
        sequences = f"{self.first:0{_DIGITS}d}-{self.last:0{_DIGITS}d}"
        return f"{self.table}/date={self.date}/{node}.{self.epoch:016x}.{sequences}.parquet"


class LiveFile(NamedTuple):
    """A file that counts, and which of its rows do: those with a sequence from `first` to `last`, both included."""

    file: ExportFile
    first: int
    last: int

    @property
    def is_whole(self) -> bool:
        """Whether all of its rows count."""
        return (self.first, self.last) == (self.file.first, self.file.last)


def parse(name: str) -> ExportFile | None:
    """Return what a path below the export's folder says; None: it is no exported file."""
    found = _NAME.fullmatch(name)
    if found is None or int(found["first"]) > int(found["last"]) or found["table"] not in TABLES:
        return None
    try:
        node = _ESCAPED.sub(lambda match: f"%{match[1]}", found["node"])
        node = b"".join(
            bytes([int(part[:2], 16)]) + part[2:].encode() if number else part.encode()
            for number, part in enumerate(node.split("%"))
        ).decode()
    except ValueError:
        return None
    file = ExportFile(
        found["table"], found["date"], node, int(found["epoch"], 16), int(found["first"]), int(found["last"])
    )
    return file if file.name == name else None


def live_files(listing: Iterable[str]) -> list[LiveFile]:
    """Return the files that count: each row of what was exported once.

    Files that another contains do not count. Two that overlap, which only exports that ran at the same time leave,
    share their rows: the later range counts from where the earlier one ends.

    Args:
        listing: Paths below the export's folder, in any order; others than exported files are passed over.
    """
    files = {file for name in listing if (file := parse(name)) is not None}
    found: list[LiveFile] = []
    for file in sorted(files, key=lambda file: (*file[:4], file.first, -file.last)):
        before = found[-1] if found and found[-1].file[:4] == file[:4] else None
        first = file.first if before is None else max(file.first, before.last + 1)
        if first <= file.last:
            found.append(LiveFile(file, first, file.last))
    return found
