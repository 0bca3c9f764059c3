"""One judged round of a node's windows."""

from __future__ import annotations

from broker.runtime.steps import run_now
from lag.alarms.findings import judging
from lag.alarms.windows import Windows
from lag.rules.limits import Limits
from lag.samples import QueueSample


def test_round_has_a_finding_per_queue_that_is_wanted() -> None:
    """With the status, the figures and the cause that `pyddmq lag` shows."""
    windows = Windows()
    for number in range(40):
        for group in ("quiet", "stopped"):
            sample = QueueSample(
                time_ms=number * 10_000, start=0, end=50, committed=5, committed_ms=0, moved_ms=1, answered_ms=1
            )
            windows.add((group, "t", 0), sample)
    steps = judging(
        windows,
        390_000,
        whose=("c", "n"),
        limits_of=lambda _group, _topic: Limits(),
        wanted=lambda group, _topic: group != "quiet",
    )
    judged = run_now(steps)
    assert (judged.cluster, judged.node, judged.time_ms) == ("c", "n", 390_000)
    [finding] = judged.findings
    assert (finding.group, finding.status, finding.lag) == ("stopped", "STOP", 45)
    assert (finding.cause, finding.time_lag_ms) == ("no_consumer", 390_000)
