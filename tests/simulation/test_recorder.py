"""The recorder of a node in virtual time: rounds in the lag journal, events, faults of the disk, kills, reloads."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from lag.blocks import BlockGap
from lag.journal.reader import EventRow, JournalReader, QueueRow
from lag.journal.writer import FOLDER
from lag.samples import EventKind
from proxy.operate.changes.groups import PauseBody
from proxy.operate.changes.offsets import ResetBody
from proxy.recording.recorder import DROPPED, ROUNDS
from tests.simulation.operator import change
from tests.simulation.test_queue_samples import rounds, ward_of
from tests.simulation.ward import Ward
from tests.simulation.world import DATA

PLACE = f"{DATA}/{FOLDER}"


def journal(ward: Ward) -> list[Any]:
    """Read all of the journal."""
    return list(JournalReader(ward.disk, PLACE).read())


def events(ward: Ward) -> list[tuple[EventKind, str, str]]:
    """Kind, group and topic of the events in the journal, in order."""
    found = [row.event for row in journal(ward) if isinstance(row, EventRow)]
    return [(each.kind, each.group, each.topic) for each in found]


def counted(ward: Ward, name: str) -> float:
    """A figure of the node."""
    return ward.node.runtime.metrics.value(name)


def trouble(ward: Ward) -> str:
    """Why the last round is not kept; empty when it is."""
    return ward.node.recording.recorder.trouble or ""


def test_journal_has_what_the_node_saw() -> None:
    """Every sample of a round, equal in all fields."""
    ward = ward_of(retryIntervals=[60_000, -1])
    ward.send("orders", "k")
    ward.fail(1)
    rounds(ward)
    rounds(ward)
    ward.run(1)
    last = ward.node.recording.recorder.last
    assert last is not None
    kept = {row.key: row.sample for row in journal(ward) if isinstance(row, QueueRow)}
    assert kept == dict(last.queues)
    assert counted(ward, DROPPED) == 0


@pytest.mark.parametrize("kill", [True, False])
def test_end_of_a_node_leaves_whole_rounds(kill: bool) -> None:
    """Killed in the middle of anything; a stop says besides that it was one."""
    ward = ward_of()
    for number in range(5):
        ward.send("orders", f"k{number}")
        ward.run(7.3)
    ward.restart(kill=kill)
    rounds(ward)
    ward.run(1)
    rows = journal(ward)
    assert len([row for row in rows if isinstance(row, QueueRow)]) >= 4
    assert not [row for row in rows if isinstance(row, BlockGap) and "DAMAGED" in str(row)]
    kinds = [kind for kind, _, _ in events(ward)]
    assert kinds == [EventKind.START, *([] if kill else [EventKind.STOP]), EventKind.START]


def test_what_operators_do_is_noted() -> None:
    """Pause, resume, reset, reload: who, of what, and once."""
    ward = ward_of()
    ward.send("orders", "k")
    ward.finish()
    assert change(ward.world, "pause", PauseBody(group="by-key")) is not None
    assert change(ward.world, "pause", PauseBody(group="by-key")) is not None
    assert change(ward.world, "resume", PauseBody(group="by-key")) is not None
    reset = ResetBody(group="by-key", topic="orders", to="earliest", dry_run=False)
    assert change(ward.world, "reset_offsets", reset) is not None
    ward.reload(maxParkedPulls=5)
    rounds(ward)
    ward.run(1)
    assert events(ward) == [
        (EventKind.START, "", ""),
        (EventKind.PAUSE, "by-key", ""),
        (EventKind.RESUME, "by-key", ""),
        (EventKind.RESET, "by-key", "orders"),
        (EventKind.RELOAD, "", ""),
    ]
    [noted] = [row.event for row in journal(ward) if isinstance(row, EventRow) and row.event.kind is EventKind.RESET]
    assert noted.queue == 0
    assert noted.detail.startswith("from 1 to 0 by ")


def test_group_that_is_taken_out_has_left() -> None:
    """Its samples end, and it is said why."""
    ward = ward_of()
    rounds(ward)
    ward.edit_group(lambda groups: groups.clear())
    assert rounds(ward) == {}
    ward.run(1)
    assert events(ward)[-1] == (EventKind.LEFT, "by-key", "")


@pytest.mark.parametrize("seconds", [0, 1_200])
def test_group_that_is_taken_out_while_the_node_is_down_has_left(seconds: int) -> None:
    """By the newest round of the process before: a report does not call it unknown."""
    ward = ward_of()
    rounds(ward)

    def between() -> None:
        ward.run(seconds)
        ward.wanted["groups"] = []
        ward.world.config = ward.load().config

    ward.restart(between)
    ward.run(30)
    assert (EventKind.LEFT, "by-key", "") in events(ward)
    ward.restart()
    ward.run(30)
    assert [kind for kind, _, _ in events(ward)].count(EventKind.LEFT) == 1


def test_step_of_the_wall_clock_is_noted() -> None:
    """Samples around it are judged by it."""
    ward = ward_of()
    rounds(ward)
    ward.world.clock.step(-60_000)
    rounds(ward)
    ward.run(1)
    [row] = [row for row in journal(ward) if isinstance(row, EventRow) and row.event.kind is EventKind.CLOCK]
    # Wall time is read in whole milliseconds.
    assert row.event.detail in ("-60000 ms", "-59999 ms")


def test_full_disk_costs_rounds_and_nothing_else() -> None:
    """It is counted and said once a minute; with space again the journal goes on, its events kept."""
    ward = ward_of()
    rounds(ward)
    ward.disk.capacity_bytes = ward.disk.used_bytes() + 1_000_000
    with capture_logs() as logs:
        for _ in range(3):
            rounds(ward)
        ward.run(1)
    assert counted(ward, DROPPED) == 3
    assert len([line for line in logs if line["event"] == "lag_journal_not_written"]) == 1
    assert "are free" in trouble(ward)
    ward.disk.capacity_bytes = None
    rounds(ward)
    ward.run(1)
    assert trouble(ward) == ""
    assert counted(ward, DROPPED) == 3


def test_reload_turns_it_off_and_on_and_changes_its_pace() -> None:
    """Off: nothing is written and nothing looked at."""
    ward = ward_of()
    rounds(ward)
    ward.wanted["lag"] = {"enabled": False}
    assert ward.edit().accepted
    before = counted(ward, ROUNDS)
    ward.run(60)
    assert (counted(ward, ROUNDS), ward.node.recording.recorder.last) == (before, None)
    ward.wanted["lag"] = {"every": "1s"}
    assert ward.edit().accepted
    ward.run(60)
    assert 50 <= counted(ward, ROUNDS) - before <= 70


def test_fault_in_a_round_is_told_and_the_next_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect here may not end the journal, still less the node."""
    ward = ward_of()
    rounds(ward)
    samplers = ward.node.recording.recorder._samplers
    assert samplers is not None
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(samplers[1], "round", lambda: 1 / 0)
        ward.run(30)
    assert [line["event"] for line in logs].count("lag_round_failed") == 1
    assert counted(ward, DROPPED) >= 2
    rounds(ward)
    ward.run(1)
    assert trouble(ward) == ""
