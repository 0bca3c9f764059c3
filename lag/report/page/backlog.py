"""What is in backlogs, as a bounded number of rows; as a table, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from itertools import groupby
from typing import Final

from lag.report import texts
from lag.report.data import AgeBin, Incident, LagReportData, QueueFigures
from lag.report.page.markdown import plain

# The report as tables for other programs: CSV of the queues at the window's end, and of the incidents.


def queues_csv(report: LagReportData) -> str:
    """Return the queues at the window's end, a row each; what is not known is empty."""
    rows = ((part.cluster, part.group, *astuple(each)) for part in report.groups for each in part.queues)
    return csv_of(("cluster", "group", *(field.name for field in fields(QueueFigures))), rows)


def incidents_csv(report: LagReportData) -> str:
    """Return the incidents of all groups, a row each."""
    rows = ((part.cluster, part.group, *astuple(each)) for part in report.groups for each in part.incidents)
    return csv_of(("cluster", "group", *(field.name for field in fields(Incident))), rows)


def csv_of(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([csv_cell(each) for each in row] for row in rows)
    return out.getvalue()


def csv_cell(value: object) -> object:
    """A name that a spreadsheet would take for a formula gets a quote before it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


FORMATS: Final = ("table", "markdown", "csv", "json")
AGE_SECONDS: Final = (0, 1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800)
"""Where ranges of ages begin; the last has no end."""
SIZE_BYTES: Final = (0, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
KINDS: Final = {
    "queue": "Queues",
    "age": "By age",
    "size": "By size",
    "key": "Keys with the most messages",
    "order_key": "Keys whose oldest message waits longest",
    "tag": "Tags",
    "duplicate": "Ids that are there more than once",
    "missing": "Not readable",
    "scheduled": "Waiting for their time, by where they go",
    "due": "Waiting for their time, by when they are due",
}
"""What rows are of, in the order in which they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogRow:
    """So many messages of a group's backlog that have something in common.

    Attributes:
        group: The group; "" of what waits for its time, which is in no group's backlog yet.
        kind: What they have in common: one of `KINDS`.
        name: Its value: `topic / queue`, a range, a key, a tag, an id; "" messages that have none.
        messages: How many there are; of an id those beyond the first; of what is missing the offsets.
        bytes: Bytes of their records.
        oldest_seconds: Age of the oldest; null: there is none, or it cannot be read. Of what waits for its time, how
            long the first one is overdue; null: none is.
        detail: For people: the offsets of a queue, how many are overdue and when the others are due.
    """

    group: str
    kind: str
    name: str
    messages: int
    bytes: int = 0
    oldest_seconds: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """All of it.

    Attributes:
        data: The store that was read.
        read_ms: When; ages are of then.
        rows: By group, kind (as `KINDS` has them), and as they are to be shown.
    """

    data: str
    read_ms: int
    rows: Sequence[BacklogRow]


def rendered(backlog: Backlog, form: str) -> str:
    """Return a backlog in one of `FORMATS`."""
    if form == "json":
        return json.dumps(asdict(backlog), ensure_ascii=False) + "\n"
    if form == "csv":
        return _csv(backlog)
    return "\n".join((_markdown if form == "markdown" else _table)(backlog)) + "\n"


def age_bins(backlog: Backlog, group: str) -> list[AgeBin]:
    """Return a group's backlog by age, as a report draws it; none: the group has none."""
    counts = {row.name: row.messages for row in backlog.rows if (row.group, row.kind) == (group, "age")}
    bins = [AgeBin(from_seconds=low, to_seconds=high, messages=0) for low, high in _ranges(AGE_SECONDS)]
    return [
        AgeBin(from_seconds=each.from_seconds, to_seconds=each.to_seconds, messages=counts.get(name, 0))
        for each, name in zip(bins, age_names(), strict=True)
    ] if counts else []  # fmt: skip


def age_names() -> list[str]:
    """Return the names of the ranges of ages."""
    return [_range(texts.duration(low), None if high is None else texts.duration(high), low)
            for low, high in _ranges(AGE_SECONDS)]  # fmt: skip


def due_names() -> list[str]:
    """Return the names of the ranges of times until something is due; the first is of what is overdue."""
    return ["overdue", *(f"in {name}" for name in age_names())]


def size_names() -> list[str]:
    """Return the names of the ranges of sizes."""
    return [_range(_size(low), None if high is None else _size(high), low) for low, high in _ranges(SIZE_BYTES)]


def _ranges(starts: Sequence[int]) -> list[tuple[int, int | None]]:
    return list(zip(starts, (*starts[1:], None), strict=True))


def _range(low: str, high: str | None, least: int) -> str:
    if high is None:
        return f"over {low}"
    return f"{low} to {high}" if least else f"under {high}"


def _size(count: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count // unit} {name}"
    return f"{count} B"


def _markdown(backlog: Backlog) -> Iterator[str]:
    yield f"# Backlog of {plain(backlog.data)}"
    yield from ("", f"Read {texts.moment(backlog.read_ms)} UTC.")
    for group, kind, rows in _parts(backlog):
        yield from ("", f"## {plain(_heading(group, kind))}", "")
        yield from ("| name | messages | bytes | oldest | |", "| --- | ---: | ---: | ---: | --- |")
        for row in rows:
            yield f"| {' | '.join(plain(each) for each in _cells(row))} |"
    if not backlog.rows:
        yield from ("", "No group has a backlog.")


def _table(backlog: Backlog) -> Iterator[str]:
    yield f"Backlog of {backlog.data}, read {texts.moment(backlog.read_ms)} UTC"
    for group, kind, rows in _parts(backlog):
        cells = [("name", "messages", "bytes", "oldest", ""), *(_cells(row) for row in rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(5)]
        yield from ("", _heading(group, kind))
        for name, *figures, detail in cells:
            numbers = "  ".join(f"{each:>{width}}" for each, width in zip(figures, widths[1:4], strict=True))
            yield f"  {name:<{widths[0]}}  {numbers}  {detail}".rstrip()
    if not backlog.rows:
        yield from ("", "No group has a backlog.")


def _heading(group: str, kind: str) -> str:
    return f"{group}: {KINDS[kind]}" if group else KINDS[kind]


def _parts(backlog: Backlog) -> Iterator[tuple[str, str, list[BacklogRow]]]:
    for (group, kind), rows in groupby(backlog.rows, key=lambda row: (row.group, row.kind)):
        yield group, kind, list(rows)


def _cells(row: BacklogRow) -> tuple[str, str, str, str, str]:
    """Return what is shown of a row; what a name has that moves the cursor is shown as a question mark."""
    name = "".join(each if each.isprintable() else "?" for each in row.name)
    name = name if len(name) <= 60 else f"{name[:40]}…{name[-19:]}"
    return (name or "(none)", texts.count(row.messages), texts.count(row.bytes), texts.duration(row.oldest_seconds),
            row.detail)  # fmt: skip


def _csv(backlog: Backlog) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(field.name for field in fields(BacklogRow))
    rows: Iterable[tuple[object, ...]] = (astuple(row) for row in backlog.rows)
    writer.writerows([csv_cell(each) for each in row] for row in rows)
    return out.getvalue()
