"""`watch`: changes of verdicts from the journals of many nodes, as Structured Streaming, into a Spark sink.

    spark-submit --master ... --py-files pyddmq_spark.zip job.py watch --journal DIR[,DIR...] --checkpoint DIR \
        --format json|parquet|kafka|console [--path DIR] [--option NAME=VALUE ...]

where job.py is as for `report` (`lag.spark.jobs.program`). The state of a node (its windows and verdicts) is Spark's,
in the checkpoint, so a sink that Spark writes exactly once (files) has each change once, whatever is killed.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from lag.journal.columns import queue_sample
from lag.rules.limits import LagLimits, with_target
from lag.samples import EventKind, LagEvent, QueueKey
from lag.spark.jobs.arguments import FAILED, OK, SPARK_ERRORS, WRONG, first_sentence, folders
from lag.spark.jobs.text_program import log_file
from lag.spark.session import SessionOptions, session
from lag.spark.shipping import ship
from lag.spark.sources.journal import NAME
from lag.verdicts.changes import SETTLED_MS, SILENT, GroupVerdict, Verdicts
from lag.verdicts.windows import NodeWindows

if TYPE_CHECKING:
    import pandas
    from pyspark.sql.streaming.state import GroupState

SCHEMA: Final = (
    "key string, cluster string, node string, `group` string, level string, status string, before string, "
    "timeMs long, sinceMs long, queues int, topic string, queue int, cause string, evidence string, advice string, "
    "lag long, timeLagMs long, alarmGroup array<string>"
)
"""A change, as `lag.verdicts.changes.VerdictChange.as_fields` has it."""
COLUMNS: Final = [each.strip().split(" ")[0].strip("`") for each in SCHEMA.split(", ")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedSubscription:
    """What the configuration says of one group and topic.

    Attributes:
        limits: Limits of the rules.
        counts: Whether the group's verdict counts it (`enableAlarm`).
    """

    limits: LagLimits
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What is watched, and how.

    Attributes:
        journals: Folders of lag journals.
        checkpoint: Folder of Spark's checkpoint.
        format: Of the sink, as `DataStreamWriter.format` takes it.
        options: Of the sink.
        subscribed: By group and topic, where the configuration says something of them; by group and "" of topics that
            it does not subscribe, such as its retry topic.
        recipients: By group, names for routing (`alarmGroup`).
        limits: Of all others.
        silence_ms: How long a node may record nothing.
        settled_ms: How long a verdict that is not worse must hold before it counts.
        every_s: How often journals are looked at.
        once: Take what is there, and end.
        settings: Further options of the source.
    """

    journals: Sequence[str]
    checkpoint: str
    format: str = "console"
    options: Mapping[str, str] = field(default_factory=dict)
    subscribed: Mapping[tuple[str, str], WatchedSubscription] = field(default_factory=dict)
    recipients: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    limits: LagLimits = field(default_factory=LagLimits)
    silence_ms: int = 60_000
    settled_ms: int = SETTLED_MS
    every_s: float = 10.0
    once: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    def of(self, group: str, topic: str) -> WatchedSubscription:
        """Return what holds for a group and topic."""
        found = self.subscribed.get((group, topic)) or self.subscribed.get((group, ""))
        return found or WatchedSubscription(limits=self.limits)


@dataclass(slots=True)
class _Node:
    """What Spark keeps of a node, pickled.

    Attributes:
        last_ms: Its newest round.
        verdicts: Of its groups.
        presence: Of the node itself, as of a group without a name.
    """

    verdicts: Verdicts
    presence: Verdicts
    windows: NodeWindows = field(default_factory=NodeWindows)
    last_ms: int = 0


class _Judge:
    """Runs on executors: rounds of one node into changes."""

    def __init__(self, options: WatchOptions) -> None:
        self._options = options
        every = (options.limits, *(each.limits for each in options.subscribed.values()))
        self._window_ms = max(limits.window_ms for limits in every)

    def __call__(
        self, key: tuple[str, str], pieces: Iterator[pandas.DataFrame], state: GroupState
    ) -> Iterator[pandas.DataFrame]:
        """Take the rounds of a batch; `key` is cluster and node."""
        import pandas

        settled_ms = self._options.settled_ms
        fresh = _Node(Verdicts(settled_ms), Verdicts(settled_ms))
        node = pickle.loads(state.get[0]) if state.exists else fresh
        node.windows.window_ms = self._window_ms
        found: list[dict[str, Any]] = []
        rows = [row for piece in pieces for row in piece.to_dict("records")]
        # By their places, and not by the node's clock, which may be set back.
        for row in sorted(rows, key=lambda each: (each["file"], each["position"])):
            found += _silent(key, node, row) if row["silent"] else self._round(key, node, row)
        state.update((pickle.dumps(node),))
        yield pandas.DataFrame([[each[name] for name in COLUMNS] for each in found], columns=COLUMNS)

    def _round(self, key: tuple[str, str], node: _Node, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        time_ms = int(row["time_ms"])
        cluster, name = key
        samples, events = json.loads(row["samples"]), json.loads(row["events"])
        # The last entry of a process that stops has its events alone: the queues are still there.
        if samples or not any(each["kind"] == EventKind.STOP.value for each in events):
            node.windows.round(
                (
                    QueueKey(cluster=cluster, node=name, group=group, topic=topic, queue=queue),
                    queue_sample(at, tuple(values)),
                )
                for group, topic, queue, at, *values in samples
            )
        for each in events:
            node.windows.note(LagEvent(**each | {"kind": EventKind(each["kind"])}))
        node.last_ms = time_ms
        back = node.presence.note("", GroupVerdict(status="OK", since_ms=time_ms), time_ms)
        if back is not None:
            yield back.as_fields(cluster, name)
        for change in node.verdicts.take(node.windows.judged(time_ms, self._limits_of), time_ms, self._counts):
            yield change.as_fields(cluster, name, self._options.recipients.get(change.group, ()))

    def _limits_of(self, group: str, topic: str) -> LagLimits:
        return self._options.of(group, topic).limits

    def _counts(self, group: str, topic: str) -> bool:
        return self._options.of(group, topic).counts


def _silent(key: tuple[str, str], node: _Node, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Take a row that says that the node is silent."""
    time_ms = int(row["time_ms"])
    verdict = GroupVerdict(
        status=SILENT,
        since_ms=node.last_ms,
        evidence=f"its journal has no round in the {(time_ms - node.last_ms) // 1000} s after the last one",
        advice="Check that the node runs and that its disk is not full.",
    )
    change = node.presence.note("", verdict, time_ms)
    return [] if change is None else [change.as_fields(*key)]


def changes(spark: SparkSession, options: WatchOptions) -> DataFrame:
    """Return the stream of changes: `SCHEMA`."""
    reading = spark.readStream.format(NAME).option("path", ",".join(options.journals)).option("rows", "rounds")
    reading = reading.option("silence", f"{max(1, round(options.silence_ms / 1000))}")
    for name, value in options.settings.items():
        reading = reading.option(name, value)
    return (
        reading.load()
        .groupBy("cluster", "node")
        .applyInPandasWithState(_Judge(options), SCHEMA, "node binary", "append", "NoTimeout")
    )


def watch(spark: SparkSession, options: WatchOptions) -> None:
    """Watch until the query ends: at once, or never.

    Args:
        spark: A session with our sources.
        options: What and how.

    Raises:
        StreamingQueryException: A journal cannot be read, or the sink refuses.
    """
    found = changes(spark, options)
    if options.format == "kafka":
        found = found.selectExpr("`group` AS key", "to_json(struct(*)) AS value")
    writing = found.writeStream.format(options.format).outputMode("append")
    writing = writing.options(**options.options).option("checkpointLocation", options.checkpoint)
    if options.once:
        writing.trigger(availableNow=True).start().awaitTermination()
        return
    query = writing.trigger(processingTime=f"{options.every_s} seconds").start()
    while not query.awaitTermination(1):
        pass  # So that a signal is handled within a second.


def main(arguments: Sequence[str]) -> int:
    """Watch; returns the exit code: 0, 1 when it failed, 2 when an option is wrong."""
    parser = argparse.ArgumentParser(prog="pyddmq lag watch", description="Write changes of lag verdicts to a sink.")
    parser.add_argument("--journal", required=True, help="folders of lag journals, separated by commas")
    parser.add_argument("--checkpoint", required=True, help="folder of Spark's checkpoint")
    parser.add_argument("--format", default="console", help="format of the sink: json, parquet, kafka, console, ...")
    parser.add_argument("--path", default=None, help="folder of the sink's files")
    parser.add_argument("--option", action="append", default=[], help="NAME=VALUE of the sink; repeatable")
    parser.add_argument(
        "--silence", type=float, default=60.0, help="maximum time without a round of a node, in seconds"
    )
    parser.add_argument("--settled", type=float, default=60.0, help="how long a better verdict must last, in seconds")
    seconds = LagLimits().target_ms / 1000
    parser.add_argument("--target", type=float, default=seconds, help="maximum age of a message, in seconds")
    parser.add_argument("--every", type=float, default=10.0, help="time between polls of the journals, in seconds")
    parser.add_argument("--once", action="store_true", help="process existing rounds, then exit")
    parser.add_argument("--master", default=None, help="Spark master; default local")
    parser.add_argument(
        "--log", default=None, help="file for Spark's log; default one in the folder for temporary files"
    )
    given = parser.parse_args(arguments)
    try:
        options = WatchOptions(
            journals=folders(given.journal),
            checkpoint=given.checkpoint,
            format=given.format,
            options=sink_options(given.path, given.option),
            limits=with_target(given.target),
            silence_ms=round(given.silence * 1000),
            settled_ms=round(given.settled * 1000),
            every_s=given.every,
            once=given.once,
        )
    except ValueError as error:
        print(f"pyddmq lag watch: {error}", file=sys.stderr)
        return WRONG
    return run(options, master=given.master, log=given.log)


def sink_options(path: str | None, pairs: Sequence[str]) -> dict[str, str]:
    """Return a sink's options. Raises ValueError: a pair has no `=`."""
    found = {} if path is None else {"path": path}
    for pair in pairs:
        name, is_pair, value = pair.partition("=")
        if not is_pair or not name:
            raise ValueError(f"--option is {pair!r}; write NAME=VALUE")
        found[name] = value
    return found


def run(options: WatchOptions, *, master: str | None, log: str | None) -> int:
    """Watch in a session of its own; returns the exit code."""
    log = log_file(log)
    try:
        spark = session(SessionOptions(name="pyddmq lag watch", master=master, ui=False, log_file=log))
        ship(spark)
        print(f"watching; Spark's log is {log}", file=sys.stderr, flush=True)
        watch(spark, options)
    except KeyboardInterrupt:
        return OK
    except (OSError, *SPARK_ERRORS) as error:
        print(f"pyddmq lag watch: {first_sentence(error)}", file=sys.stderr)
        return FAILED
    return OK
