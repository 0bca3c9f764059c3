"""A journal on a simulated disk, and what is read from it."""

from __future__ import annotations

from lag.blocks import BlockGap
from lag.journal.columns import Key
from lag.journal.reader import Item, JournalQuery, JournalReader, QueueRow
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.samples import QueueSample
from pyddmq.testing.sim_disk import SimDisk

FOLDER = "/data/pyddmq/lag"
LIMITS = WriterLimits(free_bytes_min=0)
Rows = list[tuple[Key, QueueSample]]


def writer(disk: SimDisk, *, epoch: int = 1, limits: WriterLimits = LIMITS) -> JournalWriter:
    """Return a writer of a node's start."""
    return JournalWriter(disk, FOLDER, JournalOrigin(cluster="c", node="n1", epoch=epoch), limits)


def read(disk: SimDisk, wanted: JournalQuery | None = None) -> list[Item]:
    """Return all that a reader gives."""
    return list(JournalReader(disk, FOLDER).read(wanted))


def rows_of(disk: SimDisk, wanted: JournalQuery | None = None) -> Rows:
    """Return samples, by (group, topic, queue)."""
    return [
        ((each.key.group, each.key.topic, each.key.queue), each.sample)
        for each in read(disk, wanted)
        if isinstance(each, QueueRow)
    ]


def gaps_of(disk: SimDisk, wanted: JournalQuery | None = None) -> list[BlockGap]:
    """Return what is missing."""
    return [each for each in read(disk, wanted) if isinstance(each, BlockGap)]


def names(disk: SimDisk) -> list[str]:
    """Return the names of the files."""
    return disk.list(FOLDER)


def content(disk: SimDisk, name: str) -> bytes:
    """Return a file's bytes."""
    file = disk.open(f"{FOLDER}/{name}")
    return file.read(0, file.size())


def put(disk: SimDisk, name: str, data: bytes) -> None:
    """Write a file of these bytes, and no others."""
    disk.make_folder(FOLDER)
    file = disk.open(f"{FOLDER}/{name}", create=True)
    file.truncate(0)
    if data:
        file.write(0, [data])
