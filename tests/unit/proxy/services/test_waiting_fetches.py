"""Fetches that wait: each is answered once, a fault included."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from conf.sections.node import NodeConfig
from proxy.port.reply_slot import ReplySlot
from proxy.services.waiting_fetches import FetchLine, Found, WaitingFetch
from proxy.wire.call import COMPACT, Call
from pyddmq.testing import ManualClock, ManualScheduler


class BrokenFetch(WaitingFetch):
    """Finds nothing at first, and cannot be served then."""

    reads = 0
    listens = False

    def read(self) -> Found | None:
        """Nothing, then a fault."""
        self.reads += 1
        if self.reads > 1:
            raise OSError("a sector cannot be read")
        return None

    def last(self) -> Found:
        """The fault as well."""
        raise OSError("a sector cannot be read")

    def empty(self) -> bytes:
        """Never asked for."""
        return b""

    def listen(self) -> None:
        """Begin."""
        self.listens = True

    def leave(self) -> None:
        """End."""
        self.listens = False


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        ("at once", "wake"),
        ("at once", "linger"),
        ("in its turn", "wake"),
        ("in its turn", "linger"),
        ("in its turn", "start"),
    ],
)
def test_fault_of_a_fetch_that_waits_is_its_answer(begins: str, ends: str) -> None:
    """Whatever it waits for: who wakes it answers for others, too."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    failed: list[str] = []

    def fail(slot: ReplySlot, error: Exception) -> None:
        failed.append(str(error))
        slot.data = b"the fault"

    connection = SimpleNamespace(
        requests=1, received_at=0.0, closed=False, ended=False, quota=None, may_start=lambda _: begins == "at once"
    )
    connection.fail = fail
    slot = ReplySlot(cast("Any", connection), Call(COMPACT, "fetch", 1, 0, b""))
    line = FetchLine("(fetches)", scheduler, NodeConfig)
    fetch = BrokenFetch(line, slot, 50)
    if ends == "start":
        fetch.reads = 1
    fetch.serve()
    if begins == "in its turn":
        assert slot.start is not None
        slot.start()
    if ends == "wake":
        assert fetch.listens
        fetch.wake()
    scheduler.advance(0.05)
    assert failed == ["a sector cannot be read"]
    assert (fetch.listens, line.count) == (False, 0)
