"""What each accelerator brings: `python -m bench.accelerators` prints the table of docs/performance.md.

Its functions run in one process with it and without (`PYDDMQ_PURE=1`), at batch 1, 8 and 32: the parts of a publish, of
a pull with acks and of timers that are due (`bench.parts`, `bench.pull_parts`, `bench.timer_parts`), and small loops
here for what is not a part of its own. The figures are ratios: how many times as long the Python takes. The two
processes take turns, the best of each counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import structlog

from bench import parts, pull_parts, timer_parts
from bench.clients.load import PROPERTIES, TAG, body_of, key_of
from bench.progress import say
from bench.reports import report
from broker.features import ALL
from broker.format.properties import encode_properties
from broker.format.unique_key import numbered_keys
from broker.log.put import Put
from broker.options import StoreOptions
from broker.runtime.accelerators import PURE_VARIABLE
from broker.runtime.metrics import Metrics
from broker.store import Store
from pyddmq.testing import ManualClock, SimDisk

BATCHES = (1, 8, 32)
ROUNDS = 3
_SECONDS = 0.02
_PASSES = 15
_PULL_MESSAGES = 1_920
_TIMERS = 960
WHERE = {
    "publish: scan": "proxy/wire/send_accelerator.pyx",
    "publish: check": "proxy/services/check_accelerator.pyx",
    "publish: measure": "broker/log/encode_accelerator.pyx",
    "publish: encode": "broker/log/encode_accelerator.pyx",
    "publish: index": "broker/index/rows_accelerator.pyx",
    "pull: scan": "proxy/wire/pull_accelerator.pyx",
    "pull: reply": "proxy/wire/pull_accelerator.pyx",
    "pull: read ahead": "upstream/jobs_accelerator.pyx",
    "pull: take": "upstream/jobs_accelerator.pyx",
    "pull: acks": "upstream/jobs_accelerator.pyx",
    "timers: take": "broker/scheduled/timer/log_units_accelerator.pyx",
    "timers: release": "broker/scheduled/release_accelerator.pyx",
    "unique keys": "broker/format/unique_key_accelerator.pyx",
    "locate": "broker/format/locate_accelerator.pyx",
}
"""What is measured, and what makes it quicker (most of all, where there are several)."""


def _best(work: Callable[[], Any], count: int) -> float:
    """Return microseconds per message of some work on `count` of them, the best of some passes."""
    calls, best = 1, 0.0
    while True:
        before = process_time()
        for _ in range(calls):
            work()
        spent = process_time() - before
        if spent > _SECONDS:
            break
        calls *= 2
    for _ in range(_PASSES):
        before = process_time()
        for _ in range(calls):
            work()
        spent = process_time() - before
        best = min(spent, best or spent)
    return best / calls / count * 1e6


def _located(count: int) -> Callable[[], Any]:
    """Return what finds body and properties of as many records."""
    store = Store.open(
        "/bench",
        options=StoreOptions(),
        features=ALL,
        disk=SimDisk(),
        clock=ManualClock(),
        random=Random(1),
        metrics=Metrics(),
    )
    topic = store.create_topic("bench", 8)
    for each in range(count):
        pairs = [(b"KEYS", key_of(each)), (b"TAGS", TAG), *PROPERTIES]
        block = encode_properties([(name.decode(), value.decode()) for name, value in pairs])
        store.append([Put(topic, 0, body_of(), block, TAG)], born_ms=1, born_host=bytes(8))
    store.flush()
    units = [(physical, size) for physical, size, _ in topic.queues[0].read(0, count)]
    return lambda: store.locate(units)


def measure() -> dict[str, dict[int, float]]:
    """Return microseconds per message of all that is measured, by batch size, as accelerators run in this process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    found: dict[str, dict[int, float]] = {name: {} for name in WHERE}
    for batch in BATCHES:
        here = {f"publish: {name}": value for name, value in parts.measure(batch, _PASSES).items()}
        pulled = pull_parts.measure(batch, ROUNDS, messages=_PULL_MESSAGES)
        here |= {f"pull: {name}": value for name, value in pulled.items()}
        due = timer_parts.measure(batch, ROUNDS, messages=_TIMERS)
        here |= {f"timers: {name}": value for name, value in due.items()}
        here["unique keys"] = _best(lambda count=batch: numbered_keys(bytes(28), 4095, count), batch)  # type: ignore[misc]
        here["locate"] = _best(_located(batch), batch)
        for name in WHERE:
            found[name][batch] = here[name]
    return found


def _measured(pure: bool) -> dict[str, dict[str, float]]:
    environment = {**os.environ, PURE_VARIABLE: "1" if pure else "0"}
    command = [sys.executable, "-m", "bench.accelerators", "--measure"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


def table() -> str:
    """Return the Markdown table."""
    best: dict[bool, dict[str, dict[str, float]]] = {}
    for number in range(ROUNDS):
        for pure in (False, True):
            say(f"{number + 1}/{ROUNDS} {'in Python' if pure else 'accelerated'}")
            for name, values in _measured(pure).items():
                earlier = best.setdefault(pure, {}).setdefault(name, values)
                best[pure][name] = {batch: min(value, earlier[batch]) for batch, value in values.items()}
    lines = ["| what | accelerator | batch 1 | 8 | 32 |", "| --- | --- | --- | --- | --- |"]
    for name, where in WHERE.items():
        ratios = [f"{best[True][name][str(batch)] / best[False][name][str(batch)]:.1f}" for batch in BATCHES]
        lines.append(f"| {name} | `{where}` | " + " | ".join(ratios) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table, or for one of its processes the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.accelerators", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--document", metavar="FILE", help="put the table into FILE, between its marks for it")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure()))
        return
    text = table()
    print(text, end="")
    if options.document:
        path = Path(options.document)
        path.write_text(report.put_between(path.read_text(), "accelerators", text))


if __name__ == "__main__":
    main()
