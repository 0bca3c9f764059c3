"""`pyddmq serve`: start a node."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.process.exit_codes import ExitCode

Port = Annotated[int | None, typer.Option(min=0, max=65535, metavar="PORT", help="0 selects any free port.")]


def packaged_configuration() -> Path:
    """Return the sample configuration that travels with pyddmq: what `serve` uses without `--config`."""
    return Path(str(resources.files("conf").joinpath("standalone.yaml")))


def serve(
    context: typer.Context,
    *,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Configuration file; the default is pyddmq's sample.", readable=False),
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="DIR", help="Data directory; overrides node.data.")] = None,
    as_json: AsJson = False,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address of the Thrift ports; overrides node.host.")
    ] = None,
    producer_port: Port = None,
    consumer_port: Port = None,
    admin_port: Port = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Open a RocketMQ store although its RocksDB files are not read.")
    ] = False,
) -> int:
    """Start a node. SIGTERM or Ctrl-C drains and stops it, a second one stops it at once; SIGHUP reloads.

    With --json the only line on stdout is {"producer", "consumer", "admin", "data"}, printed once the node is ready.
    """
    from proxy.process.process_end import Leftovers
    from proxy.process.serve import ServeOptions
    from proxy.process.serve import serve as run_node

    for option, value in (("--data", data), ("--host", host)):
        if value == "":
            # An unset variable of a script: nothing would mean this folder, and every interface (W99).
            raise CliError(f"{option} is empty; pass a value, or remove the option", ExitCode.USAGE)
    options = ServeOptions(
        config=config or packaged_configuration(),
        sample=config is None,
        data=data,
        json=as_json,
        host=host,
        producer_port=producer_port,
        consumer_port=consumer_port,
        admin_port=admin_port,
        accept=accept,
    )
    leftovers = None if context.obj is None else Leftovers(context.obj)
    return run_node(options, leftovers=leftovers)
