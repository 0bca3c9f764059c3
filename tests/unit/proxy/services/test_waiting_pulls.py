"""Pulls that wait together: each is answered once, whatever the end of another one leads to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from proxy.port.reply_slot import ReplySlot
from proxy.services.waiting_pulls import Lingers, WaitingPull
from proxy.wire.call import COMPACT, Call
from proxy.wire.values import PullRequest
from pyddmq.testing import ManualClock, ManualScheduler


def test_end_of_one_linger_that_wakes_another_pull_leaves_no_other_one_waiting() -> None:
    """The one that got a batch keeps it, and those behind it end in their turn."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    answers: list[tuple[str, Any]] = []

    def send(slot: ReplySlot, _group: Any, batch: Any) -> None:
        slot.answer(batch)

    lingers = Lingers(clock=clock, scheduler=scheduler, start=lambda *_: None, send=send)
    group: Any = SimpleNamespace(name="billing", park=lambda *_: object(), unpark=lambda _: None)
    pulls: dict[str, WaitingPull] = {}

    def answered(name: str) -> Any:
        def note(_slot: ReplySlot, data: bytes, _lost: object) -> None:
            answers.append((name, data))
            if name == "first":
                pulls["second"].wake("batch")  # type: ignore[arg-type]  # as it comes to `send`

        return SimpleNamespace(requests=1, received_at=0.0, closed=False, quota=None, answered=note)

    for name in ("first", "second", "third"):
        slot = ReplySlot(answered(name), Call(COMPACT, "pull", 1, 0, b""))
        pulls[name] = WaitingPull(slot, PullRequest("billing", None, None, 50, [], None), group, lingers)
        pulls[name].park(50)
    scheduler.advance(0.05)
    assert [name for name, _ in answers] == ["first", "second", "third"]
    assert [data == "batch" for _, data in answers] == [False, True, False]
