"""The demo of delays: what its checker finds, and that each of its checks can fail."""

from __future__ import annotations

import pytest

from proxy.demo.delay_checker import DelayChecker


def failed(checker: DelayChecker) -> dict[str, list[str]]:
    """Examples of the checks that failed."""
    return {check.name: check.findings.examples for check in checker.checks() if not check.passed}


def whole_run(checker: DelayChecker) -> None:
    """A run in which all goes well."""
    checker.expect("level", "level", [5_000])
    checker.expect("timer 0", "timer", [1_500])
    checker.expect("loop", "loop", [1_000, 4_000])
    checker.expect("cancelled", "cancel", [6_000])
    checker.cancel("cancelled", "cancelled", "cancelled")
    checker.cancel("unknown", "unknown", "unknown")
    for name, wall_ms in (("loop", 1_001), ("timer 0", 1_500), ("loop", 4_070), ("level", 5_003)):
        assert not checker.complete
        checker.deliver(name, wall_ms)
    assert checker.complete


def test_flawless_run_passes() -> None:
    """All came, none early, and lateness is told."""
    checker = DelayChecker()
    whole_run(checker)
    assert not failed(checker)
    assert (checker.late_ms, checker.last_due_ms, checker.count("loop")) == ([1, 0, 70, 3], 6_000, 2)


@pytest.mark.parametrize(
    ("name", "kind", "moments", "finding"),
    [
        ("level", "level", [4_999], "level came 1 ms early"),
        ("timer 0", "timer", [1_499], "timer 0 came 1 ms early"),
        ("timer 0", "timer", [1_500, 1_600], "timer 0 came 2 times"),
        ("timer 0", "timer", [], "timer 0 came 0 of 1 times"),
        ("loop", "loop", [1_000], "loop came 1 of 2 times"),
        ("loop", "loop", [1_000, 3_999], "loop came 1 ms early"),
        ("loop", "loop", [1_000, 4_000, 7_000], "loop came 3 times"),
    ],
)
def test_wrong_deliveries_are_found(name: str, kind: str, moments: list[int], finding: str) -> None:
    """Early, twice, never, too seldom, too often."""
    checker = DelayChecker()
    checker.expect(name, kind, {"level": [5_000], "timer": [1_500], "loop": [1_000, 4_000]}[kind])
    for wall_ms in moments:
        checker.deliver(name, wall_ms)
    assert failed(checker) == {kind: [finding]}


def test_cancels_are_judged_by_answer_and_effect() -> None:
    """A wrong answer, and a delivery after a right one."""
    checker = DelayChecker()
    checker.expect("cancelled", "cancel", [6_000])
    checker.cancel("cancelled", "cancelled", "cancelled")
    checker.deliver("cancelled", 6_000)
    checker.cancel("too late", "cancelled", "too late")
    assert failed(checker) == {
        "cancel": [
            "cancelled came after its cancel was answered",
            "the cancel of too late was answered 'cancelled', not 'too late'",
        ]
    }


@pytest.mark.parametrize(("spoil", "check"), [("early", "timer"), ("cancel", "cancel")])
def test_spoilt_run_fails_in_one_check(spoil: str, check: str) -> None:
    """What `--break` does."""
    checker = DelayChecker(spoil)
    whole_run(checker)
    assert list(failed(checker)) == [check]
