"""The account of loops finds what is wrong, in histories of a few lines. The seeds have such producers in every run."""

from __future__ import annotations

import pytest

from broker.scheduled.recurring.occurrence import LOOP, Occurrence
from tests.simulation.facts import PromiseBroken
from tests.simulation.loops import CANCELLED, TOO_LATE, UNKNOWN, Came, LoopAccount, walk

FIRST = Occurrence(1_700_000_000, LOOP, 1_700_001_000, 3, 0, 4, 0, "00000000-0000-0000-0000-000000000000")


def came(*numbers: int, early_ms: int = 0) -> list[Came]:
    """These occurrences, each at its moment, a hundred bytes behind the one before."""
    whole = walk(FIRST)
    return [Came(whole[each].id, 100 * place, whole[each].at_s * 1000 - early_ms) for place, each in enumerate(numbers)]


def test_what_is_right_passes() -> None:
    """All of it; nothing of an add that was not answered; up to a cancel; moved ahead."""
    LoopAccount(FIRST, added=True).check(came(0, 1, 2))
    LoopAccount(FIRST).check([])
    LoopAccount(FIRST, added=True, cancel_asked=True, ended_at=200).check(came(0, 1))
    LoopAccount(FIRST, added=True, moved_ms=[FIRST.at_s * 1000 - 500]).check(came(0, 1, 2, early_ms=500))


@pytest.mark.parametrize(
    ("account", "found", "promise"),
    [
        (LoopAccount(FIRST, added=True), came(0, 1), 1),
        (LoopAccount(FIRST), came(0), 1),
        (LoopAccount(FIRST, added=True), came(0, 2), 1),
        (LoopAccount(FIRST, added=True), came(0, 1, 1, 2), 1),
        (LoopAccount(FIRST, added=True), came(0, 1, 2, early_ms=1), 8),
        (LoopAccount(FIRST, added=True, cancel_asked=True, ended_at=200), came(0, 1, 2), 8),
        (LoopAccount(FIRST, added=True, cancel_asked=True, complete=True), came(0, 1), 1),
    ],
    ids=["lost", "half", "gap", "twice", "early", "cancelled", "too late"],
)
def test_what_is_wrong_is_found(account: LoopAccount, found: list[Came], promise: int) -> None:
    """Each of them by the promise that it breaks."""
    with pytest.raises(PromiseBroken) as broken:
        account.check(found)
    assert broken.value.promise == promise


@pytest.mark.parametrize("outcomes", [(UNKNOWN,), (CANCELLED, TOO_LATE), (TOO_LATE, CANCELLED)])
def test_cancels_that_contradict_are_found(outcomes: tuple[int, ...]) -> None:
    """What was acknowledged is known, and an answer stays what it was."""
    account = LoopAccount(FIRST, added=True, cancel_asked=True)
    *before, last = outcomes
    for outcome in before:
        account.answered(outcome, 100)
    with pytest.raises(PromiseBroken):
        account.answered(last, 100)
