"""Declared writes: a batch that is run again is stored in one division of its rows, or refused before the first row."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from typing import Any

import pytest

from broker.deduplication.window import DeduplicationWindow, ProducerWindow, WindowLimits
from broker.deduplication.writes import WRITES_MAX, Declaration, Writes, WriteVerdict
from broker.runtime.metrics import Metrics
from tests.integration.keyed_tools import NAME

SILENCE_MS = 1_000
SEND, SKIP, FORGOTTEN, DIFFERS, WAITS = (
    WriteVerdict.SEND,
    WriteVerdict.SKIP,
    WriteVerdict.FORGOTTEN,
    WriteVerdict.DIFFERS,
    WriteVerdict.WAITS,
)


class Node:
    """The rules over a window, and declarations in short."""

    def __init__(self) -> None:
        self.window = DeduplicationWindow(WindowLimits(silence_ms=SILENCE_MS, producers=2), Metrics())
        self.writes = Writes(self.window)
        self.now_ms = 0

    def says(
        self, run: str, partition: int, rows: int = 3, digest: str = "d", *, batch: int = 7, name: str = "w"
    ) -> WriteVerdict:
        """A partition is declared."""
        said = Declaration(name, batch, run, partition, rows, digest, False, NAME)
        return self.writes.declare(said, self.now_ms)[0]

    def ends(self, run: str, partitions: int, digest: str = "all", *, batch: int = 7, name: str = "w") -> WriteVerdict:
        """The end is declared."""
        return self.writes.declare(Declaration(name, batch, run, partitions, 0, digest, True, NAME), self.now_ms)[0]


def test_run_in_the_same_partitions_goes_on_and_an_ended_batch_is_skipped() -> None:
    """A run that begins anew declares what was begun, then the rest; after the end nothing is to be sent."""
    node = Node()
    assert [node.says("one", 0), node.says("one", 1)] == [SEND, SEND]
    assert node.says("two", 0) is SEND
    assert node.says("two", 2) is WAITS, "partition 1 of the first run may be of another division"
    assert node.says("two", 1) is SEND
    assert node.says("two", 2) is SEND
    assert node.ends("two", 3) is SKIP
    assert [node.says("three", 0), node.says("three", 5), node.ends("three", 3)] == [SKIP] * 3
    assert node.ends("four", 3, "other rows") is DIFFERS
    assert node.says("five", 0, batch=8) is SEND
    assert node.says("five", 0, batch=7) is SKIP


@pytest.mark.parametrize(("rows", "digest"), [(2, "d"), (3, "e")])
def test_partition_that_was_begun_with_other_rows_is_refused(rows: int, digest: str) -> None:
    """Fewer of them, or others."""
    node = Node()
    node.says("one", 0)
    assert node.says("two", 0, rows, digest) is DIFFERS
    assert node.says("one", 0, rows, digest) is DIFFERS, "also of a task that is run again"
    assert node.says("one", 0) is SEND


def test_batch_ends_only_with_the_partitions_that_were_begun() -> None:
    """All of them, of the run that ends."""
    node = Node()
    node.says("one", 0)
    node.says("one", 1)
    assert node.ends("one", 1) is DIFFERS
    node.says("two", 0)
    assert node.ends("two", 2) is DIFFERS
    assert node.ends("two", 1) is DIFFERS
    node.says("two", 1)
    assert node.ends("two", 2) is SKIP


def test_rows_whose_numbers_are_forgotten_are_not_sent_again() -> None:
    """After the time for which a silent producer is known, or when other names took its place."""
    node = Node()
    node.says("one", 0)
    node.now_ms = SILENCE_MS
    assert node.says("two", 0) is SEND, "nothing can be forgotten yet"
    node.now_ms += 1
    assert node.says("two", 0) is FORGOTTEN
    node.window.restore(NAME, ProducerWindow(0, array("q", (1,)), node.now_ms))
    assert node.says("two", 0) is SEND, "its rows are known"
    node = Node()
    node.now_ms = 5
    node.says("one", 0)
    for other in range(3):
        node.window.seen(b"FE%018d" % other, 0, 1, 6)
    assert node.says("two", 0) is FORGOTTEN


def test_known_writes_are_bounded_and_those_that_are_begun_are_kept() -> None:
    """The ended one that was silent longest goes first."""
    node = Node()
    node.says("one", 0, name="begun")
    for number in range(WRITES_MAX):
        node.ends("one", 0, name=f"ended {number}")
    assert node.says("two", 1, name="begun") is WAITS
    assert node.ends("two", 0, "other", name="ended 0") is SKIP, "it is not known any more"
    assert node.ends("two", 0, "other", name="ended 999") is DIFFERS


def test_what_is_saved_is_what_is_restored() -> None:
    """Begun and ended ones; what is no such list is refused."""
    node = Node()
    node.says("one", 0)
    node.ends("one", 0, name="ended")
    again = Node()
    again.writes.restore(node.writes.saved())
    assert again.writes.saved() == node.writes.saved()
    assert again.says("two", 1) is WAITS
    assert again.ends("two", 0, "other", name="ended") is DIFFERS
    damaged: list[Any] = [[[1]], [["w", "x", None, []]], 7]
    for each in damaged:
        with pytest.raises((TypeError, ValueError)):
            Node().writes.restore(each)


def test_no_row_is_lost_or_doubled_however_a_batch_is_divided_and_ended() -> None:
    """Runs in other divisions, ended at any row: what is stored at the end is the batch, and never a row twice."""
    finished = 0
    for seed in range(400):
        chance = random.Random(seed)
        rows, node = list(range(12)), Node()
        stored: dict[tuple[int, int], int] = {}
        for run in range(6):
            cuts = sorted(chance.sample(range(1, 12), chance.choice((0, 1, 1, 3))))
            parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, 12], strict=True)]
            order = list(enumerate(parts))
            chance.shuffle(order)
            done = 0
            for at, part in order:
                if node.says(str(run), at, len(part), str(part)) is not SEND:
                    continue
                sent = chance.choice((len(part), len(part), chance.randrange(len(part) + 1)))
                # The window stores what is new under a number of this partition.
                for number, row in enumerate(part[:sent]):
                    stored.setdefault((at, number), row)
                done += sent == len(part)
            counted = Counter(stored.values())
            assert max(counted.values(), default=1) == 1, f"seed {seed}: a row is stored twice"
            if done == len(parts) and node.ends(str(run), done) is SKIP:
                assert sorted(counted) == rows, f"seed {seed}: a row is missing"
                finished += 1
                break
    assert finished > 100
