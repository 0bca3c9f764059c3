"""A topic that comes and goes while messages wait for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.facts import PromiseBroken
from tests.simulation.fleeting import Fleeting, FleetingAccount
from tests.simulation.plan import run_seed, run_timer_seed
from tests.simulation.world import Report

HELD = {(0, 0): "1-0"}


@pytest.mark.parametrize(("run", "seed"), [(run_seed, 5), (run_timer_seed, 9)])
def test_each_message_comes_once_over_all_lives_of_its_topic(run: Callable[[int], Report], seed: int) -> None:
    """Levels and timers are refused while it is gone, delivered after it, cancelled meanwhile.

    The second finds a start that takes a refused timer from its slot, and from the checkpoint as well.
    """
    events = run(seed).events
    assert events["topic_deleted"]
    wanted = ("log_timed_message_refused", "log_delayed_message_refused", "fleeting_cancelled", "fleeting_code_14")
    assert all(events[name] for name in wanted)


@pytest.mark.parametrize(
    ("sent", "found", "promise"),
    [
        ({}, HELD, "nobody sent"),
        ({"1-0": Fleeting(in_level=True, outcome="stored")}, HELD | {(1, 0): "1-0"}, "came 2 times"),
        ({"1-0": Fleeting(in_level=True, outcome="refused")}, HELD, "was refused and came"),
        ({"1-0": Fleeting(in_level=True, outcome="stored")}, {}, "is lost"),
        ({"1-0": Fleeting(in_level=True, outcome="stored", asked=True, answer="cancelled")}, HELD, "was cancelled"),
        ({"1-0": Fleeting(in_level=True, outcome="stored", asked=True, answer="tooLate")}, {}, "too late"),
    ],
)
def test_account_finds(sent: dict[str, Fleeting], found: dict[tuple[int, int], str], promise: str) -> None:
    """Each way in which a message may be wronged."""
    with pytest.raises(PromiseBroken, match=promise):
        FleetingAccount(sent).check(found, doubtful=False)


def test_account_lets_pass_what_may_be() -> None:
    """A publish that was not answered may have come, a cancel that was not answered may have been in time."""
    sent = {"1-0": Fleeting(in_level=True), "1-1": Fleeting(in_level=True, outcome="stored", asked=True)}
    FleetingAccount(sent).check(HELD, doubtful=False)
