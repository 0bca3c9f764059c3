"""`pyddmq store handover`: what will behave differently before a store changes hands, and what waits goes to Kafka."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.runtime.disk import RealDisk
from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.cli.output import print_json, print_line
from proxy.cli.store.stopped_store import opened, opened_progress
from proxy.cli.store.store_files import store_errors
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from proxy.cli.store.handover import Point


class Other(enum.StrEnum):
    """With whom a store is exchanged."""

    ROCKETMQ = "rocketmq"


class HandoverTarget(enum.StrEnum):
    """Who takes over from a store."""

    ROCKETMQ = "rocketmq"
    KAFKA = "kafka"


def handover(
    *,
    data: Annotated[
        Path, typer.Argument(help="Data directory that no node has open; its messages are not changed.", readable=False)
    ],
    to: Annotated[
        HandoverTarget | None,
        typer.Option(
            "--to", help="rocketmq: check before RocketMQ opens the store. kafka: copy waiting messages to Kafka."
        ),
    ] = None,
    came_from: Annotated[Other | None, typer.Option("--from", help="Check after RocketMQ had the store open.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="With --to kafka: configuration of the node after the handover; it says which topics are in Kafka.",
            readable=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --to kafka: only count what would be copied, and what would stay.")
    ] = False,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept",
            help="Exit with 0 although messages will not be delivered, or twice. With --to kafka: copy the others.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Show what changes when Apache RocketMQ takes over a store, or has returned it; or copy what waits to Kafka.

    With --to kafka, timers, loops, delay levels and undecided transactions are copied, each once. A run that was
    stopped continues when the command is run again.

    Exit code 5 if messages will not be delivered, or will be delivered again; --accept makes it 0.
    """
    from proxy.cli.store import handover as points_of

    if (to is None) == (came_from is None):
        raise CliError("pass either --to rocketmq, --to kafka or --from rocketmq", ExitCode.USAGE)
    if to is HandoverTarget.KAFKA:
        return _to_kafka(data, config, dry_run=dry_run, accept=accept, as_json=as_json)
    if config is not None or dry_run:
        raise CliError("--config and --dry-run are options of --to kafka", ExitCode.USAGE)
    with store_errors(data):
        seen = points_of.before(str(data.absolute()), RealDisk(read_only=True))
    arrives = came_from is not None
    with opened_progress(data) as (found, progress):
        make = points_of.from_rocketmq if arrives else points_of.to_rocketmq
        points = list(make(found, progress, seen))
    direction = "from rocketmq" if arrives else "to rocketmq"
    return _end(points, direction, f"{data}: ready for the handover {direction}", accept=accept, as_json=as_json)


def _to_kafka(data: Path, config: Path | None, *, dry_run: bool, accept: bool, as_json: bool) -> int:
    """Copy what waits. Raises CliError."""
    import asyncio

    from actions.registry import Registry
    from conf.loader import load
    from conf.problems import ConfigError
    from proxy.cli.store.kafka_handover import HandoverClients, KafkaHandover

    if config is None:
        text = "--to kafka needs --config FILE, the configuration of the node after the handover"
        raise CliError(text, ExitCode.USAGE)
    try:
        loaded = load(str(config), actions=Registry())
    except ConfigError as error:
        raise CliError("\n".join(map(str, error.problems)), ExitCode.CONFIG_INVALID) from error
    with opened(data) as found, closing(HandoverClients(loaded.config)) as clients:
        handover = KafkaHandover(found, loaded.config, clients.client)
        points = asyncio.run(handover.run(dry_run=dry_run, accept=accept))
    copied = not dry_run and not (any(point.needs_accept for point in points) and not accept)
    title = f"{data}: waiting messages {'were' if copied else 'would be'} copied to Kafka"
    return _end(points, "to kafka", title, accept=accept, as_json=as_json)


def _end(points: Sequence[Point], direction: str, title: str, *, accept: bool, as_json: bool) -> int:
    """Print the points. Raises CliError: one is not accepted."""
    from proxy.cli.store.handover import document

    if as_json:
        print_json(document(points, direction))
    else:
        _print(points, title)
    refusing = [point.kind for point in points if point.needs_accept]
    if refusing and not accept:
        text = f"not accepted: {', '.join(refusing)}; follow the advice of each, or accept it with --accept"
        raise CliError(text, ExitCode.REFUSED)
    return ExitCode.OK


def _print(points: Sequence[Point], title: str) -> None:
    from proxy.cli.store.handover import NAMES_SHOWN

    print_line(title)
    for point in points:
        print_line(f"{point.kind} ({point.count}): {point.text}")
        for name in point.names:
            print_line(f"    {name}")
        if point.count > len(point.names) >= NAMES_SHOWN:
            print_line("    ...")
        if point.advice:
            print_line(f"    do: {point.advice}")
