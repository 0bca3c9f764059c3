"""Rows by columns: the same rows as the other decoder gives, and the same bytes refused."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from lag.journal.column_rows import Piece, PieceDecoder
from lag.journal.columns import QUEUES, Key, Row
from lag.journal.rows import RowDecoder, RowEncoder
from tests.unit.lag.journal.test_rows import Rows, encoded
from tests.unit.lag.samples import NOW_MS, fleet, keys, queue_samples

Decoded = list[tuple[Key, int, Row]]


def rows_of(pieces: list[Piece]) -> Decoded:
    """Return pieces as rows, in their order."""
    return [
        (key, time_ms, values)
        for keys_, moments, columns in pieces
        for key, time_ms, values in zip(keys_, moments, zip(*columns, strict=True), strict=True)
    ]


def by_pieces(decoder: PieceDecoder, data: bytes) -> Decoded | None:
    """Return the rows of a section; None: it is refused."""
    try:
        return rows_of(decoder.pieces(data, NOW_MS))
    except ValueError:
        return None


def by_rows(decoder: RowDecoder, data: bytes) -> Decoded | None:
    """Likewise by the other decoder."""
    try:
        return list(decoder.rows(data, NOW_MS))
    except ValueError:
        return None


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.tuples(keys, queue_samples), max_size=8), max_size=5))
def test_any_rows_are_those_of_the_other_decoder(sections: list[Rows]) -> None:
    """In any order, queues missing, repeated and new ones in between, clocks going back."""
    encoder, decoder, other = RowEncoder(QUEUES), PieceDecoder(QUEUES), RowDecoder(QUEUES)
    for rows in sections:
        data = encoded(encoder, rows)
        found = by_pieces(decoder, data)
        assert found is not None
        assert found == by_rows(other, data)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(keys, queue_samples), max_size=3), st.binary(min_size=1, max_size=60), st.integers(0, 200))
@example([], b"\x01", 0)
@example([], b"\x00\x03\x02", 0)
def test_bytes_that_nobody_wrote_are_refused_by_both_or_mean_the_same(rows: Rows, data: bytes, at: int) -> None:
    """Behind a right section, alone, and in the middle of one."""
    whole = encoded(RowEncoder(QUEUES), rows)
    for wrong in (data, whole[: at % (len(whole) + 1)] + data, whole[: at % (len(whole) + 1)]):
        decoder, other = PieceDecoder(QUEUES), RowDecoder(QUEUES)
        assert by_pieces(decoder, whole) == by_rows(other, whole)
        # A share may be no number, which is not even like itself.
        assert repr(by_pieces(decoder, wrong)) == repr(by_rows(other, wrong))


def test_a_column_without_a_change_is_the_same_object() -> None:
    """So that whoever makes arrays of columns makes few; all queues of a snapshot are one piece."""
    encoder, decoder = RowEncoder(QUEUES), PieceDecoder(QUEUES)
    found = [decoder.pieces(encoded(encoder, rows, rows[0][1].time_ms), rows[0][1].time_ms) for rows in fleet(3, 40, 4)]
    assert [len(pieces) for pieces in found] == [1] * 4
    [second], [third] = found[1:3]
    assert second.keys is third.keys
    names = [column.name for column in QUEUES.columns]
    pairs = zip(names, second.columns, third.columns, strict=True)
    same = {name for name, before, after in pairs if before is after}
    assert {"start", "start_ms", "held_key", "paused", "matched"} <= same
    assert not same & {"end", "committed", "end_ms"}
    assert second.moments != third.moments
