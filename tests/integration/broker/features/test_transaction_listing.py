"""Lists of transactions: pages that are bounded, cursors that go on where they were cut, and one found by its id."""

from __future__ import annotations

from typing import TypeVar

import pytest

from broker.runtime.steps import run_now
from broker.transaction import listing
from broker.transaction.listing import Page
from broker.transaction.names import State, parse_handle
from broker.transaction.outcomes import EndOutcome
from broker.transaction.settings import CheckSettings
from tests.integration.transaction_tools import GROUP, TOPIC, Broker, broker

T = TypeVar("T")
AT_ONCE = CheckSettings(timeout_ms=1_000, interval_ms=1_000, checks_max=1)


def keys(page: Page) -> list[str]:
    """Keys of what a page lists."""
    return [each.key for each in page.found]


def filled(*names: str, **options: object) -> Broker:
    """Halves with these keys, one after the other."""
    made = broker(segment_bytes=65_536, **options)  # type: ignore[arg-type]
    for name in names:
        made.half(b"body", block=f"KEYS\x01{name}\x02".encode())
    return made


def discard_all(made: Broker) -> None:
    """Let the one check of each pass without an answer."""
    made.scheduler.advance(1.1)
    made.transactions.fetch_checks(GROUP, 1_000)
    made.scheduler.advance(1.1)
    assert made.undecided == 0


def test_page_ends_at_its_size_and_the_cursor_goes_on_behind_it() -> None:
    """Every half is on one page, in the order of their arrival; the last page says that there is no more."""
    made = filled(*"abcde")
    first = run_now(made.transactions.pending(count_max=2))
    assert (keys(first), first.cursor) == (["a", "b"], 2)
    second = run_now(made.transactions.pending(count_max=2, cursor=2))
    assert (keys(second), second.cursor) == (["c", "d"], 4)
    last = run_now(made.transactions.pending(count_max=2, cursor=4))
    assert (keys(last), last.cursor) == (["e"], None)


def test_page_that_is_exactly_full_at_the_end_has_no_cursor() -> None:
    """Nobody is sent on to an empty page."""
    made = filled("a", "b")
    page = run_now(made.transactions.pending(count_max=2))
    assert (keys(page), page.cursor) == (["a", "b"], None)


def test_search_that_matches_little_is_cut_where_it_has_read_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter without a match does not read the whole queue in one call: the page says where to go on."""
    monkeypatch.setattr(listing, "SCAN_MAX", 3)
    made = filled(*"abcdefg")
    page = run_now(made.transactions.pending(topic="nothing goes there"))
    assert (keys(page), page.cursor) == ([], 3)
    page = run_now(made.transactions.pending(topic="nothing goes there", cursor=6))
    assert (keys(page), page.cursor) == ([], None)


def test_filters_are_by_topic_and_by_producer_group() -> None:
    """Both must hold where both are given."""
    made = broker()
    made.half(b"1", group="g", block=b"KEYS\x011\x02")
    made.half(b"2", group="h", block=b"KEYS\x012\x02")
    made.half(b"3", group="h", topic="filling", block=b"KEYS\x013\x02")
    assert keys(run_now(made.transactions.pending(group="h"))) == ["2", "3"]
    assert keys(run_now(made.transactions.pending(topic=TOPIC))) == ["1", "2"]
    assert keys(run_now(made.transactions.pending(topic="filling", group="h"))) == ["3"]
    assert keys(run_now(made.transactions.pending(topic="filling", group="g"))) == []


def test_decided_halves_are_passed_over_and_a_cursor_below_them_is_no_error() -> None:
    """As one is that was handed out before they were decided."""
    made = filled("a", "b", "c")
    [first] = run_now(made.transactions.pending(count_max=1)).found
    made.roll_back(first.handle)
    page = run_now(made.transactions.pending(cursor=0))
    assert (keys(page), page.cursor) == (["b", "c"], None)
    beyond = run_now(made.transactions.pending(cursor=1_000))
    assert beyond == Page([], None)


def test_list_tells_of_checks_and_of_the_last_remark() -> None:
    """How often it was asked about, whether a producer has the question now, and why it could not answer."""
    made = filled("a", checks=CheckSettings(timeout_ms=1_000, interval_ms=5_000))
    made.scheduler.advance(1.1)
    [check] = made.transactions.fetch_checks(GROUP, 1)
    [view] = run_now(made.transactions.pending()).found
    assert (view.checks, view.check_out, view.remark, view.state) == (1, True, "", "undecided")
    made.end(check.handle, State.UNKNOWN, from_check=True, remark="the bank is silent")
    [view] = run_now(made.transactions.pending()).found
    assert (view.checks, view.remark) == (1, "the bank is silent")


def test_discarded_ones_are_listed_until_they_are_resumed() -> None:
    """They have no handle: nothing decides them before that."""
    made = filled("a", "b", checks=AT_ONCE)
    assert run_now(made.transactions.discarded()) == Page([], None)
    discard_all(made)
    page = run_now(made.transactions.discarded())
    assert [(each.key, each.state, each.handle, each.checks) for each in page.found] == [
        ("a", "discarded", "", 1),
        ("b", "discarded", "", 1),
    ]
    reported: list[EndOutcome] = []
    made.transactions.resume(0, reported.append)
    made.scheduler.run_until_idle()
    assert keys(run_now(made.transactions.discarded())) == ["b"]
    assert keys(run_now(made.transactions.pending())) == ["a"]


def test_one_is_found_by_its_id_and_by_its_handle_in_all_that_it_was() -> None:
    """The newest first: undecided again, after it was discarded, after it had been checked in vain."""
    made = filled("a", checks=AT_ONCE)
    [first] = run_now(made.transactions.pending()).found
    parsed = parse_handle(first.handle)
    assert parsed is not None
    discard_all(made)
    made.transactions.resume(0, lambda _: None)
    made.scheduler.run_until_idle()
    for text in (first.handle, parsed.transaction_id):
        found = run_now(made.transactions.finding(text))
        assert [each.state for each in found] == ["undecided", "resumed", "moved"]
        assert {each.id for each in found} == {parsed.transaction_id}
        assert [each.physical for each in found] == sorted((each.physical for each in found), reverse=True)


def test_search_for_nothing_known_finds_nothing() -> None:
    """Neither an id of another message nor a text that is none is an error."""
    made = filled("a")
    for text in ("", "7F00000100002A9F0000000000000000", "no such thing"):
        assert run_now(made.transactions.finding(text)) == []


@pytest.mark.parametrize(("state", "said"), [(State.COMMIT, "committed"), (State.ROLLBACK, "rolledBack")])
def test_decided_one_is_found_with_how_it_ended(state: State, said: str) -> None:
    """As long as its bits are kept; after that it is only known to be decided."""
    made = filled("a", "b")
    [first, _] = run_now(made.transactions.pending()).found
    made.end(first.handle, state)
    assert [each.state for each in run_now(made.transactions.finding(first.id))] == [said]
    second = run_now(made.transactions.pending()).found[0]
    made.end(second.handle, State.ROLLBACK)
    made.close()
    made = broker(made.disk, made.clock, segment_bytes=65_536)
    assert [each.state for each in run_now(made.transactions.finding(first.id))] == ["decided"]
