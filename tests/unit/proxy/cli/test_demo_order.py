"""The judgement on the demo of order: an honest story passes, and every broken promise is named."""

from __future__ import annotations

import pytest

from proxy.demo.order.story import Moment, Story, judge, spoil
from pyddmq.testing import ManualClock


def told(text: str) -> list[Moment]:
    """Read moments as `A accept out`."""
    words = [line.split() for line in text.split(", ")]
    return [Moment(0.0, rider, step, what, "w") for rider, step, what in words]


HONEST = told(
    "A call out, A call done, B call out, B call done, A accept out, A accept hangs, B accept out, B accept done, "
    "B pay out, B pay done, A accept out, A accept done, A pay out, A pay done"
)


def failed(moments: list[Moment]) -> list[str]:
    """Names of the checks that fail."""
    return [check.name for check in judge("key", moments) if not check.passed]


def test_honest_story_passes() -> None:
    """In order, retried in place, and B done meanwhile."""
    assert failed(HONEST) == []


def without(rider: str, step: str, what: str) -> list[Moment]:
    """Leave one kind of moment out."""
    return [each for each in HONEST if each[1:4] != (rider, step, what)]


@pytest.mark.parametrize(
    ("moments", "names"),
    [
        (without("B", "pay", "done"), ["key-delivery", "key-others"]),
        (without("A", "accept", "hangs"), ["key-order", "key-retry"]),
        (HONEST[:8] + HONEST[10:], ["key-delivery", "key-others"]),
        (HONEST[:8] + HONEST[10:] + HONEST[8:10], ["key-others"]),
        (HONEST[:6] + told("A pay out, A pay done") + HONEST[6:12], ["key-order", "key-retry"]),
        (HONEST + told("B call out"), ["key-order"]),
        (HONEST[:10], ["key-delivery", "key-retry"]),
        (spoil("order", HONEST), ["key-order", "key-retry"]),
        (spoil("loss", HONEST), ["key-delivery", "key-others"]),
    ],
)
def test_broken_promise_is_named(moments: list[Moment], names: list[str]) -> None:
    """What is lost, out of order, not retried, or waits for another rider."""
    assert failed(moments) == names


def test_first_to_get_the_step_hangs() -> None:
    """Once, and the story is over when every step is done."""
    story = Story(ManualClock())
    assert story.take("A", "accept", "one")
    assert not story.take("A", "accept", "two")
    for rider, step in {(each.rider, each.step) for each in HONEST}:
        assert not story.finished.is_set()
        story.done(rider, step, "two")
    assert story.finished.is_set()
    assert [each.what for each in story.moments()][:3] == ["out", "hangs", "out"]
