"""One sentence of summary: how many groups were in trouble, which still are and since when, and what was lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lag.report import texts
from lag.report.data import GroupPart
from lag.report.findings import LEFT
from lag.report.options import ReportWindow
from lag.rules import statuses
from lag.rules.statuses import Level

NAMED_MAX: Final = 3
_TROUBLE: Final = (Level.WARN.name, Level.ERR.name)


def summary_of(parts: Sequence[GroupPart], window: ReportWindow, timezone: str) -> str:
    """Return the sentence."""
    if not parts:
        return "There are no samples of any group in this window: nothing can be said of it."
    total = len(parts)
    troubled = [part for part in parts if part.level in _TROUBLE or any(map(_is_trouble, _statuses(part)))]
    still = [part for part in parts if part.level in _TROUBLE]
    unknown = [part for part in parts if part.level == Level.UNKNOWN.name and part.status != LEFT]
    lost = sum(part.lost for part in parts)
    if not troubled:
        said = "The only group was OK" if total == 1 else f"All {total} groups were OK"
        said = said if not unknown else f"No trouble is known of {_groups(total)}"
    else:
        said = f"{len(troubled)} of {_groups(total)} {_was(len(troubled))} in trouble"
        said += f"; {_still(still, window, timezone)}" if still else "; none of them still is"
    if unknown:
        named = ", ".join(part.group for part in unknown[:NAMED_MAX])
        more = f" and {len(unknown) - NAMED_MAX} more" if len(unknown) > NAMED_MAX else ""
        said += f"; nothing is known of {named}{more} at the end"
    if lost:
        said += f"; {texts.count(lost)} {'message was' if lost == 1 else 'messages were'} lost"
    return f"{said}."


def _groups(count: int) -> str:
    return f"{count} group" if count == 1 else f"{count} groups"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _statuses(part: GroupPart) -> list[str]:
    return [each.status for each in part.incidents]


def _is_trouble(status: str) -> bool:
    return statuses.BY_NAME[status].level.name in _TROUBLE


def _still(still: Sequence[GroupPart], window: ReportWindow, timezone: str) -> str:
    named = [f"{part.group} {part.status}{_since(part, window, timezone)}" for part in still[:NAMED_MAX]]
    more = f" and {len(still) - NAMED_MAX} more" if len(still) > NAMED_MAX else ""
    return f"{len(still)} still {'is' if len(still) == 1 else 'are'}: {', '.join(named)}{more}"


def _since(part: GroupPart, window: ReportWindow, timezone: str) -> str:
    """Say since when, by the open incident of this status, or the stretch that the window ends with."""
    found = [each.from_ms for each in part.incidents if each.to_ms is None and each.status == part.status]
    found = found or [each.from_ms for each in part.spans[-1:]]
    if not found:
        return ""
    cause = f" ({part.cause})" if part.cause else ""
    return f" since {texts.clock(min(found), window.to_ms, timezone)}{cause}"
