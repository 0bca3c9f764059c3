"""Which URL a message goes to, and when one is out."""

from __future__ import annotations

import pytest

from actions.http.options import BreakerOptions
from actions.http.targets import Health, Targets

URLS = ["http://a/x?secret=1", "http://b/x", "http://c/x"]


def targets(urls: list[str] | None = None, *, failures: int = 2) -> Targets:
    """Of three URLs, out after two failures for a second, four at most."""
    return Targets(URLS if urls is None else urls, BreakerOptions(failures=failures, open_ms=1000, open_ms_max=4000))


def place(found: Targets, start: int, now: float = 0.0) -> int | None:
    """Where the URL stands that is picked."""
    ticket = found.pick(start, now)
    return None if ticket is None else ticket.target.place


def test_errors_rotate_through_the_urls() -> None:
    """One URL further per error (R53)."""
    found = targets()
    assert [place(found, 4 + errors) for errors in range(4)] == [1, 2, 0, 1]


def test_url_that_is_out_is_passed_over() -> None:
    """The next one takes its messages."""
    found = targets()
    for _ in range(2):
        ticket = found.pick(1, 0.0)
        assert ticket is not None
        found.failed(ticket, "refused", 0.0)
    assert found.all[1].health is Health.OPEN
    assert [place(found, start) for start in range(3)] == [0, 2, 2]


def test_breaker_goes_through_its_table() -> None:
    """Closed, open, half-open, and back; twice as long after each probe that fails."""
    found = targets(["http://a/"])
    [target] = found.all
    early = found.pick(0, 0.0)
    late = found.pick(0, 0.0)
    assert early is not None
    assert late is not None
    assert not found.failed(early, "reset", 0.0)
    assert target.health.value == "closed"
    assert found.failed(late, "reset", 1.0)
    assert (target.health, target.due, target.since) == (Health.OPEN, 2.0, 0.0)
    # Replies to what was out when it opened change nothing.
    assert not found.ok(early)
    assert not found.failed(late, "reset", 1.5)
    assert (target.health, target.due) == (Health.OPEN, 2.0)
    assert found.pick(0, 1.9) is None
    assert found.wait_ms(1.9) == 100
    assert found.last_reason == "reset"
    for moment, due in ((2.0, 4.0), (4.0, 8.0), (8.0, 12.0)):
        probe = found.pick(0, moment)
        assert probe is not None
        assert probe.is_probe
        assert target.health.value == "half-open"
        assert found.pick(0, moment) is None
        assert found.wait_ms(moment) == 1000
        assert not found.failed(probe, "still", moment)
        assert (target.health, target.due) == (Health.OPEN, due)
    probe = found.pick(0, 12.0)
    assert probe is not None
    assert found.ok(probe)
    assert (target.health, target.failures, target.since) == (Health.CLOSED, 0, None)
    for _ in range(2):
        again = found.pick(0, 20.0)
        assert again is not None
        found.failed(again, "x", 20.0)
    assert target.due == 21.0


def test_probe_that_was_given_up_leaves_the_next_one() -> None:
    """A node that drains says nothing of a URL."""
    found = targets(["http://a/"], failures=1)
    first = found.pick(0, 0.0)
    assert first is not None
    found.failed(first, "x", 0.0)
    probe = found.pick(0, 1.0)
    assert probe is not None
    found.given_up(probe, 1.0)
    assert place(found, 0, 1.0) == 0


def test_ok_forgets_failures_in_a_row() -> None:
    """A single one among many is no outage."""
    found = targets(["http://a/"])
    for _ in range(5):
        ticket = found.pick(0, 0.0)
        assert ticket is not None
        found.failed(ticket, "x", 0.0)
        found.ok(ticket)
    assert found.all[0].health is Health.CLOSED
    assert found.all[0].failed_total == 5


@pytest.mark.parametrize("failures", [0])
def test_breaker_that_is_off_never_opens(failures: int) -> None:
    """`failures: 0`."""
    found = targets(["http://a/"], failures=failures)
    for _ in range(100):
        ticket = found.pick(0, 0.0)
        assert ticket is not None
        assert not found.failed(ticket, "x", 0.0)


def test_url_is_shown_without_its_query() -> None:
    """It may hold a key."""
    assert [each.url for each in targets().all] == ["http://a/x", "http://b/x", "http://c/x"]
