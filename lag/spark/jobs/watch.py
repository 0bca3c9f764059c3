"""`watch`: alarms about consumption lag from the journals of many nodes, as Structured Streaming.

    spark-submit --master ... --py-files pyddmq_spark.zip job.py watch --journal DIR[,DIR...] --checkpoint DIR \
        [--file F] [--topic T --node HOST:PORT] [--webhook URL]

where job.py is as for `report` (`lag.spark.jobs.program`). Executors read and decode journals; the driver judges whole
rounds, in the order of each node, and keeps the state of alarms (`lag.alarms.watching`): it is small, and one write of
it makes a batch count, so that a kill between Spark's commit and the file of alarms doubles nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from broker.runtime.disk import RealDisk
from broker.runtime.seams import Disk
from lag.alarms.findings import LimitsOf, Wanted, everything
from lag.alarms.lines import AlarmLines
from lag.alarms.model import DEFAULT_STATUSES, AlarmRule, Mute
from lag.alarms.places import FilePlace, Place, WebhookPlace, check_url
from lag.alarms.rounds import AlarmPolicy
from lag.alarms.watching import SeenRound, Watcher
from lag.alarms.webhook import Webhook
from lag.journal.columns import queue_sample
from lag.rules.limits import Limits
from lag.samples import EventKind, LagEvent
from lag.spark.jobs.arguments import FAILED, OK, SPARK_ERRORS, WRONG, first_sentence, folders, listed
from lag.spark.jobs.watch_topic import TopicPlace
from lag.spark.session import SessionOptions, session
from lag.spark.shipping import ship
from lag.spark.sources.journal import NAME
from lag.spark.sources.options import OptionRefused

SETTLE_SECONDS: Final = 10.0
"""How long the end waits for posts that are under way."""
WEBHOOK_MS: Final = 5_000
"""How long a webhook may take to answer."""
_ORDER: Final = ("cluster", "node", "file", "position")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where alarms go: to each place that is named; rules may choose among them.

    Attributes:
        file: A file of JSON lines.
        topic: A topic of `node`.
        node: `host:port` of a node's producer port.
        webhook: An address.
    """

    file: str | None = None
    topic: str | None = None
    node: str | None = None
    webhook: str | None = None

    def __post_init__(self) -> None:
        """Refuse places that are none, and none at all. Raises ValueError."""
        if not self.names:
            raise ValueError("alarms go somewhere: give --file, --topic with --node, or --webhook")
        if (self.topic is None) != (self.node is None):
            raise ValueError("a topic is one of a node: give both --topic NAME and --node HOST:PORT, its producer port")
        if self.webhook is not None:
            check_url(self.webhook)
        if self.topic is not None and self.node is not None:
            try:
                TopicPlace(self.node, self.topic)
            except OptionRefused as error:
                raise ValueError(f"--node is {self.node!r}: write host:port, the node's producer port") from error

    @property
    def names(self) -> tuple[str, ...]:
        """What rules call them."""
        given = {"file": self.file, "topic": self.topic, "webhook": self.webhook}
        return tuple(name for name, value in given.items() if value is not None)

    def chosen(self, sinks: Sequence[str]) -> tuple[str, ...]:
        """Return those that a rule names; all, where it names none of them."""
        return tuple(name for name in self.names if name in sinks) or self.names

    def opened(self, disk: Disk) -> dict[str, Place]:
        """Return the places themselves."""
        found: dict[str, Place] = {}
        if self.file is not None:
            found["file"] = FilePlace(AlarmLines(disk, self.file))
        if self.topic is not None and self.node is not None:
            found["topic"] = TopicPlace(self.node, self.topic)
        if self.webhook is not None:
            found["webhook"] = WebhookPlace(Webhook(self.webhook, WEBHOOK_MS))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What is watched, and how.

    Attributes:
        journals: Folders of lag journals.
        checkpoint: Folder of Spark's checkpoint and of the state of alarms.
        places: Where alarms go.
        policy: What is an alarm.
        limits_of: Thresholds of a group and topic.
        wanted: What is left out.
        every_s: How often journals are looked at.
        once: Take what is there, and end.
        settings: Further options of the source.
    """

    journals: Sequence[str]
    checkpoint: str
    places: Places
    policy: AlarmPolicy
    limits_of: LimitsOf = field(default=lambda _group, _topic: Limits())
    wanted: Wanted = everything
    every_s: float = 10.0
    once: bool = False
    settings: dict[str, str] = field(default_factory=dict)


def watch(
    spark: SparkSession,
    options: WatchOptions,
    *,
    now_ms: Callable[[], int],
    stop: threading.Event | None = None,
    warn: Callable[[str], None] = lambda _text: None,
) -> Watcher:
    """Watch until the query ends: at once, or never but by `stop`.

    Args:
        spark: A session with our sources.
        options: What and how.
        now_ms: Tells the time, for the silence of nodes.
        stop: Ends it.
        warn: Is told what a place does not take, and why, when that changes.

    Returns:
        The watcher, as it is at the end.

    Raises:
        OSError: The state or the file cannot be written.
    """
    disk = RealDisk()
    watcher = Watcher(
        disk,
        f"{options.checkpoint}/alarms",
        options.places.opened(disk),
        policy=options.policy,
        limits_of=options.limits_of,
        wanted=options.wanted,
    )
    try:
        watcher.recall(RealDisk(read_only=True), options.journals)
        _run(spark, options, watcher, now_ms=now_ms, stop=stop, warn=warn)
        watcher.look_at_clock(now_ms())
        watcher.settle(SETTLE_SECONDS)
    finally:
        # Spark keeps what takes batches, and with it the places, until the JVM happens to collect its garbage.
        watcher.close()
    return watcher


def _run(
    spark: SparkSession,
    options: WatchOptions,
    watcher: Watcher,
    *,
    now_ms: Callable[[], int],
    stop: threading.Event | None,
    warn: Callable[[str], None],
) -> None:
    """Run the query to its end. Arguments and errors are those of `watch`."""
    lock = threading.Lock()

    def take(frame: DataFrame, number: int) -> None:
        rows = sorted(frame.collect(), key=lambda row: tuple(row[name] for name in _ORDER))
        with lock:
            watcher.take(number, [seen_round(row) for row in rows])

    reading = spark.readStream.format(NAME).option("path", ",".join(options.journals)).option("rows", "rounds")
    for name, value in options.settings.items():
        reading = reading.option(name, value)
    writing = reading.load().writeStream.foreachBatch(take).option("checkpointLocation", f"{options.checkpoint}/spark")
    if options.once:
        query = writing.trigger(availableNow=True).start()
        query.awaitTermination()
    else:
        known: set[str] = set()
        query = writing.trigger(processingTime=f"{options.every_s} seconds").start()
        while not query.awaitTermination(max(1, round(options.every_s))):
            with lock:
                watcher.look_at_clock(now_ms())
                troubles = {f"{name}: {why}" for name, (_, why) in watcher.waiting().items()}
            for text in sorted(troubles - known):
                warn(text)
            known = troubles
            if stop is not None and stop.is_set():
                query.stop()


def seen_round(row: Any) -> SeenRound:
    """Return a round from its row."""
    samples = []
    for group, topic, queue, time_ms, *values in json.loads(row["samples"]):
        samples.append(((group, topic, queue), queue_sample(time_ms, tuple(values))))
    events = [LagEvent(**each | {"kind": EventKind(each["kind"])}) for each in json.loads(row["events"])]
    return SeenRound(whose=(row["cluster"], row["node"]), time_ms=row["time_ms"], samples=samples, events=events)


def main(arguments: Sequence[str]) -> int:
    """Watch; returns the exit code: 0, 1 when it failed, 2 when an option is wrong."""
    parser = argparse.ArgumentParser(prog="pyddmq lag watch", description="Raise alarms about consumption lag.")
    parser.add_argument("--journal", required=True, help="folders of lag journals, with commas between them")
    parser.add_argument("--checkpoint", required=True, help="folder that says how far it is")
    parser.add_argument("--file", default=None, help="file of JSON lines that alarms are added to, each once")
    parser.add_argument("--topic", default=None, help="topic that alarms are sent to, each once; with --node")
    parser.add_argument("--node", default=None, help="host:port of the producer port of a node that has the topic")
    parser.add_argument("--webhook", default=None, help="address that alarms are posted to, each at least once")
    parser.add_argument("--statuses", default=",".join(sorted(DEFAULT_STATUSES)), help="what is an alarm")
    parser.add_argument("--group", default="*", help="names of groups, with * and ?, with commas between them")
    parser.add_argument("--for", dest="hold", type=float, default=0.0, help="how long it must hold, in seconds")
    parser.add_argument("--close-after", type=float, default=60.0, help="how long it must be gone, in seconds")
    parser.add_argument("--repeat", type=float, default=0.0, help="how often it is told again, in seconds; 0: never")
    parser.add_argument("--mute", default="", help="groups whose alarms are told to nobody, with commas between them")
    parser.add_argument("--silence", type=float, default=60.0, help="how long a node may record nothing, in seconds")
    parser.add_argument("--target", type=float, default=60.0, help="oldest that a message may be, in seconds")
    parser.add_argument("--every", type=float, default=10.0, help="how often journals are looked at, in seconds")
    parser.add_argument("--once", action="store_true", help="take what is there, and end")
    parser.add_argument("--master", default=None, help="where Spark runs; local, if it is left out")
    parser.add_argument("--log", default=None, help="file for what Spark says; one in the folder for temporary files")
    given = parser.parse_args(arguments)
    try:
        places = Places(file=given.file, topic=given.topic, node=given.node, webhook=given.webhook)
        rule = AlarmRule(
            statuses=frozenset(listed(given.statuses)),
            groups=tuple(listed(given.group)),
            for_ms=round(given.hold * 1000),
            close_after_ms=round(given.close_after * 1000),
            repeat_ms=round(given.repeat * 1000),
            sinks=places.names,
        )
        target_ms = round(given.target * 1000)
        limits = Limits(target_ms=target_ms, floor_ms=min(Limits().floor_ms, target_ms))
    except ValueError as error:
        print(f"pyddmq lag watch: {error}", file=sys.stderr)
        return WRONG
    options = WatchOptions(
        journals=folders(given.journal),
        checkpoint=given.checkpoint,
        places=places,
        policy=AlarmPolicy(
            rules=(rule,), silence_ms=round(given.silence * 1000), mutes=muted_for_ever(listed(given.mute))
        ),
        limits_of=lambda _group, _topic: limits,
        every_s=given.every,
        once=given.once,
    )
    return run(options, master=given.master, log=given.log)


def muted_for_ever(groups: Sequence[str]) -> dict[str, Mute]:
    """Return mutes of groups for as long as the job is told so."""
    return {group: Mute(until_ms=1 << 62, reason="--mute") for group in groups}


def run(options: WatchOptions, *, master: str | None, log: str | None) -> int:
    """Watch in a session of its own; returns the exit code: 1, too, where a place has not taken all."""
    log = log or f"{tempfile.mkdtemp(prefix='pyddmq-lag-')}/spark.log"
    try:
        spark = session(SessionOptions(name="pyddmq lag watch", master=master, ui=False, log_file=log))
        ship(spark)
        print(f"watching; what Spark says is in {log}", file=sys.stderr, flush=True)
        watcher = watch(spark, options, now_ms=lambda: time.time_ns() // 1_000_000, warn=_warn)
    except KeyboardInterrupt:
        return OK
    except (OSError, *SPARK_ERRORS) as error:
        print(f"pyddmq lag watch: {first_sentence(error)}", file=sys.stderr)
        return FAILED
    if watcher.trouble is not None:
        print(f"pyddmq lag watch: began anew, since {watcher.trouble}", file=sys.stderr)
    if watcher.late:
        print(f"pyddmq lag watch: {watcher.late} rounds came too late", file=sys.stderr)
    waiting = watcher.waiting()
    for name, (count, why) in waiting.items():
        _warn(f"{name}: {count} waits there for the next run: {why}")
    return FAILED if waiting else OK


def _warn(text: str) -> None:
    print(f"pyddmq lag watch: {text}", file=sys.stderr, flush=True)
