"""The report as tables for other programs: CSV of the queues at the window's end, and of the incidents."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields

from lag.report.data import Incident, LagReportData, QueueFigures


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
