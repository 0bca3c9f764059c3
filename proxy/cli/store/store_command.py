"""`pyddmq store`: commands that look at a data directory, without a node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker.scheduled.delay.levels import STANDARD_LEVELS, DelayLevels
from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.cli.output import print_json, print_line
from proxy.cli.store.store_files import store_errors
from proxy.process.exit_codes import ExitCode


def broker_conf(
    *,
    data: Annotated[Path, typer.Argument(help="Data directory.", readable=False)],
    delay_levels: Annotated[
        str, typer.Option(help="The node's messageDelayLevel, if not the default.")
    ] = STANDARD_LEVELS,
    as_json: AsJson = False,
) -> int:
    """Print the broker.conf with which Apache RocketMQ 5.3 opens a copy of the store (docs/storage.md)."""
    from broker.opening.foreign import in_layout
    from broker.opening.reading import geometry_of
    from broker.options import StoreOptions
    from broker.runtime.disk import RealDisk
    from broker.tools.interchange import broker_conf as conf_text
    from broker.tools.interchange import broker_settings, names_of, timer_log_bytes_of

    root, disk = str(data.absolute()), RealDisk(read_only=True)
    with store_errors(data):
        geometry = geometry_of(root, disk=disk)
        if geometry is None:
            raise CliError(f"{data} has no store; pass the data directory of a node", ExitCode.DATA_UNUSABLE)
        settings = broker_settings(
            root,
            geometry,
            message_bytes_max=StoreOptions().message_bytes_max,
            delay_levels=_checked(delay_levels),
            names=names_of(root, disk=disk),
            timer_log_bytes=timer_log_bytes_of(root, disk=disk),
        )
        text = conf_text(settings)
        found = in_layout(root, disk)
    # Not on stdout, which is the file.
    for each in found:
        typer.echo(f"note: {each.sentence}", err=True)
    if as_json:
        return print_json({"brokerConf": settings})
    return print_line(text.rstrip("\n"))


def _checked(levels: str) -> str:
    try:
        return DelayLevels(levels).text
    except ValueError as error:
        raise CliError(f"--delay-levels: {error}", ExitCode.USAGE) from error
