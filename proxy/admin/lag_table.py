"""Lag on the status page: the status of each group (or of each queue of one), cause and forecast."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from lag.rules.statuses import BY_NAME
from proxy.admin.tables import Cell, table
from proxy.operate.attention.judgement import LEVELS, Judgement
from proxy.operate.lag_texts import UNKNOWN, behind, forecast, forecast_of_all, left
from proxy.operate.text import amount
from proxy.operate.views.lag import LagGroup, LagQueue

_CHIPS = {"OK": "good", "ERR": "bad"}


def lag_section(judged: Judgement, group: str | None = None) -> str:
    """Return the section.

    Args:
        judged: The last judgement.
        group: Only this one, queue by queue.
    """
    if not judged.lag.enabled:
        return table("Lag", (), [], "Lag is not judged: `lag.enabled` is false.")
    queues = [each for each in judged.queues if group in (None, each.group)]
    note = _note(judged, queues)
    if group is not None:
        columns = ("Topic", "#Queue", "Status", "#Behind by", "#Messages", "Forecast", "Cause")
        return table("Lag", columns, [_queue_row(each) for each in queues], "No queue with messages yet.", note=note)
    by_group: dict[str, list[LagQueue]] = {each.group: [] for each in judged.groups}
    for each in queues:
        by_group[each.group].append(each)
    groups = sorted(judged.groups, key=lambda each: (-LEVELS.index(each.level), -(each.time_lag_ms or 0), each.group))
    header = ("Group", "Status", "#Behind by", "#Messages", "Forecast", "Cause")
    rows = [_group_row(each, by_group[each.group]) for each in groups]
    return table("Lag", header, rows, "No group is configured.", note=note)


def _note(judged: Judgement, queues: Sequence[LagQueue]) -> str:
    said = amount(len(queues), "queue")
    return f"{said}; the lag journal is not written: {judged.lag.trouble}" if judged.lag.trouble else said


def _group_row(group: LagGroup, queues: Sequence[LagQueue]) -> list[Cell]:
    worst = queues[0] if queues else None
    late = max(queues, key=lambda each: each.time_lag_ms or each.time_lag_low_ms or 0, default=None)
    return [
        Cell(group.group, "k", link=f"/?group={quote(group.group, safe='')}"),
        Cell(_status(group), chip=_CHIPS.get(group.level, "warn")),
        Cell(UNKNOWN if late is None else behind(late), "n"),
        Cell(left(group), "n"),
        Cell(forecast_of_all(queues)),
        Cell("" if worst is None else _cause(worst), "k"),
    ]


def _status(group: LagGroup) -> str:
    """The lag status, or the kind of a finding that is worse than it."""
    return group.status if group.level == BY_NAME[group.status].level.name else group.finding or group.status


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
