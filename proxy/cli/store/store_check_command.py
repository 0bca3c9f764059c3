"""`pyddmq store check`: what is wrong with a data directory, and its repair."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.runtime.disk import RealDisk
from broker.runtime.seams import Clock, Disk, SystemClock
from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.cli.output import print_json, print_line, progress
from proxy.cli.store.store_files import DataFolder, log_bytes, store_errors
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from broker.opening.recovery import ProgressCallback
    from broker.store import Store
    from broker.tools.check import StoreCheck, StoreFinding


# Repair of a whole data directory: the broker's part, then the ack journal.


def repair_data(
    root: str, *, disk: Disk, clock: Clock, random: Random, progress: ProgressCallback | None = None
) -> list[StoreFinding]:
    """Repair a data directory that no process has open. Returns and raises as `broker.tools.repair.repair`.

    Where the journal's snapshot is lost, a group that is known nowhere else begins at the oldest message when the node
    starts, whose configuration says which groups there are (`upstream.progress.progress`).
    """
    from broker.runtime.bundle import runtime_of
    from broker.runtime.steps import run_now
    from broker.tools.repair import repair
    from upstream.embedded.queues import EmbeddedQueues
    from upstream.progress.progress import Progress
    from upstream.tools.store_check import check_data

    runtime = runtime_of(disk, clock, scheduler=_Never(), random=random)

    def findings_of(check: StoreCheck) -> Collection[StoreFinding]:
        return list(check_data(check, progress))

    def journal(store: Store) -> None:
        run_now(Progress.opening(root, queues=EmbeddedQueues(store), runtime=runtime)).close()

    return repair(root, runtime, findings_of=findings_of, then=journal)


class _Never:
    """A scheduler of a program that ends before anything is due; closing syncs."""

    def call_soon(self, callback: Callable[..., Any], /, *args: Any) -> _Never:
        """Forget the call."""
        return self

    def call_later(self, delay: float, callback: Callable[..., Any], /, *args: Any) -> _Never:
        """Forget the call."""
        return self

    def cancel(self) -> None:
        """Nothing is scheduled."""


def check(
    *,
    data: DataFolder,
    repair: Annotated[bool, typer.Option("--repair", help="Show what a repair would do.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --repair: repair. The node must be stopped.")] = False,
    as_json: AsJson = False,
) -> int:
    """Check every byte of a data directory: records, consume queues, checkpoints, JSON files, ack journal.

    Changes nothing without --repair --yes. Exit code 10 if there are problems.
    """
    if yes and not repair:
        raise CliError("--yes needs --repair", ExitCode.USAGE)
    if yes:
        _repair(data, as_json=as_json)
    return _check(data, repair=repair and not yes, as_json=as_json)


def _check(data: Path, *, repair: bool, as_json: bool) -> int:
    from broker.tools.check import Severity, StoreCheck
    from upstream.tools.store_check import check_data

    root = str(data.absolute())
    look = StoreCheck(root, RealDisk(read_only=True), SystemClock())
    counts: dict[str, int] = dict.fromkeys(Severity, 0)
    with (
        store_errors(data, quiet=True),
        progress("checking", log_bytes(root), unit="bytes", enabled=not as_json) as advance,
    ):
        for finding in check_data(look, lambda done, _total: advance(done)):
            counts[finding.severity] += 1
            _print(finding, "repair would" if repair else "", as_json=as_json)
    _print_summary(look, counts, repair=repair, as_json=as_json)
    return ExitCode.OK if counts[Severity.DAMAGE] + counts[Severity.WARNING] == 0 else ExitCode.DAMAGE_FOUND


def _repair(data: Path, *, as_json: bool) -> None:
    root = str(data.absolute())
    if not (data / "commitlog").is_dir():
        # Taking the lock would make folders.
        raise CliError(f"{data} has no store; pass the data directory of a node", ExitCode.DATA_UNUSABLE)
    with (
        store_errors(data, quiet=True),
        progress("checking and repairing", log_bytes(root), unit="bytes", enabled=not as_json) as advance,
    ):
        found = repair_data(
            root,
            disk=RealDisk(),
            clock=SystemClock(),
            random=SystemRandom(),
            progress=lambda done, _total: advance(done),
        )
    for finding in found:
        if finding.repair:
            _print(finding, "repaired", as_json=as_json)
    if not as_json:
        print_line("remaining problems:")


def _print(finding: StoreFinding, done: str, *, as_json: bool) -> None:
    if as_json:
        print_json({**fields(finding), **({"done": done == "repaired"} if done else {})})
        return
    place = finding.file if finding.position is None else f"{finding.file}, byte {finding.position}"
    print_line(f"{finding.severity:<8} {place}: {finding.kind}: {finding.text}")
    print_line(f"         costs: {finding.costs}")
    if finding.repair and done:
        print_line(f"         {done}: {finding.repair}")


def fields(finding: StoreFinding) -> dict[str, Any]:
    """Return a finding as `--json` shows it."""
    return {
        "kind": finding.kind,
        "severity": str(finding.severity),
        "file": finding.file,
        "position": finding.position,
        "count": finding.count,
        "text": finding.text,
        "costs": finding.costs,
        "repair": finding.repair,
    }


def _print_summary(look: StoreCheck, counts: dict[str, int], *, repair: bool, as_json: bool) -> None:
    tally = look.tally
    if as_json:
        read = {"records": tally.records, "units": tally.units, "logBytes": tally.log_bytes, "logEnd": tally.end}
        print_json({"summary": {**read, "emptyOffsets": tally.fillers, "live": look.live, **counts}})
        return
    content = f"{amount(tally.records, 'record')} and {amount(tally.units, 'queue unit')}"
    damage, warnings = amount(counts["damage"], "damaged place"), amount(counts["warning"], "warning")
    print_line(
        f"{content} in {tally.log_bytes / 1e6:,.1f} MB of log: {damage}, {warnings}, {amount(counts['note'], 'note')}"
    )
    if repair and counts["damage"] + counts["warning"]:
        print_line(
            "nothing was changed. To repair, stop the node and run this again with --repair --yes; `pyddmq "
            "store backup` copies the present state first"
        )
