"""The demo's events and its checker: what an honest node shows passes, and every broken promise is named."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.demo.checker import EXAMPLES_MAX, DemoChecker, Tamper
from proxy.demo.events import DemoEvent, Seen, load_events, read_body
from proxy.demo.report import checks_of

EVENTS = load_events(400)


def seen(event: DemoEvent) -> Seen:
    """Return what a message says of an event."""
    return Seen(run="r", sequence=event.sequence, case=event.case, case_sequence=event.case_sequence)


def verdict(checker: DemoChecker) -> dict[str, bool]:
    """Name of each check to whether it passed."""
    return {check.name: check.passed for check in checks_of(checker)}


def play_honestly(observer: DemoChecker | Tamper, events: list[DemoEvent]) -> None:
    """Deliver every event in order, and again at once as long as the observer wants it failed."""
    for event in events:
        while True:
            fail = observer.deliver(seen(event))
            observer.note_outcome(seen(event), success=not fail)
            if not fail:
                break


def case_of(length: int, events: list[DemoEvent]) -> list[DemoEvent]:
    """Events of a case with at least `length` events, none of which is failed on purpose."""
    cases: dict[str, list[DemoEvent]] = {}
    for event in events:
        cases.setdefault(event.case, []).append(event)
    return next(
        case for case in cases.values() if len(case) >= length and not any(event.failures for event in case[:length])
    )


def test_events_are_all_there_in_order_of_time() -> None:
    """8,577 events of 1,434 cases, sorted by time, numbered in run and case, some failed on purpose once or twice."""
    events = load_events()
    assert (len(events), len({event.case for event in events})) == (8577, 1434)
    positions: dict[str, int] = {}
    for sequence, event in enumerate(events):
        assert event.sequence == sequence
        assert event.case_sequence == positions.get(event.case, 0)
        positions[event.case] = event.case_sequence + 1
    failures = [event.failures for event in events]
    assert 300 < sum(count > 0 for count in failures) < 600
    assert set(failures) == {0, 1, 2}
    assert [event.row for event in load_events(10)] == [event.row for event in events[:10]]


def test_body_tells_where_it_belongs() -> None:
    """A body round-trips to run and place, with the row beside it; other bodies belong to nobody."""
    event = EVENTS[17]
    value = json.loads(event.body("r"))
    assert value["concept:name"] == event.row["concept:name"]
    assert read_body(event.body("r")) == seen(event)
    for body in (b"", b"null", b"[]", b"{}", b"\xff", b'{"demo:run": "r"}'):
        assert read_body(body) is None


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_honest_node_passes_in_any_interleaving(seed: int) -> None:
    """Cases may overtake each other freely, retries and the latest event's repeats included."""
    draw = random.Random(seed)
    checker = DemoChecker(EVENTS)
    cases: dict[str, list[DemoEvent]] = {}
    for event in EVENTS:
        cases.setdefault(event.case, []).append(event)
    out: dict[str, tuple[DemoEvent, bool]] = {}
    while cases or out:
        case = draw.choice(sorted({*cases, *out}))
        if case in out:
            event, fail = out.pop(case)
            checker.note_outcome(seen(event), success=not fail)
            if not fail and draw.random() < 0.9:
                cases[case].pop(0)
            if not cases[case]:
                del cases[case]
        else:
            event = cases[case][0]
            out[case] = event, checker.deliver(seen(event))
    assert verdict(checker) == {"delivery": True, "order": True, "retry": True}
    assert checker.complete
    assert checker.deliveries == len(EVENTS) + checker.failures + checker.repeats


def test_event_that_never_comes_fails_delivery() -> None:
    """The missing event is named."""
    checker = DemoChecker(EVENTS)
    victim = case_of(1, EVENTS[::-1])[0]
    play_honestly(checker, [event for event in EVENTS if event is not victim])
    assert not checker.complete
    assert verdict(checker)["delivery"] is False
    assert victim.case in checks_of(checker)[0].findings.examples[0]


def test_events_of_a_case_in_the_wrong_order_fail_order() -> None:
    """Second before first is a violation, however it goes on."""
    checker = DemoChecker(EVENTS)
    first, second = case_of(2, EVENTS)[:2]
    play_honestly(checker, [second, first])
    assert verdict(checker)["order"] is False


def test_two_events_of_a_case_out_at_once_fail_order() -> None:
    """Never two in flight, even if they come in order; the same event after a timeout is a repeat."""
    first, second = case_of(2, EVENTS)[:2]
    checker = DemoChecker(EVENTS)
    checker.deliver(seen(first))
    checker.deliver(seen(first))
    assert (checker.repeats, checker.order.count) == (1, 0)
    checker.deliver(seen(second))
    assert checker.order.count > 0


def test_later_event_before_the_retry_fails_retry() -> None:
    """A failed event comes again before any later one of its case."""
    failing = next(
        event
        for event in EVENTS
        if event.failures and any(e.case == event.case and e.sequence > event.sequence for e in EVENTS)
    )
    later = next(event for event in EVENTS if event.case == failing.case and event.sequence > failing.sequence)
    checker = DemoChecker(EVENTS)
    for event in EVENTS:
        if event.case == failing.case and event.sequence < failing.sequence:
            play_honestly(checker, [event])
    assert checker.deliver(seen(failing))
    checker.note_outcome(seen(failing), success=False)
    assert verdict(checker)["retry"] is False  # It has not come again yet.
    checker.deliver(seen(later))
    assert checker.retries.count == 1
    assert str(failing.case_sequence) in checker.retries.examples[0]


def test_examples_are_bounded() -> None:
    """A run in which everything is missing still prints a few lines."""
    checker = DemoChecker(EVENTS)
    findings = checks_of(checker)[0].findings
    assert (findings.count, len(findings.examples)) == (len(EVENTS), EXAMPLES_MAX)


@pytest.mark.parametrize(("kind", "failed"), [("loss", "delivery"), ("order", "order"), (None, None)])
def test_tampering_fails_the_check_it_names_and_no_other(kind: str | None, failed: str | None) -> None:
    """--break shows that a check can fail; the node has been answered honestly all the same."""
    checker = DemoChecker(EVENTS)
    tamper = Tamper(kind, EVENTS, checker)
    play_honestly(tamper, EVENTS)
    assert tamper.done_count == len(EVENTS)
    assert [name for name, passed in verdict(checker).items() if not passed] == ([failed] if failed else [])


def test_tampering_needs_a_victim() -> None:
    """A run too short for --break says so."""
    with pytest.raises(ValueError, match="more --events"):
        Tamper("order", EVENTS[:1], DemoChecker(EVENTS[:1]))
