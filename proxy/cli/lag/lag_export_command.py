"""`pyddmq lag export`: lag journals as Parquet, by date, for Spark and others."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from lag.export.export import ExportReport, compact, date_of, export
from lag.export.place import ExportFailed, ExportPlace
from lag.export.tables import ExportUnavailable
from lag.journal.files import parse
from lag.journal.reader import JournalQuery
from lag.journal.writer import FOLDER
from proxy.cli.errors import CliError
from proxy.cli.moments import moment_option
from proxy.cli.options import AsJson
from proxy.cli.output import print_json, print_line
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode

_DAY_MS = 86_400_000
_GAPS_SHOWN = 10
_COMPACT_DAYS = 7

Journal = Annotated[
    str,
    typer.Option("--journal", metavar="DIR", help="A lag journal's folder, or its data directory."),
]
To = Annotated[str, typer.Option("--to", metavar="URL", help="A folder, or a URL such as s3://bucket/lag.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Samples at or after this time; `2h` means two hours ago.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Samples before this time.")]
Compact = Annotated[
    bool, typer.Option("--compact", help=f"Merge the files of each day, for the last {_COMPACT_DAYS} days.")
]


def export_lag(
    *, journal: Journal, to: To, since: Since = None, until: Until = None, compacting: Compact = False,
    as_json: AsJson = False,
) -> int:  # fmt: skip
    """Export a node's lag samples as Parquet; samples that were exported before are skipped."""
    clock = SystemClock()
    disk = RealDisk(read_only=True)
    folder = journal_folder(disk, journal)
    wanted = JournalQuery(
        since_ms=None if since is None else moment_option(since, option="--since", clock=clock),
        until_ms=None if until is None else moment_option(until, option="--until", clock=clock),
    )
    merged = 0
    try:
        place = ExportPlace(to)
        report = export(disk, folder, place, wanted)
        if compacting:
            for days in range(1, _COMPACT_DAYS + 1):
                merged += compact(place, date_of(clock.wall_ms() - days * _DAY_MS))
    except ExportUnavailable as error:
        raise CliError(str(error), ExitCode.WRONG_PYTHON) from error
    except ExportFailed as error:
        raise CliError(str(error), ExitCode.DATA_UNUSABLE) from error
    if as_json:
        print_json(_as_json(report, merged))
    else:
        _print(report, merged, place.url)
    return ExitCode.OK


def journal_folder(disk: RealDisk, journal: str) -> str:
    """Return the folder with a journal's files. Raises CliError: there is none, or it cannot be read."""
    given = journal.rstrip("/") or "/"
    try:
        for folder in (given, f"{given}/{FOLDER}"):
            if any(parse(name) is not None for name in disk.list(folder)):
                return folder
    except OSError as error:
        # Else commands that need no configuration would load what reads it.
        from conf.file_faults import file_fault

        raise CliError(f"{journal} cannot be read: {file_fault(error, journal)}", ExitCode.DATA_UNUSABLE) from error
    raise CliError(
        f"{journal} has no lag journal; pass a data directory, or its {FOLDER}, of a node that has run for a while",
        ExitCode.NOT_FOUND,
    )


def _as_json(report: ExportReport, merged: int) -> dict[str, object]:
    return {
        "files": report.files,
        "samples": report.rows,
        "snapshots": report.snapshots,
        "knownSnapshots": report.known,
        "coarseBlocks": report.coarse,
        "compactedFiles": merged,
        "gaps": [
            {"kind": gap.kind.value, "path": gap.path, "reason": gap.reason, "fromMs": gap.from_ms, "toMs": gap.to_ms}
            for gap in report.gaps
        ],
    }


def _print(report: ExportReport, merged: int, to: str) -> None:
    snapshots, samples = amount(report.snapshots, "snapshot"), amount(report.rows, "sample")
    print_line(f"{snapshots} with {samples} written to {to} in {amount(report.files, 'file')}")
    if report.known:
        print_line(f"{amount(report.known, 'snapshot')} were exported before")
    if report.coarse:
        print_line(
            f"{amount(report.coarse, 'summary')} skipped: the journal no longer has their samples; export "
            "at least every two days"
        )
    if merged:
        print_line(f"{amount(merged, 'file')} merged from smaller ones")
    for gap in report.gaps[:_GAPS_SHOWN]:
        print_line(f"missing ({gap.kind.value}): {gap.reason}")
    if len(report.gaps) > _GAPS_SHOWN:
        print_line(f"and {len(report.gaps) - _GAPS_SHOWN} more")
