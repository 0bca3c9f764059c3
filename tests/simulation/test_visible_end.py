"""The visible end of a node in virtual time: never beyond what is durable and due, whatever ends the node."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from lag.visible_end import FILE, VisibleEndState, read_visible_end
from proxy.recording.visible_end import BEHIND_SECONDS
from pyddmq.testing.sim_disk import SimDisk
from tests.insides import opened_of
from tests.simulation.test_queue_samples import ward_of
from tests.simulation.ward import Ward
from tests.simulation.world import DATA


def shown(disk: SimDisk) -> VisibleEndState:
    """What the file says now."""
    found = read_visible_end(disk, f"{DATA}/{FILE}")
    assert found is not None
    return found


def test_end_follows_what_is_visible() -> None:
    """From the start on, before anything is published; later a moment behind the commit batches."""
    ward = ward_of()
    first = shown(ward.disk)
    assert (first.offset, first.is_live) == (opened_of(ward.node).store.end, True)
    ward.send("orders", "k")
    ward.run(2 * BEHIND_SECONDS)
    found = shown(ward.disk)
    assert found.offset == opened_of(ward.node).store.end > first.offset
    assert found.epoch == first.epoch


def test_what_waits_for_its_moment_lies_beyond() -> None:
    """A timer that is durable before its moment is not shown to others either."""
    ward = ward_of()
    due_ms = ward.node.parts.seams.clock.wall_ms() + 5_000
    ward.process_run(lambda: opened_of(ward.node).store.put("orders", b"due", deliver_at_ms=due_ms))
    ward.world.run(until=lambda: opened_of(ward.node).store.commit.is_early, seconds=6)
    assert shown(ward.disk).offset == opened_of(ward.node).store.end < opened_of(ward.node).store.index.log.end
    ward.run(1)
    assert shown(ward.disk).offset == opened_of(ward.node).store.end == opened_of(ward.node).store.index.log.end


@pytest.mark.parametrize("kill", [True, False])
def test_end_of_a_node_is_said_or_left(kill: bool) -> None:
    """A stop in order says so; after a kill the file stays, and the next start sets its own end."""
    ward = ward_of()
    ward.send("orders", "k")
    before = shown(ward.disk)
    end = opened_of(ward.node).store.end
    seen = []
    ward.restart(lambda: seen.append(shown(ward.disk)), kill=kill)
    assert [(each.offset, each.is_live) for each in seen] == [(before.offset if kill else end, kill)]
    after = shown(ward.disk)
    assert (after.offset, after.is_live) == (opened_of(ward.node).store.end, True)
    assert after.epoch != before.epoch


def failing_file(ward: Ward) -> None:
    """Have the writes of the file fail, and no other's."""
    file = ward.node.recording.shown_end._file
    assert file is not None
    disk_file = file._file
    assert disk_file is not None

    def write(offset: int, buffers: object) -> None:
        raise OSError(5, "no")

    disk_file.write = write  # type: ignore[method-assign]


def test_file_that_cannot_be_written_is_told_once_and_stays_behind() -> None:
    """Messages go on."""
    ward = ward_of()
    before = shown(ward.disk)
    failing_file(ward)
    with capture_logs() as logs:
        for _ in range(3):
            ward.send("orders", "k")
        ward.run(70)
    assert shown(ward.disk).offset == before.offset < opened_of(ward.node).store.end
    assert len([line for line in logs if line["event"] == "visible_end_not_written"]) == 1
