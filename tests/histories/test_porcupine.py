"""Porcupine's models find each broken history, and nothing in those of seeds of the simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.histories.journal import Journal
from tests.histories.porcupine import answers, build
from tests.simulation.plan import Plan, Step, draw, draw_timers, make_world

LEASE, CANCEL = "lease of a key", "cancel against fire"
DECISION, NUMBERS = "decision of a half", "deduplication numbers"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built."""
    return build(tmp_path_factory.mktemp("porcupine"))


class Run:
    """A good run: two messages of a key, two timers, two transactions, a producer that numbers its messages."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.turn = 0
        self.add("group", group="g", timeout=5.0)
        for id_, due in ((0, None), (1, None), (7, ["at", 9]), (8, ["at", 9])):
            self.add("send", id=id_, who="p", topic="orders", keys={"g": "k" if due is None else ""}, due=due)
        for id_ in (0, 1):
            self.get(id_)
            self.add("ack", group="g", who="c", place=["orders", "0", id_], success=True)
        self.change(7, None, "cancelled")
        self.change(8, ["at", 12], "rescheduled")
        self.get(8)
        self.change(8, None, "tooLate")
        for name, state, result in (("a", "commit", "taken"), ("a", "rollback", "refused"), ("b", "rollback", "taken")):
            self.decide(name, state, result)
        for number, count, result in ((5, 1, "stored"), (6, 3, "stored"), (6, 3, "repeat"), (11, 1, "gap")):
            self.send_numbered(number, count, result)
        self.add("visible", id="a")

    def add(self, op: str, **fields: Any) -> None:
        """Add an event, a turn and a tenth of a second after the one before."""
        self.turn += 1
        self.journal.add(op, self.turn / 10, turn=self.turn, life=0, **fields)

    def get(self, id_: int) -> None:
        """Have a client get a message."""
        place, asked = ["orders", "0", id_], {"asked": self.turn + 1, "asked_t": (self.turn + 1) / 10}
        self.add("get", group="g", who="c", place=place, id=id_, late=False, **asked)

    def change(self, id_: int, due: object, result: str) -> None:
        """Change a message that waits."""
        self.add("change", id=id_, due=due)
        self.add("changed", id=id_, result=result)

    def decide(self, id_: str, state: str, result: str) -> None:
        """Decide a transaction; the answer does not come where it is unknown."""
        call = self.turn
        self.add("decide", id=id_, state=state, call=call)
        if result != "unknown":
            self.add("decided", id=id_, state=state, result=result, call=call)

    def send_numbered(self, number: int, count: int, result: str) -> None:
        """Send messages that have numbers."""
        call = self.turn
        self.add("try", who="n", number=number, count=count, call=call)
        if result != "unknown":
            self.add("tried", call=call, result=result)


def _hold_twice(run: Run) -> None:
    for _ in range(2):
        run.get(0)


def _deliver_cancelled(run: Run) -> None:
    run.get(7)


def _cancel_delivered(run: Run) -> None:
    run.change(8, None, "cancelled")


def _decide_both_ways(run: Run) -> None:
    run.decide("b", "commit", "taken")


def _show_rolled_back(run: Run) -> None:
    run.add("visible", id="b")


def _lose_decision(run: Run) -> None:
    run.decide("c", "commit", "taken")


def _store_twice(run: Run) -> None:
    run.send_numbered(6, 3, "stored")


def _store_behind_a_gap(run: Run) -> None:
    run.send_numbered(10, 1, "stored")


def _repeat_what_never_came(run: Run) -> None:
    run.send_numbered(9, 1, "repeat")


BROKEN = {
    _hold_twice: LEASE,
    _deliver_cancelled: CANCEL,
    _cancel_delivered: CANCEL,
    _decide_both_ways: DECISION,
    _show_rolled_back: DECISION,
    _lose_decision: DECISION,
    _store_twice: NUMBERS,
    _store_behind_a_gap: NUMBERS,
    _repeat_what_never_came: NUMBERS,
}


def judged(program: Path, journal: Journal, folder: Path) -> dict[str, object]:
    """Return the answer of each model."""
    journal.save(folder / "history.jsonl")
    return {model: each["answer"] for model, each in answers(program, folder / "history.jsonl").items()}


def test_a_good_history_is_explained(program: Path, tmp_path: Path) -> None:
    """What was not answered may have happened or not; what was answered, and the end, say which."""
    run = Run()
    run.decide("d", "commit", "unknown")
    run.decide("e", "commit", "unknown")
    run.add("visible", id="e")
    run.send_numbered(9, 1, "unknown")
    run.send_numbered(9, 1, "repeat")
    run.send_numbered(10, 1, "unknown")
    run.send_numbered(10, 1, "stored")
    assert judged(program, run.journal, tmp_path) == dict.fromkeys((LEASE, CANCEL, DECISION, NUMBERS), "ok")


@pytest.mark.parametrize(("spoil", "model"), BROKEN.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_history_is_found(spoil: Callable[[Run], None], model: str, program: Path, tmp_path: Path) -> None:
    """By the model that it contradicts, and no other."""
    run = Run()
    spoil(run)
    found = judged(program, run.journal, tmp_path)
    assert {name for name, answer in found.items() if answer != "ok"} == {model}, found


CHANGES = tuple(Step("change_timers", f"changes {number}", 0.5) for number in range(3))


@pytest.mark.parametrize("plan", [draw(2, faults=4), replace(draw_timers(1), steps=CHANGES)], ids=["seed", "timers"])
def test_seeds_are_explained(plan: Plan, program: Path, tmp_path: Path) -> None:
    """Each model has something to judge in one of them."""
    world, run = make_world(plan)
    with capture_logs():
        run()
    world.ledger.journal.save(tmp_path / "history.jsonl")
    found = answers(program, tmp_path / "history.jsonl")
    assert {each["answer"] for each in found.values()} == {"ok"}, found
    wanted = [CANCEL] if plan.timers else [LEASE, DECISION, NUMBERS]
    assert all(found[model]["things"] for model in wanted), found
