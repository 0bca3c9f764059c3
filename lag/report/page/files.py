"""A report in each of its forms."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from lag.report.data import LagReportData, as_plain
from lag.report.page.backlog import Backlog, age_bins, incidents_csv, queues_csv
from lag.report.page.markdown import render_markdown

FORMATS: Final = ("html", "markdown", "json", "csv", "incidents-csv")


def rendered(report: LagReportData, form: str) -> str:
    """Return a report in one of `FORMATS`."""
    if form == "html":
        from lag.report.page.page import render_html

        return render_html(report)
    if form == "json":
        return json.dumps(as_plain(report), ensure_ascii=False) + "\n"
    return {"markdown": render_markdown, "csv": queues_csv, "incidents-csv": incidents_csv}[form](report)


def with_ages(report: LagReportData, backlog: Backlog) -> LagReportData:
    """Return a report with its groups' backlogs by age."""
    return replace(report, groups=[replace(part, ages=age_bins(backlog, part.group)) for part in report.groups])
