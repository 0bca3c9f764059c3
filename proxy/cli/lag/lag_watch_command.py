"""`pyddmq lag watch`: changes of verdicts from the journals of many nodes, by Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.runtime.disk import RealDisk
from proxy.cli.errors import CliError
from proxy.cli.lag.lag_export_command import journal_folder
from proxy.cli.lag.spark_options import Log, Master, spark_missing
from proxy.cli.moments import duration_option
from proxy.process.exit_codes import ExitCode

Journals = Annotated[
    list[str],
    typer.Option("--journal", metavar="DIR", help="A lag journal, or the data directory that has it; repeatable."),
]
Checkpoint = Annotated[str, typer.Option("--checkpoint", metavar="DIR", help="Folder of Spark's checkpoint.")]
Format = Annotated[
    str, typer.Option("--format", metavar="NAME", help="Format of Spark's sink: json, parquet, kafka, console, ...")
]
Path = Annotated[str | None, typer.Option("--path", metavar="DIR", help="Folder for the sink's files.")]
Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Option of the sink; repeatable.")
]
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="Read thresholds, enableAlarm and alarmGroup from this file."),
]
Silence = Annotated[
    str,
    typer.Option(
        "--silence",
        metavar="SPAN",
        help="A node is silent after this long without a round, and at least three intervals.",
    ),
]
Settled = Annotated[
    str, typer.Option("--settled", metavar="SPAN", help="How long a better verdict must last before it is reported.")
]
Every = Annotated[str, typer.Option("--every", metavar="SPAN", help="Time between polls of the journals.")]
Once = Annotated[bool, typer.Option("--once", help="Process existing rounds, then exit; for cron.")]


def watch_lag(
    *, journals: Journals, checkpoint: Checkpoint, sink: Format = "console", path: Path = None, option: Options = None,
    config: Config = None, silence: Silence = "1m", settled: Settled = "1m", every: Every = "10s", once: Once = False,
    master: Master = "local[*]", log: Log = None,
) -> int:  # fmt: skip
    """Write each change of a group's lag verdict, from journals of nodes, to a Spark sink until stopped."""
    from conf import ConfigError, load
    from proxy.recording.limits import is_alarmed, limits_of_config, recipients_of

    try:
        from lag.spark.jobs import watch
    except ImportError as error:
        raise spark_missing("watch", error) from error
    try:
        found = None if config is None else load(config).config
        options = watch.sink_options(path, option or [])
    except ConfigError as error:
        raise CliError(f"--config: {error}", ExitCode.USAGE) from error
    except ValueError as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    groups = [] if found is None else list(found.groups.values())
    lag = None if found is None else found.lag
    disk = RealDisk(read_only=True)
    wanted = watch.WatchOptions(
        journals=[journal_folder(disk, each) for each in journals],
        checkpoint=checkpoint,
        format=sink,
        options=options,
        subscribed={
            (group.group, topic): watch.WatchedSubscription(
                limits=limits_of_config(group, topic, lag), counts=is_alarmed(group, topic)
            )
            for group in groups
            for topic in ("", *group.by_topic)
        },
        recipients={group.group: recipients_of(group) for group in groups},
        limits=limits_of_config(None, "", lag),
        silence_ms=duration_option(silence, option="--silence"),
        settled_ms=duration_option(settled, option="--settled"),
        every_s=duration_option(every, option="--every") / 1000,
        once=once,
    )
    return watch.run(wanted, master=master, log=log)
