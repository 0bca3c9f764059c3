"""Whole numbers in few bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lag.varints import VALUE_MAX, Taker, put_signed, put_text, put_varint


@given(st.lists(st.integers(0, 2 * VALUE_MAX)), st.lists(st.integers(-VALUE_MAX, VALUE_MAX)), st.lists(st.text()))
def test_numbers_and_texts_come_back(counts: list[int], differences: list[int], texts: list[str]) -> None:
    """One after the other."""
    out = bytearray()
    for each in counts:
        put_varint(out, each)
    for each in differences:
        put_signed(out, each)
    for text in texts:
        put_text(out, text)
    taker = Taker(bytes(out))
    assert [taker.varint() for _ in counts] == counts
    assert [taker.signed() for _ in differences] == differences
    assert [taker.text() for _ in texts] == texts
    assert taker.at == len(out)


@pytest.mark.parametrize(("value", "size"), [(0, 1), (63, 1), (-64, 1), (64, 2), (-8192, 2), (8192, 3)])
def test_small_differences_are_short(value: int, size: int) -> None:
    """A byte up to 64 either way."""
    out = bytearray()
    put_signed(out, value)
    assert len(out) == size


def test_text_that_is_not_unicode_is_written_all_the_same() -> None:
    """Half a surrogate pair becomes a question mark: no key of a message stops the journal."""
    out = bytearray()
    put_text(out, "a\ud800b")
    assert Taker(bytes(out)).text() == "a?b"


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 11])
def test_number_that_does_not_end_is_refused(data: bytes) -> None:
    """It runs over the end, or is longer than any."""
    with pytest.raises(ValueError, match="does not end"):
        Taker(data).varint()


def test_text_that_runs_over_the_end_is_refused() -> None:
    """Before memory is taken for it."""
    out = bytearray()
    put_varint(out, 1 << 60)
    with pytest.raises(ValueError, match="run over the end"):
        Taker(bytes(out)).text()
