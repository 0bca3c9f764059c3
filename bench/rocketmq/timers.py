"""Timers of Apache RocketMQ by its own clients: load and measures as in bench/measures/timers.py, beside the node's.

The broker keeps to the server's core as the node does, answers a publish when it is on disk (SYNC_FLUSH), and has its
defaults but for `timerPrecisionMs`: the width of a slot of its wheel, which is delivered as a whole. It takes no timers
within a batch, so they are published one by one, with many unanswered.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.measures.runs import GROUP, LEAD_NS, TOPIC, Figures
from bench.measures.timer_figures import (
    BURST_TOPIC,
    DELIVERED_MAX_PER_SECOND,
    OTHER_RATE,
    OTHER_TOPIC,
    PENDING_FROM_MS,
    Burst,
    Start,
    Taken,
    TimerPlan,
    burst_figures,
    parts,
    steady_figures,
    wall_ms,
)
from bench.progress import say
from bench.rocketmq.jars import HERE, JARS
from bench.rocketmq.processes import Broker, LineClient, NameServer
from bench.servers.maven import Programs, compile_programs
from bench.servers.processes import BenchError, Cores, process_cpu_seconds, process_memory, wait_for

PRECISIONS_MS = (1_000, 100)
"""RocketMQ's default, and the finest that it takes (store/timer/TimerMessageStore: 100, 200, 500 or 1,000)."""
JVM = ("-Xmx2g", "-XX:MaxDirectMemorySize=1g", "-Djava.net.preferIPv4Stack=true")
"""Java's defaults but for bounds; on one core that is its serial collector."""
_OUTSTANDING = 256
_PUBLISHED_PER_SECOND = 2_000
"""What a slow machine publishes at least: how far ahead of the first due time publishing begins."""
_WARM_UP_SECONDS = 2
"""How much of the steady load is left out, since a JVM compiles while it runs."""
_WARM_UP_TIMERS = 1_000


def rocketmq_timers(folder: Path, where: Cores, plan: TimerPlan, precision_ms: int) -> list[Figures]:
    """Measure the same of a RocketMQ of its own; returns the steady lateness, and the burst.

    Raises:
        JarsMissing: Java, Maven or the way to Maven Central is missing.
        BenchError: RocketMQ does not do what is asked for.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="rocketmq-") as own:
        classes = Path(own) / "classes"
        classes.mkdir()
        with contextlib.closing(
            _Rival(Path(own), where, compile_programs(JARS.fetch(), HERE, classes), precision_ms)
        ) as rival:
            figures = _measured(rival, plan)
    return [replace(each, facts={**each.facts, "precision_ms": precision_ms}) for each in figures]


def _measured(rival: _Rival, plan: TimerPlan) -> list[Figures]:
    empty_restart = rival.restart()
    rival.publish(TOPIC, _WARM_UP_TIMERS, wall_ms() + PENDING_FROM_MS, 1.0)
    before = rival.own_memory()
    filled = 0.0
    for count, begin, spacing in parts(plan.rival_pending, wall_ms() + PENDING_FROM_MS):
        filled += rival.publish(TOPIC, count, begin, spacing)
        say(f"  {rival.pending():,} timers are pending")
    rival.wait_enqueued(plan.rival_pending + _WARM_UP_TIMERS)
    after = rival.own_memory()
    say(f"  {plan.rate:,} a second are due for {plan.seconds:g} s")
    late = _lateness(rival, plan)
    say(f"  {plan.burst:,} are due in one millisecond")
    burst = _burst(rival, plan)
    say("  SIGKILL, and a start")
    pending = rival.pending()
    restart = rival.restart()
    lost = pending - rival.pending()
    taken = Taken(before=before, after=after, filled=filled, restart=restart, empty_restart=empty_restart, lost=lost)
    return [
        steady_figures("rocketmq", plan, plan.rival_pending, late, taken),
        burst_figures("rocketmq", plan.burst, burst),
    ]


def _lateness(rival: _Rival, plan: TimerPlan) -> list[int]:
    """Nanoseconds from when each timer was due to when the listener of a long-polling consumer had it."""
    warm_up = plan.rate * _WARM_UP_SECONDS
    count = warm_up + int(plan.rate * plan.seconds)
    came = rival.pull(TOPIC, GROUP, count, "wall")
    begin = wall_ms() + 2_000 + count * 1_000 // _PUBLISHED_PER_SECOND
    rival.publish(TOPIC, count, begin, 1_000 / plan.rate)
    if wall_ms() >= begin:
        say("  they were published too slowly: what is late was in part late there")
    return [at - due for due, at in sorted(came())][warm_up:]


def _burst(rival: _Rival, plan: TimerPlan) -> Burst:
    quiet_pulls, quiet_acks = _others(rival, rival.pull_others(2.0), 2.0)
    seconds = 2.0 + plan.burst / DELIVERED_MAX_PER_SECOND
    came = rival.pull_others(seconds)
    due = wall_ms() + 6_000 + plan.burst * 1_000 // _PUBLISHED_PER_SECOND
    rival.publish(BURST_TOPIC, plan.burst, due, 0.0)
    if wall_ms() >= due:
        raise BenchError(f"fewer than {_PUBLISHED_PER_SECOND} a second were published: the burst was due too early")
    # The schedule of the other topic begins a second before.
    time.sleep(max(0.0, due / 1000 - time.time() - 1.0 - LEAD_NS / 1e9))
    begun = time.monotonic_ns() + due * 1_000_000 - time.time_ns()
    rival.watcher.write({"do": "await", "topic": BURST_TOPIC, "count": plan.burst})
    pulls, acks = _others(rival, came, seconds)
    [found] = rival.watcher.answers()
    return Burst(begun, found["at"], quiet_pulls, quiet_acks, pulls, acks)


Came = Callable[[], list[tuple[int, int]]]


def _others(rival: _Rival, came: Came, seconds: float) -> tuple[list[tuple[int, int]], list[int]]:
    """Publish messages of another topic; returns when each was due and came, and the ns to each receipt."""
    count = int(OTHER_RATE * seconds)
    [answer] = rival.publisher.ask(do="publish", topic=OTHER_TOPIC, count=count, rate=OTHER_RATE, lead=LEAD_NS)
    return sorted(came()), answer["taken"]


class _Rival:
    """A name server, a broker and three processes of clients; what it has is gone with its folder.

    Args:
        folder: For all of it.
        where: The broker's core and the clients'.
        programs: The class path.
        precision_ms: The broker's `timerPrecisionMs`.
    """

    def __init__(self, folder: Path, where: Cores, programs: Programs, precision_ms: int) -> None:
        self._folder = folder
        self._where = where
        self._programs = programs
        self._settings = {
            "storePathRootDir": str(folder / "store"),
            "storePathCommitLog": str(folder / "store" / "commitlog"),
            "flushDiskType": "SYNC_FLUSH",
            "timerWheelEnable": "true",
            "timerPrecisionMs": str(precision_ms),
        }
        self._starts = 0
        self._processes: list[Any] = []
        try:
            self._namesrv = NameServer(folder / "namesrv", programs, core=where.client)
            self._processes.append(self._namesrv)
            self._broker = self._start()
            self.publisher, self.puller, self.watcher = (
                self._client(name) for name in ("publisher", "puller", "watcher")
            )
            for topic in (TOPIC, BURST_TOPIC, OTHER_TOPIC):
                self.publisher.ask(do="topic", broker=self._broker.address, topic=topic)
        except BaseException:
            self.close()
            raise

    def _start(self) -> Broker:
        folder = self._folder / f"broker-{self._starts}"
        self._starts += 1
        broker = Broker(
            folder, self._programs, self._namesrv.address, self._settings, options=JVM, core=self._where.server
        )
        self._processes.append(broker)
        return broker

    def _client(self, name: str) -> LineClient:
        command = ["Load", self._namesrv.address]
        options = ("-Xmx1g", "-Djava.net.preferIPv4Stack=true")
        client = LineClient(
            self._folder / name, self._programs, command, piped=True, options=options, core=self._where.client
        )
        self._processes.append(client)
        return client

    def publish(self, topic: str, count: int, begin_ms: int, spacing_ms: float) -> float:
        """Publish timers; returns the seconds that it took."""
        request = {"topic": topic, "count": count, "begin": begin_ms, "spacing": spacing_ms}
        [answer] = self.publisher.ask(do="timers", outstanding=_OUTSTANDING, **request)
        return float(answer["seconds"])

    def pull(self, topic: str, group: str, count: int, clock: str) -> Came:
        """Have a consumer wait for messages; returns, when it waits, what gives the time in each and when it came."""
        self.puller.write({"do": "pull", "topic": topic, "group": group, "count": count, "clock": clock})
        answers = self.puller.answers()
        next(answers)

        def came() -> list[tuple[int, int]]:
            [answer] = answers
            flat: list[int] = answer["pairs"]
            return list(zip(flat[::2], flat[1::2], strict=True))

        return came

    def pull_others(self, seconds: float) -> Came:
        """The same for what is published to another topic for so long."""
        return self.pull(OTHER_TOPIC, "bench-other", int(OTHER_RATE * seconds), "monotonic")

    def pending(self) -> int:
        """Units in the slots of the wheel that are still to be read, which is what the broker tells."""
        return int(self._reported()["timerCongestNum"])

    def wait_enqueued(self, count: int) -> None:
        """Wait until so many are in the wheel.

        Raises:
            BenchError: They are not after half a minute.
        """
        wait_for(lambda: self.pending() >= count, f"fewer than {count} timers are in RocketMQ's wheel")

    def _reported(self) -> dict[str, str]:
        [answer] = self.watcher.ask(do="told", broker=self._broker.address)
        table: dict[str, str] = answer["table"]
        return table

    def own_memory(self) -> int:
        """Resident memory in bytes but for mapped files, after a collection: what is garbage is no part of it."""
        pid = self._broker.process.pid
        subprocess.run(["jcmd", str(pid), "GC.run"], capture_output=True, check=False)
        return process_memory(pid).own

    def restart(self) -> Start:
        """Kill the broker and start it again; returns what it took until it says that it is up."""
        self._broker.kill()
        begun = time.monotonic()
        self._broker = self._start()
        return Start(time.monotonic() - begun, process_cpu_seconds(self._broker.process.pid))

    def close(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.kill()
