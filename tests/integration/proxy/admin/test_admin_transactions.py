"""Transactions on the admin port: the documents of what is undecided and discarded, page by page, and the table."""

from __future__ import annotations

import pytest

from broker.runtime.steps import run_now
from proxy.operate.lookups.transactions import TransactionQuery, search
from proxy.operate.views.waiting import PendingTransactions, TransactionsAnswer, TransactionSettings
from tests.integration.transaction_tools import Broker, broker


def found(store: Broker, **query: str) -> TransactionsAnswer:
    """The answer to a request."""
    limit = int(query.pop("limit", "100"))
    return run_now(search(store.transactions, TransactionQuery.of(query, limit=limit), now_ms=store.clock.wall_ms()))


def groups_of(answer: TransactionsAnswer) -> list[str]:
    """Producer groups of what is listed, in its order."""
    return [each.group for each in answer.transactions]


def test_undecided_are_listed_page_by_page_and_counted() -> None:
    """`next` goes on where a page ended; counts, settings and the oldest are in every answer."""
    store = broker()
    first = store.half(b"1", group="a")
    for group in ("b", "a", "b"):
        store.half(b"x", group=group)
    answer = found(store, limit="3")
    assert (groups_of(answer), answer.next) == (["a", "b", "a"], 3)
    last = found(store, **{"limit": "3", "from": "3"})
    assert (groups_of(last), last.next) == (["b"], None)
    assert groups_of(found(store, group="b")) == ["b", "b"]
    assert groups_of(found(store, topic="nowhere")) == []
    assert answer.undecided_total == 4
    assert answer.pending == [
        PendingTransactions(topic="t", group="a", count=2),
        PendingTransactions(topic="t", group="b", count=2),
    ]
    assert answer.settings == TransactionSettings(
        timeout_ms=6000, interval_ms=30_000, checks_max=15, discard_seconds=604_800.0
    )
    assert answer.oldest_ms == answer.transactions[0].stored_ms
    assert answer.transactions[0].handle == first
    assert not found(store, limit="0").transactions
    store.commit(first, group="a")
    assert found(store).undecided_total == 3


def test_page_is_made_in_steps() -> None:
    """The loop does other things between some records and the next, also where most are decided, or of other groups."""
    store = broker()
    for number in range(100):
        store.half(b"x", group="a" if number % 10 else "b")
    asked = TransactionQuery.of({"group": "b"}, limit=100)
    steps = search(store.transactions, asked, now_ms=store.clock.wall_ms())
    for _ in range(3):
        # Each ends before the page does; StopIteration would end the test.
        next(steps)
    assert len(groups_of(run_now(steps))) == 10


@pytest.mark.parametrize("query", [{"state": "committed"}, {"from": "-1"}, {"from": "x"}, {"from": "9" * 20}])
def test_request_that_makes_no_sense_is_told_so(query: dict[str, str]) -> None:
    """With the parameter in the sentence."""
    with pytest.raises(ValueError, match=next(iter(query))):
        TransactionQuery.of(query, limit=1)


def test_node_that_is_not_open_has_none() -> None:
    """While it recovers."""
    answer = run_now(search(None, TransactionQuery(10), now_ms=1))
    assert (answer.undecided_total, answer.discarded_total, answer.transactions) == (0, 0, ())
