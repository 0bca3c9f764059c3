"""`pyddmq store handover`: what will behave differently before a store changes hands."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.runtime.disk import RealDisk
from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.cli.output import print_json, print_line
from proxy.cli.store.stopped_store import opened_progress
from proxy.cli.store.store_files import store_errors
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from proxy.cli.store.handover import Point


class Other(enum.StrEnum):
    """With whom a store is exchanged."""

    ROCKETMQ = "rocketmq"


def handover(
    *,
    data: Annotated[
        Path, typer.Argument(help="Data directory that no node has open; it is not changed.", readable=False)
    ],
    to: Annotated[Other | None, typer.Option("--to", help="Check before RocketMQ opens the store.")] = None,
    came_from: Annotated[Other | None, typer.Option("--from", help="Check after RocketMQ had the store open.")] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Exit with 0 although messages will not be delivered, or twice.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Show what changes when Apache RocketMQ takes over a store, or has returned it.

    Exit code 5 if messages will not be delivered, or will be delivered again; --accept makes it 0.
    """
    from proxy.cli.store import handover as points_of

    if (to is None) == (came_from is None):
        raise CliError("pass either --to rocketmq or --from rocketmq", ExitCode.USAGE)
    with store_errors(data):
        seen = points_of.before(str(data.absolute()), RealDisk(read_only=True))
    arrives = came_from is not None
    with opened_progress(data) as (found, progress):
        make = points_of.from_rocketmq if arrives else points_of.to_rocketmq
        points = list(make(found, progress, seen))
    direction = "from rocketmq" if arrives else "to rocketmq"
    if as_json:
        print_json(points_of.document(points, direction))
    else:
        _print(data, points, direction)
    refusing = [point.kind for point in points if point.needs_accept]
    if refusing and not accept:
        text = f"not accepted: {', '.join(refusing)}; follow the advice of each, or accept it with --accept"
        raise CliError(text, ExitCode.REFUSED)
    return ExitCode.OK


def _print(data: Path, points: Sequence[Point], direction: str) -> None:
    from proxy.cli.store.handover import NAMES_SHOWN

    print_line(f"{data}: ready for the handover {direction}")
    for point in points:
        print_line(f"{point.kind} ({point.count}): {point.text}")
        for name in point.names:
            print_line(f"    {name}")
        if point.count > len(point.names) >= NAMES_SHOWN:
            print_line("    ...")
        if point.advice:
            print_line(f"    do: {point.advice}")
