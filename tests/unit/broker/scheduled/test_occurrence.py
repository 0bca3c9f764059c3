"""Occurrences of loops against a plain model: one step after the other, as DDMQ's reference has it (section 5.1)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.scheduled.recurring.occurrence import GAP_MAX, GROWING, LOOP, NUMBER_MAX, ONCE, Occurrence, parse_id

UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"
BEGIN = 1_700_000_000


def loops() -> st.SearchStrategy[Occurrence]:
    """Loops of every kind, from any occurrence that they have."""
    kinds = st.one_of(
        st.tuples(st.just(LOOP), st.integers(3, 5000)),
        st.tuples(st.just(GROWING), st.one_of(st.integers(2, 400), st.integers(2, NUMBER_MAX))),
    )
    made = st.integers(0, 40)
    return st.builds(
        lambda kind, expire, times, made: Occurrence(
            BEGIN, kind[0], BEGIN + expire, times + made, made, kind[1], 0, UUID
        ),
        kinds,
        st.integers(0, 3_000_000),
        st.integers(1, 300),
        made,
    )


def plain(first: Occurrence) -> list[Occurrence]:
    """All occurrences from one on: D6 and D7 of the reference, word for word."""
    found = []
    at_s, timed = first.at_s, first.made
    while not (first.expire_s < at_s or first.times <= timed):
        found.append(first._replace(at_s=at_s, made=timed))
        timed += 1
        at_s += first.interval if first.kind == LOOP else min(first.interval**timed, 86_400)
    return found


@given(loops())
def test_next_walks_the_plain_model(first: Occurrence) -> None:
    """Each occurrence leads to the next one, and the last to none."""
    walked, each = [], first if first.valid else None
    while each is not None:
        walked.append(each)
        each = each.next()
    assert walked == plain(first)


@given(loops(), st.integers(-10, 3_000_100))
@example(Occurrence(BEGIN, GROWING, BEGIN + 10**6, 9, 0, 2, 0, UUID), 2)
def test_missed_counts_what_the_model_has_by_then(first: Occurrence, passed: int) -> None:
    """How many are due by a moment is told without walking them."""
    due = [each for each in plain(first) if each.at_s <= BEGIN + passed]
    assert first.missed(BEGIN + passed) == len(due)


@given(loops(), st.integers(0, 400))
def test_later_is_so_many_steps_on(first: Occurrence, steps: int) -> None:
    """Passing over occurrences ends where walking ends."""
    walked = plain(first)
    assert first.later(steps) == (walked[steps] if steps < len(walked) else None)


def test_gaps_grow_to_a_day() -> None:
    """Base 10: 10, 100, 1000, 10,000 seconds, then a day each, however large the power."""
    first = Occurrence(BEGIN, GROWING, BEGIN + 10**9, NUMBER_MAX, 0, 10, 0, UUID)
    gaps = [first._replace(made=made).gap for made in (0, 1, 2, 3, 4, 16, 17, NUMBER_MAX - 1)]
    assert gaps == [10, 100, 1000, 10_000, GAP_MAX, GAP_MAX, GAP_MAX, GAP_MAX]
    assert [first._replace(interval=2, made=made).gap for made in (15, 16)] == [65_536, GAP_MAX]


def test_missed_of_many_years_takes_no_walk() -> None:
    """A loop of 3 s over ten years is counted and passed over in one step."""
    first = Occurrence(BEGIN, LOOP, 9_999_999_999, NUMBER_MAX, 0, 3, 0, UUID)
    years = 10 * 365 * 86_400
    assert first.missed(BEGIN + years) == years // 3 + 1
    last = first.later(years // 3)
    assert last is not None
    assert (last.at_s, last.made) == (BEGIN + years, years // 3)


@given(
    st.builds(
        Occurrence,
        st.integers(1_000_000_000, 9_999_999_999),
        st.sampled_from((ONCE, LOOP, GROWING)),
        st.integers(1_000_000_000, 9_999_999_999),
        *[st.integers(0, NUMBER_MAX)] * 4,
        st.uuids().map(str),
    )
)
def test_id_says_all_there_is(each: Occurrence) -> None:
    """An id is read back to what it was made of."""
    assert parse_id(each.id) == each


def test_id_has_ddmqs_form() -> None:
    """The order of the numbers is DDMQ's, whose libraries take ids apart."""
    loop = Occurrence(1507609164, LOOP, 1507609214, 9, 1, 4, 0, UUID)
    assert loop.id == f"1507609164-3-1507609214-9-1-4-0-{UUID}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        UUID,
        f"150760916-2-1507609214-0-0-0-0-{UUID}",
        f"15076091640-2-1507609214-0-0-0-0-{UUID}",
        f"1507609164-22-1507609214-0-0-0-0-{UUID}",
        f"1507609164-2-1507609214-0-0-0-{UUID}",
        f"1507609164-2-1507609214-0-0-0-0-0-{UUID}",
        f"1507609164-2-1507609214-0-0--1-0-{UUID}",
        f"1507609164-2-1507609214-0-0-2147483648-0-{UUID}",
        f"1507609164-2-1507609214-0-99999999999-0-0-{UUID}",
        f"1507609164-2-1507609214-0-0-0-0-{UUID.upper()}",
        f"1507609164-2-1507609214-0-0-0-0-{UUID}-1-10000",
        f"1507609164-2-1507609214-0-0-0-0-{UUID}\n",
        f"١507609164-2-1507609214-0-0-0-0-{UUID}",
    ],
)
def test_other_texts_are_no_ids(text: str) -> None:
    """R103, and numbers of more than 31 bits (W88)."""
    assert parse_id(text) is None


@given(loops(), st.integers(0, 60))
def test_every_occurrence_tells_the_first(loop: Occurrence, steps: int) -> None:
    """A cancel may name any occurrence of a loop, and finds it by its first."""
    first = loop._replace(made=0, times=loop.times + 100)
    for each in plain(first)[: steps + 1]:
        assert each.first == first


def test_single_messages_have_no_next() -> None:
    """Type 2 is delivered once, whenever that is."""
    once = Occurrence(BEGIN, ONCE, BEGIN + 100, 0, 0, 0, 0, UUID)
    assert (once.missed(BEGIN - 1), once.missed(BEGIN), once.next(), once.later(1)) == (0, 1, None, None)
    assert once.first == once
