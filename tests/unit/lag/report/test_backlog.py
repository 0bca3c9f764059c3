"""Backlogs as tables, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json

from lag.report.page.backlog import FORMATS, Backlog, BacklogRow, age_bins, age_names, rendered, size_names
from lag.report.page.charts import age_range

BACKLOG = Backlog(
    data="/data",
    read_ms=1_714_950_000_000,
    rows=[
        BacklogRow(
            group="g", kind="queue", name="t / 0", messages=1_200, bytes=9, oldest_seconds=75.0, detail="3 to 9"
        ),
        BacklogRow(group="g", kind="age", name=age_names()[0], messages=5, bytes=7),
        BacklogRow(group="g", kind="key", name="=a|b\x1b[2J", messages=2, bytes=3, oldest_seconds=0.5),
        BacklogRow(group="h", kind="tag", name="", messages=1),
    ],
)


def test_table_has_a_part_for_each_kind() -> None:
    """Aligned; what is not known is a dash, no name moves the cursor."""
    lines = rendered(BACKLOG, "table").splitlines()
    assert lines[0] == "Backlog of /data, read 2024-05-05 23:00:00 UTC"
    assert lines[2:5] == [
        "g: Queues",
        "  name   messages  bytes      oldest",
        "  t / 0     1\u202f200      9  1 min 15 s  3 to 9",
    ]
    assert "  =a|b?[2J         2      3   0.5 s" in lines
    assert "h: Tags" in lines
    assert "  (none)         1      0       –" in lines


def test_markdown_and_csv_are_safe_to_paste() -> None:
    """No name breaks a table, or is a formula."""
    assert "| =a\\|b?\\[2J | 2 | 3 | 0.5 s |  |" in rendered(BACKLOG, "markdown")
    rows = list(csv.DictReader(io.StringIO(rendered(BACKLOG, "csv"))))
    assert [row["name"][:3] for row in rows] == ["t /", "und", "'=a", ""]
    assert [row["oldest_seconds"] for row in rows] == ["75.0", "", "0.5", ""]


def test_json_has_the_rows() -> None:
    """By the names of their fields."""
    found = json.loads(rendered(BACKLOG, "json"))
    assert found["rows"][0] == {
        "group": "g", "kind": "queue", "name": "t / 0", "messages": 1200, "bytes": 9, "oldest_seconds": 75.0,
        "detail": "3 to 9",
    }  # fmt: skip


def test_no_backlog_says_so() -> None:
    """In words where people read."""
    none = Backlog(data="d", read_ms=0, rows=[])
    assert [form for form in FORMATS if "No group has a backlog." in rendered(none, form)] == ["table", "markdown"]


def test_ages_of_a_report_are_these() -> None:
    """Under the names that charts give them; a group that was not counted has none."""
    bins = age_bins(BACKLOG, "g")
    assert [each.messages for each in bins] == [5, *([0] * (len(bins) - 1))]
    assert [age_range(each) for each in bins] == age_names()
    assert age_bins(BACKLOG, "h") == []
    assert size_names()[0] == "under 256 B"
    assert size_names()[-1] == "over 1 MiB"
