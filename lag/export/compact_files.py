"""Making few files of the many that exports wrote, for all past days of a place."""

from __future__ import annotations

from dataclasses import dataclass

from lag.export.export import compact
from lag.export.names import TABLES, parse
from lag.export.place import ExportPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What was done.

    Attributes:
        days: How many days were looked at.
        made: Files that were made of smaller ones.
        removed: Files that were deleted: what the last run replaced or, if asked for, this one.
        files: How many there are now.
    """

    days: int
    made: int
    removed: int
    files: int


def compact_days(place: ExportPlace, today: str, *, remove_old: bool = False) -> Compacted | None:
    """Make few files of many for each day before `today`; None: nothing was exported there.

    Args:
        place: Where.
        today: The first day (UTC) that is left alone, `2026-11-23`.
        remove_old: Delete what was replaced at once; nobody may be reading it.

    Raises:
        ExportFailed: The place cannot be read or written.
    """
    before = _files(place)
    if not before:
        return None
    days = sorted({date for date, _ in before if date < today})
    made = sum(compact(place, date) for date in days)
    if remove_old:
        for date in days:
            compact(place, date)
    after = _files(place)
    return Compacted(days=len(days), made=made, removed=len(before - after), files=len(after))


def _files(place: ExportPlace) -> set[tuple[str, str]]:
    """Return the exported files, each with its day before it."""
    names = (name for table in TABLES for name in place.names(table))
    return {(file.date, file.name) for name in names if (file := parse(name)) is not None}
