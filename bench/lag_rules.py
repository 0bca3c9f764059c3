"""What the lag rules cost a node: `python -m bench.lag_rules [--queues N] [--minutes N]`.

A node without disk or clients has N queues in groups of 40, and takes a round of samples every 10 s in simulated time.
The webhook asks for verdicts after each round, an open status page every 10 s, Prometheus every 15 s and a check once a
minute, each as on a real node; the metrics of lag are written as text. Printed for no, a tenth of and all queues busy:
share of a core that all of this takes, processor time per queue and judgement, and the greatest age of a verdict.
"""

from __future__ import annotations

import argparse
from time import process_time
from types import SimpleNamespace
from typing import Any, NamedTuple

from broker.runtime.steps import run_now
from conf import loads
from lag.samples import QueueKey, QueueSample
from lag.verdicts.windows import NodeWindows
from proxy.admin.lag_metrics import lag_text
from proxy.operate.attention.findings import judging, verdicts
from proxy.operate.attention.judgement import Judgement
from proxy.operate.lookups.lag import lag_queues
from proxy.recording.in_force import InForce
from proxy.recording.judging import QueueJudge
from pyddmq.testing import ManualClock
from tests.admin_node import PlainNode

BEGIN_MS = 1_700_000_000_000
ROUND_SECONDS, PAGE_SECONDS, SCRAPE_SECONDS, CHECK_SECONDS = 10, 10, 15, 60
WARM_SECONDS = 300
GROUP_QUEUES, TOPIC_QUEUES = 40, 8


class _CpuClock(ManualClock):
    """Simulated time, to which the processor time that passes is added: shares of time are those of a real node."""

    def monotonic(self) -> float:
        return super().monotonic() + process_time()


class Cost(NamedTuple):
    """What was measured: share of a core in percent, microseconds per queue and judgement, seconds."""

    percent: float
    us_per_queue: float
    age_max: float


class _Node(PlainNode):
    """A node whose queues are those of some windows."""

    def __init__(self, windows: NodeWindows, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        judge = QueueJudge(windows, clock, lambda _: None)
        recorder: Any = SimpleNamespace(judge=judge, trouble=None, waiting=lambda: ())
        self.recorder = recorder
        self.in_force = InForce(loads("").config)

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def lag_queues(self, *, leisurely: bool = False) -> Any:
        """Judge as a node does."""
        return lag_queues(self.recorder, self.in_force, self.clock.wall_ms(), leisurely=leisurely)


def sample_of(queue: int, is_busy: bool, second: int, now_ms: int) -> QueueSample:
    """Return what a round finds of a queue; a busy one gets and finishes 20 messages a second, 100 behind."""
    done, behind = (second * 20, 100 + queue % 7) if is_busy else (50, 0)
    return QueueSample(
        time_ms=now_ms,
        start=0,
        end=done + behind,
        committed=done,
        started=done + min(behind, 5),
        in_flight=min(behind, 5),
        start_ms=BEGIN_MS,
        committed_ms=now_ms - 5_000 if is_busy else None,
        started_ms=now_ms - 4_000 if is_busy else None,
        end_ms=now_ms - 50 if is_busy else BEGIN_MS,
        moved_ms=now_ms - 10 if is_busy else BEGIN_MS,
        answered_ms=now_ms - 10 if is_busy else BEGIN_MS,
        asked_ms=now_ms - 5,
        holders=2,
        base=0,
    )


def measure(queues: int, busy: float, minutes: int) -> Cost:
    """Return what a node with these queues costs."""
    clock, windows = _CpuClock(BEGIN_MS), NodeWindows()
    node = _Node(windows, clock)
    keys = [
        QueueKey(
            cluster="c",
            node="n",
            group=f"group-{number // GROUP_QUEUES}",
            topic=f"topic-{number // TOPIC_QUEUES % (GROUP_QUEUES // TOPIC_QUEUES)}",
            queue=number % TOPIC_QUEUES,
        )
        for number in range(queues)
    ]
    spent = age_max = 0.0
    for second in range(1, WARM_SECONDS + minutes * 60 + 1):
        clock.advance(1)
        if second % ROUND_SECONDS == 0:
            now_ms = clock.wall_ms()
            samples = [sample_of(number, number < busy * queues, second, now_ms) for number in range(queues)]
            windows.round(zip(keys, samples, strict=True))
        began = process_time()
        _ask(node, second)
        if second > WARM_SECONDS:
            spent += process_time() - began
            [_, judged] = node.last_judgement or (0.0, None)
            if judged is not None and second % ROUND_SECONDS == 0:
                age_max = max(age_max, _age_ms(judged, busy) / 1000)
    passes = []
    for _ in range(5):
        judge = QueueJudge(windows, clock, lambda _: None)
        began = process_time()
        run_now(judge.judging(clock.wall_ms()))
        passes.append(process_time() - began)
    return Cost(spent / (minutes * 60) * 100, min(passes) / queues * 1e6, age_max)


def _ask(node: _Node, second: int) -> None:
    if second % ROUND_SECONDS == 0:
        run_now(verdicts(node, lambda *_: True, node.clock.wall_ms()))
    if second % PAGE_SECONDS == 3:
        run_now(judging(node, leisurely=True))
    if second % SCRAPE_SECONDS == 7:
        run_now(lag_text(run_now(judging(node, leisurely=True)), [], "c"))
    if second % CHECK_SECONDS == 31:
        run_now(judging(node)).as_lag(limit=100)


def _age_ms(judged: Judgement, busy: float) -> int:
    """Return the age of the oldest verdict on a busy queue."""
    return max((judged.lag.now_ms - each.time_ms for each in judged.queues if each.in_flight), default=0) if busy else 0


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--minutes", type=int, default=10)
    given = parser.parse_args()
    print(f"{given.queues:,} queues    % of a core   us per queue   verdict age at most")
    for name, busy in (("idle", 0.0), ("10 % busy", 0.1), ("all busy", 1.0)):
        cost = measure(given.queues, busy, given.minutes)
        print(f"{name:16}{cost.percent:10.2f}{cost.us_per_queue:15.0f}{cost.age_max:18.0f} s")


if __name__ == "__main__":
    main()
