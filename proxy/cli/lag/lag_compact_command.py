"""`pyddmq lag compact`: many small files of exported Parquet become one per day and start of a node."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from broker.runtime.seams import SystemClock
from lag.export.compact_files import compact_days
from lag.export.export import date_of
from lag.export.names import shown_place
from lag.export.place import ExportFailed, ExportPlace
from lag.export.tables import ExportUnavailable
from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.cli.output import print_json, print_line
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode

Place = Annotated[str, typer.Argument(metavar="PLACE", help="A folder, or a URL such as s3://bucket/lag.")]
RemoveOld = Annotated[
    bool,
    typer.Option("--remove-old", help="Delete replaced files immediately; only while no other program reads them."),
]


def compact_lag(place: Place, *, remove_old: RemoveOld = False, as_json: AsJson = False) -> int:
    """Merge the exported files of each finished day; delete those that the last run replaced."""
    shown = shown_place(place)
    try:
        found = compact_days(ExportPlace(place), date_of(SystemClock().wall_ms()), remove_old=remove_old)
    except ExportUnavailable as error:
        raise CliError(str(error), ExitCode.WRONG_PYTHON) from error
    except ExportFailed as error:
        raise CliError(str(error), ExitCode.DATA_UNUSABLE) from error
    if found is None:
        raise CliError(f"{shown} has no exported files; `pyddmq lag export --to` writes them", ExitCode.NOT_FOUND)
    if as_json:
        return print_json(asdict(found))
    return print_line(
        f"{amount(found.made, 'file')} merged from smaller ones and {found.removed} deleted, of "
        f"{amount(found.days, 'day')}; {amount(found.files, 'file')} in {shown}"
    )
