"""Tables on narrow terminals: nothing that somebody may want to copy is cut."""

from __future__ import annotations

import pytest

from proxy.cli.tables import draw

ID = "7F0000010000" + "2A9F" * 8
COLUMNS = ["group", "topic", "key", "queue", "offset", "id", "where", "attempts", "since", "next try", "behind it"]
RIGHT = (3, 4, 7, 8, 10)
ROW = ["permits-audit", "permits", "case-10011", "0", "900", ID, "out with 127.0.0.1:50312", "473", "2 min", "", "37"]


@pytest.mark.parametrize("width", [40, 80, 100, 132, 200])
def test_identifiers_are_whole_on_one_line_at_any_width(width: int) -> None:
    """Neither an ellipsis nor a break inside a word; lines are no longer than the terminal, or hold one value."""
    text = draw("2 stuck messages", COLUMNS, [ROW, ROW], right=RIGHT, width=width)
    assert "…" not in text
    lines = text.splitlines()
    for value in (ID, "permits-audit", "case-10011", "127.0.0.1:50312"):
        assert sum(value in line for line in lines) == 2, value
    assert all(len(line) <= max(width, len("   id: ") + len(ID)) for line in lines)


def test_what_fits_is_a_table_and_prose_is_folded_at_spaces() -> None:
    """A column of sentences gives way before the table does."""
    rows = [["orders", "the topic accepts no delayed messages, since it is of type FIFO", ID]]
    text = draw("Refused", ["topic", "refused because", "id"], rows, right=(), width=80)
    assert ID in text
    assert "refused because" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "the topic accepts no" in text
    assert "id  " not in text.splitlines()[-1]


def test_records_leave_out_what_is_empty() -> None:
    """Below each other, values have their column's name beside them."""
    text = draw("2 stuck messages", COLUMNS, [ROW, ROW], right=RIGHT, width=60)
    assert f"id: {ID}" in text
    assert "next try" not in text
    assert text.startswith("2 stuck messages\n")
    assert draw("Nothing", COLUMNS, [], right=RIGHT, width=40).startswith("Nothing")
