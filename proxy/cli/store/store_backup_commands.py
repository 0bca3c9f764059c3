"""`pyddmq store backup` and `restore`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.cli.output import print_json, print_line, progress
from proxy.cli.store.store_files import DataFolder, folder_bytes, log_bytes, store_errors
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode


def backup(
    *,
    data: DataFolder,
    target: Annotated[Path, typer.Argument(help="Folder for the copy; empty or new.", readable=False)],
    link: Annotated[
        bool,
        typer.Option("--link", help="Hard-link full log files: no extra space, but the same bytes on the same disk."),
    ] = False,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Check the copy afterwards.")] = True,
    as_json: AsJson = False,
) -> int:
    """Copy a data directory consistently, also while a node has it open.

    The copy has every message and every ack that was answered before the command began.
    """
    from upstream.tools.backup import Backup

    root, copy = str(data.absolute()), str(target.absolute())
    if Path(copy).resolve().is_relative_to(Path(root).resolve()):
        raise CliError(f"{target} is inside {data}; choose another folder", ExitCode.USAGE)
    with store_errors(data), progress("copying", log_bytes(root), unit="bytes", enabled=not as_json) as advance:
        manifest = Backup(
            root,
            copy,
            source=RealDisk(read_only=True),
            disk=RealDisk(),
            clock=SystemClock(),
            link=os.link if link else None,
            progress=lambda done, _total: advance(done),
        ).make()
    found = _verify(target, as_json=as_json) if verify else 0
    size = sum(line["bytes"] for line in manifest["files"].values())
    if as_json:
        reported = {"backup": str(target), "logEnd": manifest["logEnd"], "files": len(manifest["files"]), "bytes": size}
        print_json({**reported, "verified": verify, "findings": found})
    else:
        checked = "" if not verify else ", checked" if not found else f", {amount(found, 'problem')} found by the check"
        content = f"{amount(len(manifest['files']), 'file')}, {amount(size, 'byte')}"
        print_line(f"{target}: {content}, log up to {manifest['logEnd']:,}{checked}")
        if found:
            print_line(f"the copy has the same problems as {data}: `pyddmq store check {data}` shows more")
    return ExitCode.DAMAGE_FOUND if found else ExitCode.OK


def _verify(target: Path, *, as_json: bool) -> int:
    from broker.tools.check import Severity, StoreCheck
    from upstream.tools.store_check import check_data

    root = str(target.absolute())
    look = StoreCheck(root, RealDisk(read_only=True), SystemClock())
    with (
        store_errors(target),
        progress("checking the copy", log_bytes(root), unit="bytes", enabled=not as_json) as advance,
    ):
        findings = list(check_data(look, lambda done, _total: advance(done)))
    return sum(finding.severity is not Severity.NOTE for finding in findings)


def restore(
    *,
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="Folder written by `store backup`.", readable=False)],
    data: Annotated[Path, typer.Argument(help="Data directory to create; must be empty or missing.", readable=False)],
    as_json: AsJson = False,
) -> int:
    """Create a data directory from a backup, and verify the checksum of every file."""
    from upstream.tools.backup import restore as copy_back

    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise CliError(
            f"{data} is not empty, and a restore does not overwrite: move it away, or pass another folder",
            ExitCode.DATA_UNUSABLE,
        )
    # Under another name until it is whole: no node starts on half of it.
    half = data.absolute().with_name(f"{data.name}.restoring")
    with store_errors(data), progress("restoring", folder_bytes(source), unit="bytes", enabled=not as_json) as advance:
        manifest = copy_back(
            str(source.absolute()),
            str(half),
            disk=RealDisk(),
            clock=SystemClock(),
            progress=lambda done, _total: advance(done),
        )
        with contextlib.suppress(FileNotFoundError):
            data.rmdir()
        half.rename(data.absolute())
        RealDisk().sync_folder(str(data.absolute().parent))
    if as_json:
        return print_json({"data": str(data), "files": len(manifest["files"]), "logEnd": manifest["logEnd"]})
    return print_line(f"{data}: {amount(len(manifest['files']), 'file')}, all checksums correct; start the node on it")
