"""`pyddmq lag compact`: many small files of exported Parquet become one per day and start of a node."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.runtime.seams import SystemClock
from lag.export.export import compact, date_of
from lag.export.names import TABLES, parse
from lag.export.place import ExportFailed, ExportPlace
from lag.export.tables import ExportUnavailable
from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.cli.output import print_json, print_line
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode

Place = Annotated[str, typer.Argument(metavar="PLACE", help="A folder, or a URL such as s3://bucket/lag.")]
RemoveOld = Annotated[
    bool, typer.Option("--remove-old", help="Delete what was replaced at once; nobody may be reading it.")
]


def compact_lag(place: Place, *, remove_old: RemoveOld = False, as_json: AsJson = False) -> int:
    """Make few files of the many exported for each day that is over; delete those that the last run replaced."""
    today = date_of(SystemClock().wall_ms())
    try:
        found = ExportPlace(place)
        before = _files(found)
        days = sorted({date for date, _ in before if date < today})
        if not before:
            raise CliError(f"{place} has no exported files: `pyddmq lag export --to` writes them", ExitCode.NOT_FOUND)
        made = sum(compact(found, date) for date in days)
        if remove_old:
            for date in days:
                compact(found, date)
        after = _files(found)
    except ExportUnavailable as error:
        raise CliError(str(error), ExitCode.WRONG_PYTHON) from error
    except ExportFailed as error:
        raise CliError(str(error), ExitCode.DATA_UNUSABLE) from error
    removed = len(before - after)
    if as_json:
        print_json({"days": len(days), "made": made, "removed": removed, "files": len(after)})
    else:
        print_line(
            f"{amount(made, 'file')} made of smaller ones and {removed} deleted, of {amount(len(days), 'day')}; "
            f"{amount(len(after), 'file')} in {place}"
        )
    return ExitCode.OK


def _files(place: ExportPlace) -> set[tuple[str, str]]:
    """Return the exported files, each with its day before it."""
    names = (name for table in TABLES for name in place.names(table))
    return {(file.date, file.name) for name in names if (file := parse(name)) is not None}
