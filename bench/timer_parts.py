"""What a due timer costs by its parts, in one process: `python -m bench.timer_parts [--step N ...]`.

The load of the other benchmarks (1 KiB bodies, 12-byte keys), due in one millisecond on a simulated disk, is taken,
released, appended and settled in steps of N; write, sync and the loop are left out. Microseconds of processor time per
timer, the best of some passes. `--delays` has delay levels instead, whose parts are fewer.
"""

from __future__ import annotations

import argparse
from random import Random
from typing import Any

import structlog

from bench.clients.load import body_of, key_of
from bench.watch import Watch
from broker.features import ALL
from broker.format.properties import encode_properties
from broker.log.group_commit import CommitDriver
from broker.log.put import Put
from broker.options import StoreOptions
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.steps import run_now
from broker.scheduled.delay.delays import Delays
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.timer.puts import TimedPuts
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk

MESSAGES = 5_120
PASSES = 5
STEPS = (5, 48, 512)
PARTS = ("take", "release", "append", "done", "rest")
DELAY_PARTS = ("release", "append", "rest")
_WAIT_MS = 1_000
_ENTERED_MS = 500
_BATCH = 32


def measure(step: int, passes: int = PASSES, *, messages: int = MESSAGES, delays: bool = False) -> dict[str, float]:
    """Return microseconds per timer by part."""
    best: dict[str, float] = {}
    for _ in range(passes):
        spent = _measure_delays(step, messages) if delays else _measure_timers(step, messages)
        if not best or sum(spent.values()) < sum(best.values()):
            best = spent
    return best


def _measure_timers(step: int, messages: int) -> dict[str, float]:
    store, clock, scheduler, given = _store()
    timers = run_now(Timers.opening(store, **given))
    timers.start()
    puts = _puts(store, messages)
    due_ms = clock.wall_ms() + _WAIT_MS
    _append(store, [store.waiting(TimedPuts).timed(put, due_ms) for put in puts])
    scheduler.advance(_ENTERED_MS / 1000)
    assert timers.table.coming.count == messages, "all are read before they are due"
    timers.stop()
    clock.advance(1.0)
    watch, due = Watch(PARTS), timers.due
    due.step_size.most = step
    watch.watch(due, "_take", "take")
    watch.watch(due, "release_plain", "release")
    watch.watch(store, "append", "append")
    watch.watch(due, "done", "done")
    while timers.pending:
        watch.run("rest", due.deliver_due, clock.wall_us())
        store.flush()
    store.close()
    return {part: seconds / messages * 1e6 for part, seconds in watch.spent.items()}


def _measure_delays(step: int, messages: int) -> dict[str, float]:
    store, clock, _, given = _store()
    delays = run_now(Delays.opening(store, **given))
    _append(store, [store.waiting(DelayedPuts).put(put, 1) for put in _puts(store, messages)])
    delays.start()
    clock.advance(store.waiting(DelayedPuts).levels.ms(1) / 1000)
    watch = Watch(DELAY_PARTS)
    delays.due.step_size.most = step
    watch.watch(delays.due._plain, "release", "release")
    watch.watch(store, "append", "append")
    while delays.levels[1].pending:
        watch.run("rest", delays._step)
        store.flush()
    store.close()
    return {part: seconds / messages * 1e6 for part, seconds in watch.spent.items()}


def _store() -> tuple[Store, ManualClock, ManualScheduler, dict[str, Any]]:
    clock, disk, metrics = ManualClock(), SimDisk(), Metrics()
    scheduler = ManualScheduler(clock)
    store = Store.open(
        "/bench", options=StoreOptions(), features=ALL, disk=disk, clock=clock, random=Random(1), metrics=metrics
    )
    store.commit.driver = CommitDriver()
    shared = {
        "disk": disk,
        "clock": clock,
        "scheduler": scheduler,
        "metrics": metrics,
        "limited_log": RateLimitedLog(clock),
    }
    return store, clock, scheduler, shared


def _puts(store: Store, messages: int) -> list[Put]:
    topic = store.create_topic("bench", 1)
    block = [encode_properties([("KEYS", key_of(number).decode())]) for number in range(messages)]
    return [Put(topic, 0, body_of(number=number), block[number]) for number in range(messages)]


def _append(store: Store, puts: list[Put]) -> None:
    for at in range(0, len(puts), _BATCH):
        store.append(puts[at : at + _BATCH], born_ms=1, born_host=bytes(8), atomic=True)
    store.flush()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.timer_parts", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--step", type=int, nargs="+", default=list(STEPS), help="timers per step")
    parser.add_argument("--delays", action="store_true", help="messages of a delay level instead")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    for step in options.step:
        found = measure(step, delays=options.delays)
        parts = ", ".join(f"{name} {value:.1f}" for name, value in found.items())
        print(f"step of {step}, us per timer: {parts}; together {sum(found.values()):.1f}")


if __name__ == "__main__":
    main()
