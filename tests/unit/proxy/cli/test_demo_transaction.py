"""The verdict of the demo of transactions: what is right passes, and everything wrong fails by its name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.demo.transaction.story import MESSAGES, Story, answer_of, judge, spoil, unknown_numbers
from pyddmq import LocalState

CHECKS_MAX = 15


def told() -> Story:
    """A run in which everything is as it should be."""
    story = Story()
    for number in range(MESSAGES):
        story.ids[number] = f"id-{number}"
        for times in range(1, CHECKS_MAX + 1):
            if story.check(number, times) is not LocalState.UNKNOWN:
                break
    for place, number in enumerate(unknown_numbers()):
        story.given_up[number] = CHECKS_MAX
        story.decide(number, "commit" if place % 2 == 0 else "rollback")
        story.refused[number] = "it was decided before"
    for number in sorted(story.committed):
        story.deliver(number)
    return story


def failed(story: Story) -> list[str]:
    """Names of the checks that failed."""
    return [check.name for check in judge(story, checks_max=CHECKS_MAX) if not check.passed]


def test_three_are_committed_three_rolled_back_and_four_stay_unknown() -> None:
    """By number modulo 3, and a run that keeps to it passes."""
    answers = [answer_of(number) for number in range(MESSAGES)]
    assert [answers.count(state) for state in (LocalState.COMMIT, LocalState.ROLLBACK, LocalState.UNKNOWN)] == [3, 3, 4]
    story = told()
    assert (story.answered, story.arrived, failed(story)) == (True, True, [])


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (lambda story: story.deliver(1), "committed"),
        (lambda story: story.delivered.pop(1), "committed"),
        (lambda story: story.delivered.update([2]), "rolled-back"),
        (lambda story: story.early.append(4), "unseen"),
        (lambda story: story.checks.update({3: -1}), "checked"),
        (lambda story: story.checks.pop(5), "checked"),
        (lambda story: story.given_up.pop(6), "by-hand"),
        (lambda story: story.given_up.update({6: 14}), "by-hand"),
        (lambda story: story.refused.update({9: ""}), "by-hand"),
    ],
)
def test_what_is_wrong_fails_the_check_of_its_name(wrong: Callable[[Story], object], name: str) -> None:
    """And no other."""
    story = told()
    wrong(story)
    assert failed(story) == [name]


def test_delivery_before_the_commit_was_told_is_early() -> None:
    """A consumer must not have it before the producer, or the operator, said commit."""
    story = Story()
    story.deliver(1)
    story.check(1, 1)
    assert story.early == [1]


def test_spoilt_stories_fail() -> None:
    """What --break does."""
    story = told()
    spoil(story, "visible")
    assert failed(story) == ["unseen", "rolled-back"]
    story = told()
    spoil(story, "loss")
    assert failed(story) == ["committed"]
    story = told()
    spoil(story, None)
    assert failed(story) == []
