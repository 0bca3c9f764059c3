"""Queues are shared out evenly, the same for the same input, and change hands only where that needs it."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from upstream.fetch.fetchers import assign

members = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)
counts = st.integers(0, 20)


@given(counts, members, st.dictionaries(st.integers(0, 25), st.sampled_from("abcdefghxyz")))
def test_every_queue_has_one_owner_and_none_has_two_more_than_another(
    count: int, names: list[str], before: dict[int, str]
) -> None:
    """Whoever owned what before, some of them gone, and queues that are gone."""
    owners = assign(range(count), names, before, {})
    assert sorted(owners) == (list(range(count)) if names else [])
    had = Counter(owners.values())
    assert set(had) <= set(names)
    assert max((had[each] for each in names), default=0) - min((had[each] for each in names), default=0) <= 1
    assert owners == assign(range(count), names, before, {})


@given(counts, members, st.sampled_from("xyz"))
def test_no_queue_changes_hands_that_need_not(count: int, names: list[str], new: str) -> None:
    """Somebody comes: what moves goes to him. He leaves: what moves was his. The same again moves nothing."""
    before = assign(range(count), names, {}, {})
    assert assign(range(count), names, before, {}) == before
    joined = assign(range(count), [*names, new], before, {})
    moved = {queue: owner for queue, owner in joined.items() if before.get(queue) != owner}
    assert set(moved.values()) <= {new}
    left = assign(range(count), names, joined, {})
    stayed = {queue: owner for queue, owner in joined.items() if owner != new} if names else {}
    assert {queue: left[queue] for queue in stayed} == stayed


def test_what_is_left_over_goes_to_who_has_less_elsewhere() -> None:
    """Of one queue and two members it is the one without another topic's; else who came first."""
    assert assign([0], ["a", "b"], {}, {"a": 1}) == {0: "b"}
    assert assign([0], ["b", "a"], {}, {}) == {0: "b"}
    assert assign([0, 1, 2], ["a", "b"], {0: "b", 1: "b", 2: "b"}, {}) == {0: "b", 1: "b", 2: "a"}
