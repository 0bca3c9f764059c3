"""Lag on the status page: the status of each group (or of each queue of one), cause and forecast, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from proxy.admin.tables import Cell, table
from proxy.operate.lag_texts import UNKNOWN, advices, behind, forecast, forecast_of_all
from proxy.operate.text import amount
from proxy.operate.views.lag import LagAnswer, LagGroup, LagQueue

ADVICES_MAX = 8
_CHIPS = {"OK": "good", "ERR": "bad"}
_WORSE = ("OK", "WARN", "UNKNOWN", "ERR")


def lag_section(answer: LagAnswer | None, group: str | None = None) -> str:
    """Return the section.

    Args:
        answer: The last judgement; None: there is none.
        group: Only this one, queue by queue.
    """
    if answer is None:
        return table("Lag", (), [], "Nothing is judged: no sample of lag was taken yet, or `lag.enabled` is false.")
    queues = [each for each in answer.queues if group in (None, each.group)]
    found = advices(queues)
    lines = [
        f'<li class="{"bad" if each.level == "ERR" else "warn"}">{escape(each.text)}'
        f"<small>{escape(each.todo)}</small></li>"
        for each in found[:ADVICES_MAX]
    ]
    if len(found) > ADVICES_MAX:
        lines.append(f'<li class="warn">And {len(found) - ADVICES_MAX:,} more: <code>pyddmq lag</code></li>')
    advice = f'<ul class="look">{"".join(lines)}</ul>' if lines else ""
    note = _note(answer, queues)
    if group is not None:
        queues.sort(key=_bad)
        columns = ("Topic", "#Queue", "Status", "#Behind by", "#Messages", "Forecast", "Cause")
        return table("Lag", columns, [_queue_row(each) for each in queues], "No queue yet.", note=note) + advice
    by_group: dict[str, list[LagQueue]] = {each.group: [] for each in answer.groups}
    for each in queues:
        by_group.setdefault(each.group, []).append(each)
    groups = sorted(answer.groups, key=lambda each: (-_WORSE.index(each.level), -(each.time_lag_ms or 0), each.group))
    header = ("Group", "Status", "#Behind by", "#Messages", "Forecast", "Cause")
    rows = [_group_row(each, by_group[each.group]) for each in groups]
    return table("Lag", header, rows, "No group is configured.", note=note) + advice


def _note(answer: LagAnswer, queues: Sequence[LagQueue]) -> str:
    said = amount(len(queues), "queue")
    if answer.queues_total > len(answer.queues):
        said = f"{len(queues):,} of {answer.queues_total:,} queues"
    return f"{said}; the lag journal is not written: {answer.trouble}" if answer.trouble else said


def _bad(each: LagQueue) -> tuple[int, int, int, str, int]:
    return -_WORSE.index(each.level), -(each.time_lag_ms or 0), -(each.lag or 0), each.topic, each.queue


def _group_row(group: LagGroup, queues: Sequence[LagQueue]) -> list[Cell]:
    worst = min(queues, key=_bad, default=None)
    late = max(queues, key=lambda each: each.time_lag_ms or each.time_lag_low_ms or 0, default=None)
    return [
        Cell(group.group, "k", link=f"/?group={quote(group.group, safe='')}"),
        Cell(group.status, chip=_CHIPS.get(group.level, "warn")),
        Cell(UNKNOWN if late is None else behind(late), "n"),
        Cell(UNKNOWN if group.unfinished is None else f"{group.unfinished:,}", "n"),
        Cell(forecast_of_all(queues)),
        Cell("" if worst is None else _cause(worst), "k"),
    ]


def _queue_row(each: LagQueue) -> list[Cell]:
    return [
        Cell(each.topic, "k"),
        Cell(f"{each.queue}", "n"),
        Cell(each.status, chip=_CHIPS.get(each.level, "warn")),
        Cell(behind(each), "n"),
        Cell(UNKNOWN if each.unfinished is None else f"{each.unfinished:,}", "n"),
        Cell(forecast(each)),
        Cell(_cause(each), "k"),
    ]


def _cause(each: LagQueue) -> str:
    return "" if each.cause is None else f"{each.cause.replace('_', ' ')}: {each.evidence}"
