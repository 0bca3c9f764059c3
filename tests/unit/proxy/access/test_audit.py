"""Who changed what and who was denied what: two trails, of which one flood pushes nothing out of the other."""

from __future__ import annotations

import asyncio
import errno

import pytest

from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from conf.sections.admin import AdminConfig
from proxy.access.audit import Audit, AuditUnwritable, Who
from proxy.access.audit_file import LINES, LOST
from pyddmq.testing import ManualClock, SimDisk

ANNA = Who("anna", "token", "5f0c9a1b2c3d4e5f", "192.0.2.7")


class World:
    """An audit trail on a simulated disk."""

    def __init__(self) -> None:
        self.disk, self.clock, self.metrics = SimDisk(), ManualClock(), Metrics()
        self.audit = self.opened()

    def opened(self) -> Audit:
        audit = Audit(runtime_of(self.disk, self.clock, metrics=self.metrics), AdminConfig)
        audit.open("/data")
        return audit

    def reported(self) -> list[tuple[str, str, int]]:
        return [(each.what, each.outcome, each.count) for each in self.audit.recent(100)[0]]


def test_change_is_written_before_it_is_begun_and_after() -> None:
    """The second line names the first; both say who, from where and by which token, and a restart shows them."""
    world = World()
    number = asyncio.run(world.audit.begin("pause", ANNA, '{"group":"billing"}'))
    [asked] = world.audit.recent(10)[0]
    assert (asked.outcome, asked.asked, asked.at_ms) == ("asked", '{"group":"billing"}', world.clock.wall_ms())
    world.clock.advance(1)
    world.audit.ended("pause", "refused", ANNA, of=number, why="there is none")
    world.audit.close()
    world.audit = world.opened()
    ended, asked = world.audit.recent(10)[0]
    assert (ended.of, ended.outcome, ended.why) == (asked.number, "refused", "there is none")
    for each in (ended, asked):
        assert (each.principal, each.way, each.proof, each.address) == tuple(ANNA)


def test_change_that_cannot_be_written_down_is_refused_in_a_sentence() -> None:
    """A full disk, a broken one, and a store that is not open yet or any more."""
    world = World()
    world.disk.fail("write", error=errno.ENOSPC, path_part="audit")
    with pytest.raises(AuditUnwritable, match=r"cannot be written \(No space left on device\), so changes are refused"):
        asyncio.run(world.audit.begin("pause", ANNA, ""))
    assert world.metrics.value(LOST, "changes") == 1
    world.disk.heal()
    asyncio.run(world.audit.begin("pause", ANNA, ""))
    world.audit.close()
    with pytest.raises(AuditUnwritable, match="starting, or has stopped"):
        asyncio.run(world.audit.begin("pause", ANNA, ""))


def test_denials_of_a_kind_are_one_line_a_minute() -> None:
    """The first at once, the others with their number, in a trail of their own."""
    world = World()
    for _ in range(1_000):
        world.audit.denied("GET /", ANNA, resource="*", reason="right")
    world.audit.denied("GET /", ANNA, resource="", reason="proof")
    assert world.metrics.value(LINES, "denials") == 2
    world.clock.advance(61)
    world.audit.flush()
    assert sorted(each[2] for each in world.reported()) == [1, 1, 999]
    assert world.metrics.value(LINES, "changes") == 0
    assert world.disk.list("/data/pyddmq/audit") == ["denials.jsonl"]


def test_outcome_that_finds_no_space_is_counted_and_the_node_goes_on() -> None:
    """The change is made by then: the log has it."""
    world = World()
    number = asyncio.run(world.audit.begin("pause", ANNA, ""))
    world.disk.fail("write", error=errno.ENOSPC, path_part="audit")
    world.audit.ended("pause", "done", ANNA, of=number)
    assert world.metrics.value(LOST, "changes") == 1
    assert world.reported() == [("pause", "asked", 1)]


def test_long_bodies_are_cut() -> None:
    """A line stays below what is read back."""
    world = World()
    asyncio.run(world.audit.begin("cancel", ANNA, "x" * 60_000))
    world.audit.close()
    world.audit = world.opened()
    [entry] = world.audit.recent(10)[0]
    assert len(entry.asked) == 4_000


def test_nothing_is_made_before_there_is_something_to_say() -> None:
    """A start that nobody asks anything leaves no files."""
    world = World()
    world.audit.flush()
    world.audit.close()
    assert world.disk.list("/data/pyddmq/audit") == []


def test_newest_comes_first_over_both_trails() -> None:
    """However many there are of each."""
    world = World()
    for at in range(6):
        world.clock.advance(61)
        world.audit.ended("sign_in", "done", ANNA)
        world.audit.denied(f"GET /{at}", ANNA, resource="", reason="right")
    entries, total = world.audit.recent(4)
    assert total == 12
    assert [each.at_ms for each in entries] == sorted((each.at_ms for each in entries), reverse=True)
    assert len({each.at_ms for each in entries}) == 2
