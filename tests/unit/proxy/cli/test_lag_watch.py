"""What `pyddmq lag watch --config` takes from a configuration, without a session of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.queues.topics import retry_topic
from broker.runtime.disk import RealDisk
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from proxy.cli.lag.lag_watch_command import watch_lag
from proxy.process.exit_codes import ExitCode
from tests.conftest import need_module
from tests.unit.lag.samples import NOW_MS, fleet

CONFIG = """
node: {data: data, producerPort: 0, consumerPort: 0, adminPort: 0}
lag: {rules: {target: 2h}}
topics: {orders: {}}
groups:
  - {group: quiet, enableAlarm: false, lagRules: {target: 12h}, topics: [{topic: orders, retryTopic: true}]}
  - {group: loud, topics: [{topic: orders, delayTimeThreshold: 1000}]}
"""


def test_queues_beside_the_subscriptions_have_the_limits_of_their_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such as a retry topic's, as on the node: of a group without alarms they count for nothing, either."""
    need_module("pyspark")
    from lag.spark.jobs import watch

    limits = WriterLimits(free_bytes_min=0)
    journal = JournalWriter(RealDisk(), str(tmp_path / "lag"), JournalOrigin(cluster="c", node="n", epoch=1), limits)
    assert journal.write(NOW_MS, fleet(1, 1, 1)[0])
    journal.close(NOW_MS)
    (tmp_path / "node.yaml").write_text(CONFIG)
    given: list[Any] = []

    def run(options: watch.WatchOptions, **_: object) -> int:
        given.append(options)
        return ExitCode.OK

    monkeypatch.setattr(watch, "run", run)
    assert watch_lag(journals=[f"{tmp_path}/lag"], checkpoint="c", config=f"{tmp_path}/node.yaml") == ExitCode.OK
    [options] = given
    places = [("quiet", "orders"), ("quiet", retry_topic("quiet")), ("loud", "orders"), ("loud", "old"), ("gone", "x")]
    found = {place: options.of(*place) for place in places}
    assert {place: (each.limits.target_ms // 1000, each.counts) for place, each in found.items()} == {
        ("quiet", "orders"): (43_200, False),
        ("quiet", "%RETRY%quiet"): (43_200, False),
        ("loud", "orders"): (1, True),
        ("loud", "old"): (7_200, True),
        ("gone", "x"): (7_200, True),
    }
