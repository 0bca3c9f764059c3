"""Timers of the node: lateness at a parked client, memory per pending timer, a burst in one millisecond, a restart.

All clients and the node are on one machine and read one wall clock. What is pending meanwhile is due hours later.
"""

from __future__ import annotations

import json
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from bench.clients.compact import Message, publish_frame
from bench.clients.load import NodeConnection, body_of, key_of, pull, stamp_of
from bench.clients.processes import PULL_LINGER_MS, QUIET_PULLS_MAX, ClientProcess, Target, open_loop_publish
from bench.measures.runs import BENCH_GROUP, GROUP, LEAD_NS, TOPIC, Figures, node_config
from bench.measures.timer_figures import (
    BURST_TOPIC,
    DELIVERED_MAX_PER_SECOND,
    EMPTY_STARTS,
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
from bench.servers.processes import BenchError, Cores, Node

OTHER_GROUP = b"bench-other"
_OTHER = """\
  - group: bench-other
    topics:
      - {topic: idle, orderKey: KEY, actions: [Async, PullServer], maxPullBatchSize: 32, timeout: 60000}
"""
_BATCH = 32
_PUBLISHED_PER_SECOND = 2_000
"""What a slow machine publishes at least: how far ahead of the first due time publishing begins."""
_BURST_LEADS_MS = (3_000, 10_000, 60_000)
"""Time for a client to start before its burst is due, try by try."""


def timers(folder: Path, where: Cores, plan: TimerPlan) -> list[Figures]:
    """Measure all of it on one node; returns the steady lateness, and the burst."""
    say("  SIGKILL, and a start, with nothing stored")
    config = node_config(BENCH_GROUP, _OTHER, queues=1, topics=(TOPIC, OTHER_TOPIC, BURST_TOPIC))
    with tempfile.TemporaryDirectory(dir=folder, prefix="timers-") as own:
        node = Node(Path(own), config, core=where.server)
        try:
            empty: list[Start] = []
            for _ in range(EMPTY_STARTS):
                node, start = _restarted(node, Path(own), config, where)
                empty.append(start)
            target = Target("pyddmq", node.producer, node.consumer, TOPIC.encode(), GROUP.encode())
            # Whatever the first timer brings about is not what each of them takes.
            ClientProcess(where.client, publish_timers, target, 1, wall_ms() + PENDING_FROM_MS, 1.0).result()
            node.process.wait_idle()
            before = node.process.memory().own
            filled = 0.0
            for count, begin, spacing in parts(plan.pending, wall_ms() + PENDING_FROM_MS):
                filled += ClientProcess(where.client, publish_timers, target, count, begin, spacing).result()
                say(f"  {_pending(node):,} timers are pending")
            node.process.wait_idle()
            after = node.process.memory().own
            say(f"  {plan.rate:,} a second are due for {plan.seconds:g} s")
            late = _lateness(where, target, plan)
            say(f"  {plan.burst:,} are due in one millisecond")
            burst = _burst(where, node, plan)
            say("  SIGKILL, and a start")
            node, restart = _restarted(node, Path(own), config, where)
        finally:
            node.stop()
    taken = Taken(
        before=before,
        after=after,
        filled=filled,
        restart=restart,
        empty_restart=sorted(empty)[EMPTY_STARTS // 2],
        lost=0,
    )
    return [
        steady_figures("pyddmq", plan, plan.pending, late, taken),
        burst_figures("pyddmq", plan.burst, burst),
    ]


def _lateness(where: Cores, target: Target, plan: TimerPlan) -> list[int]:
    """Nanoseconds from when each timer was due to when a parked client had it; the first half second is left out."""
    warm_up = plan.rate // 2
    count = warm_up + int(plan.rate * plan.seconds)
    puller = ClientProcess(where.client, pull_timers, target, count)
    begin = wall_ms() + 2_000 + count * 1_000 // _PUBLISHED_PER_SECOND
    ClientProcess(where.client, publish_timers, target, count, begin, 1_000 / plan.rate).result()
    if wall_ms() >= begin:
        say("  they were published too slowly: what is late was in part late there")
    pairs: list[tuple[int, int]] = puller.result()
    taken: list[int] = [at - due for due, at in sorted(pairs)]
    return taken[warm_up:]


def _burst(where: Cores, node: Node, plan: TimerPlan) -> Burst:
    """Have many fall due at once, and see how long they take, and what another topic's clients notice of it."""
    other = Target("pyddmq", node.producer, node.consumer, OTHER_TOPIC.encode(), OTHER_GROUP)
    target = Target("pyddmq", node.producer, node.consumer, BURST_TOPIC.encode(), b"")
    quiet_pulls, quiet_acks = _others(where, other, seconds=2.0)
    before = _pending(node)
    due = _publish_burst(where, node, target, plan.burst)
    left_s = due / 1000 - time.time()
    count = int(OTHER_RATE * (left_s + 1.0 + plan.burst / DELIVERED_MAX_PER_SECOND))
    puller = ClientProcess(where.client, pull_other, other, count)
    publisher = ClientProcess(where.client, open_loop_publish, other, OTHER_RATE, count, LEAD_NS)
    time.sleep(max(0.0, due / 1000 - time.time()))
    begun = time.monotonic_ns()
    while _pending(node) > before:
        time.sleep(0.02)
    drained = time.monotonic_ns()
    acks: list[int] = publisher.result()
    return Burst(begun, drained, quiet_pulls, quiet_acks, puller.result(), acks)


def _publish_burst(where: Cores, node: Node, target: Target, count: int) -> int:
    """Publish timers that fall due at once, after the last was published; returns when, in ms since the epoch."""
    before = _pending(node)
    for lead_ms in _BURST_LEADS_MS:
        due = wall_ms() + lead_ms + count * 1_000 // _PUBLISHED_PER_SECOND
        ClientProcess(where.client, publish_timers, target, count, due, 0.0).result()
        if wall_ms() < due:
            return due
        # The machine was slower: what fell due goes, and the next try has longer.
        while _pending(node) > before:
            time.sleep(0.02)
    raise BenchError(f"fewer than {_PUBLISHED_PER_SECOND} a second were published: every burst was due too early")


def _others(where: Cores, other: Target, *, seconds: float) -> tuple[list[tuple[int, int]], list[int]]:
    """Publish and pull messages of another topic; returns what `pull_other` and `open_loop_publish` do."""
    count = int(OTHER_RATE * seconds)
    puller = ClientProcess(where.client, pull_other, other, count)
    publisher = ClientProcess(where.client, open_loop_publish, other, OTHER_RATE, count, LEAD_NS)
    acks: list[int] = publisher.result()
    return puller.result(), acks


def _restarted(node: Node, folder: Path, config: str, where: Cores) -> tuple[Node, Start]:
    """Kill the node and start it again; returns it, and what it took until it was ready with all that was pending."""
    pending = _pending(node)
    node.process.kill()
    begun = time.monotonic()
    again = Node(folder, config, core=where.server)
    start = Start(time.monotonic() - begun, again.process.cpu_seconds())
    found = _pending(again)
    if found != pending:
        again.stop()
        raise BenchError(f"{pending} timers were pending, {found} are after a kill")
    return again, start


def _pending(node: Node) -> int:
    host, port = node.addresses["admin"].rsplit(":", 1)
    connection = HTTPConnection(host, int(port), timeout=120)
    try:
        connection.request("GET", "/api/timers?limit=0")
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return int(answer["pendingTotal"]) + int(answer["entering"])


# In the clients' processes


def publish_timers(target: Target, count: int, begin_ms: int, spacing_ms: float) -> float:
    """Publish timers of which each is due so long after the one before; returns the seconds that it took.

    Their bodies begin with the due time, nanoseconds of the wall clock.
    """
    connection = NodeConnection(target.publish_address, target.topic, target.group)
    begun = time.perf_counter()
    for start in range(0, count, _BATCH):
        batch = []
        for number in range(start, min(start + _BATCH, count)):
            due_ms = begin_ms + int(number * spacing_ms)
            body = body_of(due_ms * 1_000_000, number)
            batch.append(Message(target.topic, key_of(number), body, b"", (), due_ms))
        connection.socket.sendall(publish_frame(batch))
        while not connection.published():
            pass
    connection.socket.close()
    return time.perf_counter() - begun


def pull_timers(target: Target, count: int) -> list[tuple[int, int]]:
    """Pull with a long linger until `count` timers came; returns (due, received), nanoseconds of the wall clock.

    Raises:
        BenchError: They did not all come.
    """
    return _pull(target, count, time.time_ns, quiet_max=QUIET_PULLS_MAX)


def pull_other(target: Target, count: int) -> list[tuple[int, int]]:
    """Likewise what `open_loop_publish` sends, by the monotonic clock."""
    return _pull(target, count, time.monotonic_ns, quiet_max=QUIET_PULLS_MAX)


def _pull(target: Target, count: int, now: Any, *, quiet_max: int) -> list[tuple[int, int]]:
    connection = target.connect(pull=True)
    taken: list[tuple[int, int]] = []
    quiet = 0
    while len(taken) < count:
        bodies = pull(connection, _BATCH, PULL_LINGER_MS)
        at = now()
        taken.extend((stamp_of(body)[0], at) for body in bodies)
        quiet = 0 if bodies else quiet + 1
        if quiet == quiet_max:
            raise BenchError(f"{count - len(taken)} of {count} messages did not come")
    connection.finish()
    return taken
