"""`pyddmq lag watch`: alarms from the journals of many nodes, by Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from broker.runtime.disk import RealDisk
from proxy.cli.errors import CliError
from proxy.cli.lag.lag_export_command import journal_folder
from proxy.cli.moments import duration_option
from proxy.process.exit_codes import ExitCode

Journals = Annotated[
    list[str],
    typer.Option("--journal", metavar="DIR", help="A lag journal, or the data directory it is in; repeatable."),
]
Checkpoint = Annotated[str, typer.Option("--checkpoint", metavar="DIR", help="Folder that says how far it is.")]
File = Annotated[
    str | None, typer.Option("--file", metavar="FILE", help="File of JSON lines that alarms are added to, each once.")
]
Topic = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Topic that alarms are sent to, each once; with --node.")
]
Node = Annotated[
    str | None, typer.Option("--node", metavar="HOST:PORT", help="Producer port of a node that has the topic.")
]
Hook = Annotated[
    str | None, typer.Option("--webhook", metavar="URL", help="Address that alarms are posted to, each at least once.")
]
Muted = Annotated[
    list[str] | None, typer.Option("--mute", metavar="GROUP", help="A group whose alarms nobody is told; repeatable.")
]
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="Rules, mutes and thresholds of a node's configuration."),
]
Silence = Annotated[str, typer.Option("--silence", metavar="SPAN", help="How long a node may record nothing.")]
Every = Annotated[str, typer.Option("--every", metavar="SPAN", help="How often journals are looked at.")]
Once = Annotated[bool, typer.Option("--once", help="Take what is there, and end: for cron.")]
Master = Annotated[str, typer.Option("--master", help="Where Spark runs: local[*], spark://HOST:PORT, ...")]
Log = Annotated[str | None, typer.Option("--log", metavar="FILE", help="Where Spark's own log goes.")]


def watch_lag(
    *, journals: Journals, checkpoint: Checkpoint, file: File = None, topic: Topic = None, node: Node = None,
    webhook: Hook = None, config: Config = None, muted: Muted = None, silence: Silence = "1m",
    every: Every = "10s", once: Once = False, master: Master = "local[*]", log: Log = None,
) -> int:  # fmt: skip
    """Raise alarms about consumption lag from journals of nodes, each once, until it is stopped."""
    from conf import ConfigError, load
    from lag.alarms.model import AlarmRule
    from lag.alarms.rounds import AlarmPolicy
    from proxy.recording.alarms import policy_of
    from proxy.recording.limits import is_alarmed, limits_of_config, recipients_of

    try:
        from lag.spark.jobs import watch
    except ImportError as error:
        raise CliError(
            f"`pyddmq lag watch` runs on Spark, and there is no {error.name}: pip install 'pyddmq[server,spark]'",
            ExitCode.WRONG_PYTHON,
        ) from error
    try:
        found = None if config is None else load(config).config
    except ConfigError as error:
        raise CliError(f"--config: {error}", ExitCode.USAGE) from error
    try:
        places = watch.Places(file=file, topic=topic, node=node, webhook=webhook)
    except ValueError as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    groups = {} if found is None else found.groups
    silence_ms = duration_option(silence, option="--silence")
    policy = AlarmPolicy(rules=(AlarmRule(sinks=places.names),), silence_ms=silence_ms)
    if found is not None and found.lag.alarms.rules:
        said = policy_of(found.lag.alarms, lambda group: recipients_of(groups.get(group)))
        # Places that rules name are the node's: here they choose among those that are given.
        rules = tuple(replace(rule, sinks=places.chosen(rule.sinks)) for rule in said.rules)
        policy = replace(said, rules=rules, silence_ms=silence_ms)
    policy = replace(policy, mutes={**policy.mutes, **watch.muted_for_ever(muted or [])})
    disk = RealDisk(read_only=True)
    options = watch.WatchOptions(
        journals=[journal_folder(disk, each) for each in journals],
        checkpoint=checkpoint,
        places=places,
        policy=policy,
        limits_of=lambda group, topic: limits_of_config(groups.get(group), topic),
        wanted=lambda group, topic: is_alarmed(groups.get(group), topic),
        every_s=duration_option(every, option="--every") / 1000,
        once=once,
    )
    return watch.run(options, master=master, log=log)
