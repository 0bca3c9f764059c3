"""The report for other programs and for chats."""

from __future__ import annotations

import csv
import io
from dataclasses import fields, replace

import pytest

from lag.report.data import QueueFigures
from lag.report.page.backlog import incidents_csv, queues_csv
from lag.report.page.markdown import plain, render_markdown
from tests.unit.lag.report.examples import group_part, report


def test_queues_are_rows_with_the_records_fields() -> None:
    """What is not known is empty, never 0."""
    part = group_part("a", "UNKNOWN", queues=2, height=7)
    part = replace(part, queues=[replace(part.queues[0], lag=None, seconds=None), part.queues[1]])
    rows = list(csv.DictReader(io.StringIO(queues_csv(report([part])))))

    assert list(rows[0]) == ["cluster", "group", *(field.name for field in fields(QueueFigures))]
    assert (rows[0]["lag"], rows[0]["seconds"], rows[0]["committed"]) == ("", "", "1000000")
    assert rows[1]["lag"] == "7"


def test_no_name_becomes_a_formula() -> None:
    """Spreadsheets run what begins with an equals sign."""
    rows = list(csv.reader(io.StringIO(incidents_csv(report([group_part("=1+1", "STOP", height=5)])))))
    assert [row[1] for row in rows[1:]] == ["'=1+1", "'=1+1"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("see https://evil.example", "see https\\://evil.example"),
        ("WWW.evil.example", "WWW\\.evil.example"),
        ("a&#124;b ~~c~~", "a\\&\\#124;b \\~\\~c\\~\\~"),
        ("key \x1b[2J\u202e", "key ?\\[2J?"),
        ("a:b/c", "a:b/c"),
    ],
)
def test_name_is_plain_text_in_markdown(name: str, shown: str) -> None:
    """Keys are in there, which any producer writes."""
    assert plain(name) == shown


def test_markdown_has_findings_gaps_and_a_table() -> None:
    """Names break neither table nor emphasis."""
    text = render_markdown(report([group_part("a|b *c*", "STOP", height=50)], gaps=["node-2: nothing"]))

    assert "- **STOP** a\\|b \\*c\\*: poison message, since " in text
    assert "- node-2: nothing" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 3
    assert table[2].replace("\\|", "").count("|") == table[0].count("|")


def test_finding_has_its_time_its_cost_and_one_advice() -> None:
    """And the evidence as a sentence of its own."""
    text = render_markdown(report([replace(group_part("a", "STOP", height=50), contacts=("night-desk",))]))
    assert "since 19:00, still open after 4 h, 2 times in the window. Call: night-desk.\n" in text
    assert "  One key failed 41 times. Peak lag 50, the oldest message 1.2 s. → Skip or dead-letter" in text
    assert "Start the consumers" not in text


def test_markdown_of_nothing_says_so() -> None:
    """No group is no good news; good news is a sentence, too."""
    assert "the report is empty" in render_markdown(report([]))
    assert "**The only group was OK.**" in render_markdown(report([group_part("a")]))
