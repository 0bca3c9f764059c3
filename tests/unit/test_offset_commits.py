"""Commits: `consumerOffset.json` holds watermarks and is never ahead of the ack journal (D10)."""

from __future__ import annotations

import json

from broker.testing import PowerCut, SimDisk
from tests.unit.progress_world import GROUP, OFFSETS, TOPIC, Node, cut, finished, killed
from upstream import offset_commits, reconcile


def test_commit_writes_watermarks_only() -> None:
    """consumerOffset.json has the next offset to read (R72), and nothing of what is finished above it."""
    node = Node(SimDisk())
    node.publish(30)
    node.ack(0, 1, 2, 10, 11)
    node.progress.commit()
    file = node.disk.open(OFFSETS)
    assert json.loads(file.read(0, file.size()))["offsetTable"] == {f"{TOPIC}@{GROUP}": {"0": 3}}
    assert node.metrics.value(offset_commits.OFFSETS_COMMITTED) == 1


def test_commit_never_puts_the_file_ahead_of_the_journal() -> None:
    """At every change of the disk while committing: the durable journal holds what the durable file says."""
    for changes in range(30):
        for seed in range(4):
            disk = SimDisk()
            node = Node(disk)
            node.publish(50)
            node.ack(*range(10), 20)
            disk.stop_after(changes)
            try:
                node.progress.commit()
                node.ack(*range(10, 15))
                node.progress.commit()
            except PowerCut:
                pass
            node = cut(node, seed)
            assert node.metrics.value(reconcile.OFFSETS_FOREIGN) == 0
            assert finished(node) in (set(), {*range(10), 20}, {*range(15), 20})


def test_offset_written_before_a_kill_is_known_as_our_own() -> None:
    """Whether or not the journal heard that the file was written, our own value is never taken for foreign."""
    node = Node(SimDisk())
    node.publish(50)
    node.ack(*range(5), 20)
    node.progress.commit()
    node = killed(node)
    assert finished(node) == {*range(5), 20}
    assert node.metrics.value(reconcile.OFFSETS_FOREIGN) == 0


def test_offsets_file_that_cannot_be_written_is_made_up_for_later() -> None:
    """A failed write of consumerOffset.json costs nothing but time, and its values stay known."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(200)
    for offset in range(150):
        node.ack(offset)
        disk.fail("write", path_part="consumerOffset.json")
        node.progress.commit()
        disk.heal()
    assert node.metrics.value(offset_commits.OFFSETS_COMMIT_ERRORS) == 150
    node.ack(180)
    node = killed(node)
    assert finished(node) == {*range(150), 180}
    node.progress.commit()
    assert node.metrics.value(offset_commits.OFFSETS_COMMITTED) == 1
    node = killed(node)
    assert node.metrics.value(reconcile.OFFSETS_FOREIGN) == 0
    assert finished(node) == {*range(150), 180}
