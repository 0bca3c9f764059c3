"""The window of what deduplicating producers sent: what it says of numbers, and what it forgets."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.deduplication.numbers import first_number
from broker.deduplication.window import HOLE_MAX, MISSING, OLDER, ProducerWindow
from tests.integration.keyed_tools import FIRST, NAME, window


def test_window_says_what_is_new_stored_older_and_behind_a_gap() -> None:
    """In order, again, too long ago, and too early."""
    known, _ = window()
    assert known.look(NAME, FIRST + 1, 1) is None
    assert known.look(NAME, FIRST, 3) == ()
    known.stored(NAME, FIRST, [10, 20, 30], 1)
    assert known.look(NAME, FIRST, 3) == [10, 20, 30]
    assert known.look(NAME, FIRST + 1, 1) == [20]
    assert known.look(NAME, FIRST + 3, 2) == ()
    assert known.look(NAME, FIRST + 4, 1) is None
    for number in range(3, 20):
        known.stored(NAME, FIRST + number, [number * 10], 1)
    assert known.look(NAME, FIRST, 1) == [OLDER]
    assert known.look(NAME, FIRST + 19, 1) == [190]


def test_last_call_is_known_whole_however_large() -> None:
    """A batch of more messages than the window has."""
    known, _ = window()
    known.stored(NAME, FIRST, list(range(100)), 1)
    assert known.look(NAME, FIRST, 100) == list(range(100))


def test_what_damage_took_is_missing_and_may_be_stored() -> None:
    """A record of the log behind lost ones; the lost ones come again, in part with what is there."""
    known, _ = window()
    known.seen(NAME, FIRST + 2, 300, 1)
    assert known.look(NAME, FIRST, 4) == [MISSING, MISSING, 300, MISSING]
    assert known.look(NAME, FIRST, 2) == ()
    known.stored(NAME, FIRST, [700, 800], 1)
    assert known.look(NAME, FIRST, 3) == [700, 800, 300]
    known.seen(NAME, FIRST + 1, 900, 1)
    assert known.look(NAME, FIRST + 1, 1) == [800], "a copy is not taken for the first"
    known.seen(NAME, FIRST + HOLE_MAX * 2, 5000, 1)
    assert known.look(NAME, FIRST + HOLE_MAX * 2 - 1, 1) == [OLDER]


def test_producers_are_forgotten_by_silence_and_number() -> None:
    """The one that was silent longest goes first; each is counted."""
    known, metrics = window()
    names = [NAME[:-1] + b"%d" % n for n in range(5)]
    for at, name in enumerate(names[:3]):
        known.stored(name, first_number(name), [at], at)
    known.stored(names[0], first_number(names[0]) + 1, [5], 5)
    known.stored(names[3], first_number(names[3]), [6], 6)
    assert set(known.producers) == {names[0], names[2], names[3]}
    known.forget(1004)
    assert set(known.producers) == {names[0], names[3]}
    assert metrics.value("pyddmq_producers_forgotten_total", "producers") == 1
    assert metrics.value("pyddmq_producers_forgotten_total", "silent") == 1
    assert metrics.value("pyddmq_producers_known") == 2


def test_receipts_of_all_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that somebody makes up cost no more than that."""
    monkeypatch.setattr("broker.deduplication.window.RECEIPTS_MAX", 50)
    known, metrics = window(messages=20, producers=1000)
    for number in range(100):
        name = b"FE%010X%08X" % (number, 1)
        known.stored(name, first_number(name), list(range(10)), 1)
        assert sum(len(each.places) for each in known.producers.values()) <= 50
    assert metrics.value("pyddmq_producers_forgotten_total", "receipts") == 95


def test_numbers_lost_in_a_hole_stay_missing_while_the_window_is_trimmed() -> None:
    """What was lost may come again; taken for older than the window, it would be answered and never stored."""
    known, _ = window()
    known.stored(NAME, FIRST, [10], 1)
    known.seen(NAME, FIRST + 3, 40, 1)
    for number in range(4, 30):
        known.stored(NAME, FIRST + number, [number * 10], 1)
    assert known.look(NAME, FIRST + 1, 2) == ()
    assert known.look(NAME, FIRST, 1) == [OLDER]


def test_producer_of_a_checkpoint_goes_on_where_it_was() -> None:
    """It is counted, and forgotten in its turn like one that was heard."""
    known, metrics = window(silence_ms=1000)
    known.restore(NAME, ProducerWindow(FIRST + 5, array("q", [50, 60]), 7))
    assert known.look(NAME, FIRST + 4, 3) == [OLDER, 50, 60]
    assert known.look(NAME, FIRST + 7, 1) == ()
    assert metrics.value("pyddmq_producers_known") == 1
    known.forget(1008)
    assert (known.look(NAME, FIRST + 7, 1), metrics.value("pyddmq_producers_known")) == (None, 0)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6), st.booleans()), max_size=40))
def test_window_never_says_of_a_new_message_that_it_is_stored(calls: list[tuple[int, int, bool]]) -> None:
    """Against a list of all that each producer sent: a place is the right one, and the next numbers are next."""
    known, _ = window(messages=3, producers=2)
    sent: dict[bytes, list[int]] = {}
    for now_ms, (who, count, again) in enumerate(calls):
        name = NAME[:-1] + b"%d" % who
        first, all_sent = first_number(name), sent.setdefault(name, [])
        if name not in known.producers:
            all_sent.clear()
        if again:
            found = known.look(name, first, len(all_sent) + 1) if all_sent else ()
            assert found is not None
            assert all(place in (OLDER, known_place) for place, known_place in zip(found, all_sent, strict=False))
            assert list(found[-1:]) in ([], [MISSING])
            continue
        number = first + len(all_sent)
        assert known.look(name, number, count) == ()
        places = [100 * now_ms + each for each in range(count)]
        known.stored(name, number, places, now_ms)
        all_sent += places
        assert known.look(name, number, count) == places
        assert known.look(name, number + count + 1, 1) is None


def test_names_that_one_owner_makes_up_cost_no_other_its_own() -> None:
    """A stranger with ten times as many names as there is room for: those of others stay, its own oldest go."""
    known, _ = window(producers=100)
    own = [number.to_bytes(10).hex().upper().encode() for number in range(1, 6)]
    known.owner_of = lambda name: "shop" if name in own else "stranger"
    for name in own:
        known.stored(name, first_number(name), [1], 1)
    made_up = [number.to_bytes(10).hex().upper().encode() for number in range(1000, 2000)]
    for name in made_up:
        known.stored(name, first_number(name), [2], 2)
    assert all(known.next_of(name) is not None for name in own)
    assert len(known.producers) <= 100
    assert known.next_of(made_up[-1]) is not None
    assert known.next_of(made_up[0]) is None


def test_places_of_one_owner_cost_no_other_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all places together are too many, the owner with most of them loses some."""
    monkeypatch.setattr("broker.deduplication.window.RECEIPTS_MAX", 200)
    known, _ = window(producers=100, messages=50)
    own = b"0" * 20
    known.owner_of = lambda name: "shop" if name == own else "stranger"
    known.stored(own, first_number(own), [1] * 10, 1)
    for number in range(1000, 1020):
        name = number.to_bytes(10).hex().upper().encode()
        known.stored(name, first_number(name), [2] * 50, 2)
    assert known.next_of(own) == first_number(own) + 10
