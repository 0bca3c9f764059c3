"""The rules find each broken history, by its name and nothing else, and no fault in a good one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.histories.journal import Event, Journal, in_order, load
from tests.histories.rules import RULES, judge

GROUP = "billing"


class Run:
    """A small good run: three messages of one key, one that waits, one transaction, one reader with a position."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.turn = 0
        self.add("group", group=GROUP, timeout=5.0)
        self.add("wall", ms=1_000_000)
        for id_ in range(3):
            self.add("send", id=id_, who="p", topic="orders", keys={GROUP: "k"}, due=None)
            self.add("sent", id=id_, result="stored", place=["orders", "0", id_])
        for id_ in range(3):
            self.get(id_)
            self.ack(id_)
        self.add("send", id=7, who="p", topic="orders", keys={GROUP: ""}, due=["at", 1_100_000])
        self.add("sent", id=7, result="stored", place=None)
        self.turn += 1_000
        self.get(7, 3)
        self.ack(7, 3)
        self.add("half", id="t", who="p")
        self.add("decide", id="t", state="commit")
        self.add("decided", id="t", state="commit", result="taken")
        self.add("poll", who="r", queue=["orders", "0"], offsets=[0, 1, 2, 3])
        self.add("end", life=0, acks_lost=0.0)
        for offset, id_ in enumerate((0, 1, 2, 7)):
            self.add("stored", id=id_, place=["orders", "0", offset], at=offset)
        self.add("visible", id="t")

    def add(self, op: str, **fields: object) -> None:
        """Add an event, a turn and a tenth of a second after the one before."""
        self.turn += 1
        self.journal.add(op, self.turn / 10, self.turn, turn=self.turn, **{"life": 0, **fields})

    def get(self, id_: int, offset: int | None = None, who: str = "c") -> None:
        """Have a client get a message."""
        place = ["orders", "0", id_ if offset is None else offset]
        asked = {"asked": self.turn + 1, "asked_t": (self.turn + 1) / 10, "late": False}
        self.add("get", group=GROUP, who=who, place=place, id=id_, copy=place, **asked)

    def ack(self, id_: int, offset: int | None = None) -> None:
        """Have it acknowledged, and that answered."""
        place = ["orders", "0", id_ if offset is None else offset]
        self.add("ack", group=GROUP, who="c", place=place, success=True)
        self.add("acked", group=GROUP, place=place, copy=place)

    def first(self, op: str, **fields: object) -> Event:
        """Return the first event like this."""
        return next(
            each
            for each in self.journal.events
            if each["op"] == op and all(each[name] == value for name, value in fields.items())
        )

    def drop(self, op: str, **fields: object) -> None:
        """Take the first event like this out."""
        self.journal.events.remove(self.first(op, **fields))


def faults(run: Run) -> list[str]:
    """Return the rules that a run breaks."""
    return sorted({each.partition(":")[0] for each in judge(run.journal.ordered())})


def _lose(run: Run) -> None:
    run.drop("stored", id=1)


def _lose_commit(run: Run) -> None:
    run.drop("visible")


def _store_twice(run: Run) -> None:
    run.add("stored", id=2, place=["orders", "1", 0], at=9)


def _rename(run: Run) -> None:
    run.add("send", id=8, who="p", topic="orders", keys={}, due=None)
    run.add("sent", id=8, result="unknown", place=["orders", "0", 1])


def _refuse(run: Run) -> None:
    run.first("sent", id=2)["result"] = "refused"


def _roll_back(run: Run) -> None:
    run.first("decide")["state"] = run.first("decided")["state"] = "rollback"


def _swap(run: Run) -> None:
    run.first("stored", id=0)["at"], run.first("stored", id=2)["at"] = 2, 0


def _forget(run: Run) -> None:
    for op in ("get", "ack", "acked"):
        run.drop(op, place=["orders", "0", 2])


def _drop(run: Run) -> None:
    run.drop("ack", place=["orders", "0", 2])
    run.drop("acked", place=["orders", "0", 2])


def _redeliver(run: Run) -> None:
    run.get(2)


def _undo_commit(run: Run) -> None:
    # Forgiven as an ack, since its node went: but the coordinator had it.
    place = ["orders", "0", 2]
    run.add("committed", group=GROUP, place=place)
    run.add("uncommitted", node="", since=0.0, until=1e9)
    run.add("end", life=0, acks_lost=1e9)
    run.get(2)
    run.journal.events[-1]["life"] = 1
    run.ack(2)


def _hold_twice(run: Run) -> None:
    # The second message comes to another client while the first has the one before; the first's answer follows.
    second, first = run.first("get", id=1), run.first("ack", place=["orders", "0", 0])
    second.update(n=first["n"] - 0.5, turn=first["turn"] - 1, t=first["t"], who="d")
    run.first("ack", place=["orders", "0", 1])["who"] = "d"


def _overtake(run: Run) -> None:
    one, two = run.first("get", id=1), run.first("ack", place=["orders", "0", 1])
    run.first("get", id=2).update(n=one["n"] - 0.5, turn=one["turn"] - 1, t=one["t"] - 10, asked=0, asked_t=-10.0)
    assert two["turn"] > one["turn"]


def _skip(run: Run) -> None:
    run.first("poll")["offsets"] = [0, 1, 3]


def _go_back(run: Run) -> None:
    run.first("poll")["offsets"] = [0, 1, 1, 2, 3]


def _come_early(run: Run) -> None:
    run.first("send", id=7)["due"] = ["at", 1_200_000]


def _lie(run: Run) -> None:
    run.add("change", id=7, due=None)
    run.add("changed", id=7, result="cancelled")


def _be_late_early(run: Run) -> None:
    at = run.first("sent", id=7)["n"]
    for op, result in (("change", {"due": None}), ("changed", {"result": "tooLate"})):
        run.journal.add(op, at / 10, at + 0.5, id=7, **result)


def _contradict(run: Run) -> None:
    run.add("decided", id="t", state="rollback", result="taken")


BROKEN: tuple[tuple[Callable[[Run], None], list[str]], ...] = (
    (_lose, ["lost_write"]),
    (_lose_commit, ["lost_write"]),
    (_store_twice, ["duplicate", "unseen"]),
    (_rename, ["inconsistent_offset"]),
    (_refuse, ["aborted_read"]),
    (_roll_back, ["aborted_read"]),
    (_swap, ["key_overtaken", "nonmonotonic_send"]),
    (_forget, ["unseen"]),
    (_drop, ["unseen"]),
    (_redeliver, ["undone_ack"]),
    (_undo_commit, ["undone_commit"]),
    (_hold_twice, ["key_overtaken", "two_holders"]),
    (_overtake, ["key_overtaken"]),
    (_skip, ["poll_skip"]),
    (_go_back, ["nonmonotonic_poll"]),
    (_come_early, ["early_timer"]),
    (_lie, ["lying_cancel"]),
    (_be_late_early, ["lying_cancel"]),
    (_contradict, ["aborted_read", "contradicted_decision"]),
)


def test_a_good_history_has_no_fault() -> None:
    """Nothing is found where nothing is wrong."""
    assert not judge(Run().journal.ordered())


@pytest.mark.parametrize(("spoil", "found"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_history_is_found(spoil: Callable[[Run], None], found: list[str]) -> None:
    """Each kind of fault is found by the rule that it breaks."""
    run = Run()
    spoil(run)
    assert faults(run) == found


def test_every_rule_has_a_broken_history() -> None:
    """No rule is without proof that it can find something."""
    assert {rule.__name__ for rule in RULES} == {name for _, found in BROKEN for name in found}


def test_an_ack_that_went_with_the_power_may_be_undone() -> None:
    """What the promises excuse is no fault: acks of the last moments before a power loss."""
    run = Run()
    end = run.first("end")
    end["acks_lost"] = end["t"] - run.first("acked", place=["orders", "0", 2])["t"] + 0.1
    run.get(2)
    run.journal.events[-1]["life"] = 1
    run.ack(2)
    assert not faults(run)
    end["acks_lost"] = 0.05
    assert faults(run) == ["undone_ack"]


@pytest.mark.parametrize("answered", [True, False])
def test_an_ack_counts_by_the_moment_of_its_answer(answered: bool) -> None:
    """A message whose ack was taken late, and went with the power, comes again after the next of its key."""
    run = Run()
    end = run.first("end")
    acked = run.first("acked", place=["orders", "0", 1])
    end["acks_lost"] = end["t"] - acked["t"] + 0.05
    if not answered:
        run.drop("acked", place=["orders", "0", 1])
    for id_ in (1, 2):
        run.get(id_)
        run.journal.events[-1]["life"] = 1
        run.ack(id_)
    assert not faults(run)
    end["acks_lost"] = 0.05 if answered else 0.0
    assert "key_overtaken" in faults(run)


def test_a_message_that_a_reset_took_back_comes_again() -> None:
    """Nor what an operator asked for; what was passed over need not come."""
    run = Run()
    run.add("reset", group=GROUP, topic="orders", to={"0": 2})
    run.get(2)
    run.ack(2)
    run.get(7, 3)
    run.ack(7, 3)
    assert not faults(run)
    # The answer to a success of before the reset comes after it, and says nothing of what is delivered then.
    crossed = Run()
    place = ["orders", "0", 2]
    crossed.drop("acked", place=place)
    crossed.add("reset", group=GROUP, topic="orders", to={"0": 2})
    crossed.add("acked", group=GROUP, place=place, copy=place)
    crossed.get(2)
    crossed.ack(2)
    crossed.get(7, 3)
    crossed.ack(7, 3)
    assert not faults(crossed)
    passed = Run()
    for op in ("get", "ack", "acked"):
        passed.drop(op, place=["orders", "0", 2])
    passed.add("reset", group=GROUP, topic="orders", to={"0": 3})
    passed.get(7, 3)
    passed.ack(7, 3)
    assert not faults(passed)


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    """A line of JSON for each event, whatever order they were added in."""
    run = Run()
    run.journal.save(tmp_path / "history.jsonl")
    assert load(tmp_path / "history.jsonl") == run.journal.ordered()
    assert in_order(reversed(run.journal.events)) == run.journal.ordered()
