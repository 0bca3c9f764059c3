"""Async actions: one queue, messages of 0-5 ms of work each, with more and more order keys, and with one that fails."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.clients.working import work_seconds
from bench.measures.runs import GROUP, TOPIC, Figures, node_config
from bench.servers.processes import BenchError, Cores, Node
from pyddmq import OutgoingMessage, Producer

KEYS = (1, 10, 100, 1_000)
SECONDS_MAX = 120.0
_BATCH = 250
_BODY = b"x" * 100
_ACTION = "bench.clients.working:Working"
_GROUP = """\
  - group: %s
    topics:
      - topic: %s
        actions: [Async, "%s"]
        timeout: 60000
        maxRetry: -1
        concurrency: 2000
        options: {"%s": %s}
%s"""


def actions(folder: Path, where: Cores, *, count: int) -> list[Figures]:
    """Measure `count` messages of one queue, stored before: the time by keys, unordered, and with a poison key."""
    runs = [Run(keys) for keys in KEYS if keys * 4 <= count]
    most = runs[-1].keys
    return [_measured(folder, where, count, run) for run in [*runs, Run(most, ordered=False), Run(most, poison=True)]]


class Run(NamedTuple):
    """One run: how many keys, whether they have an order, whether the first of them fails always."""

    keys: int
    ordered: bool = True
    poison: bool = False


def _measured(folder: Path, where: Cores, count: int, run: Run) -> Figures:
    keys, ordered, poison = run
    with tempfile.TemporaryDirectory(dir=folder) as own:
        node = Node(Path(own), node_config(queues=1), core=where.server)
        try:
            with Producer("{}:{}".format(*node.producer)) as producer:
                for start in range(0, count, _BATCH):
                    numbers = range(start, min(start + _BATCH, count))
                    messages = [OutgoingMessage(topic=TOPIC, body=_BODY, key=f"key-{n % keys}") for n in numbers]
                    producer.send_batch(messages)
            node.process.wait_idle()
            before = node.process.cost()
            file = Path(own) / "done.json"
            wanted = count - len(range(0, count, keys)) if poison else count
            options = json.dumps({"file": str(file), "count": wanted, "poison": keys if poison else 0})
            order = "        orderKey: KEY\n" if ordered else ""
            node.reconfigure(node_config(_GROUP % (GROUP, TOPIC, _ACTION, _ACTION, options, order), queues=1))
            deadline = time.monotonic() + SECONDS_MAX
            while not file.exists():
                if time.monotonic() > deadline:
                    raise BenchError(f"{count} messages of {keys} keys were not done in {SECONDS_MAX:.0f} s")
                time.sleep(0.02)
            reported = json.loads(file.read_text())
            cost = node.process.cost().since(before)
        finally:
            node.stop()
    serial = sum(work_seconds(offset) for offset in range(count))
    return Figures(
        measure="actions",
        server="pyddmq",
        batch=keys,
        messages=count,
        cpu_us=cost.process / count * 1e6,
        facts={
            "seconds": reported["seconds"],
            "p99": reported["p99"],
            "serial": serial,
            "ordered": float(ordered),
            "poison": float(poison),
        },
    )
