"""The scrape, the loop's lag and the page that lists all metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.runtime.metrics import SPECS
from proxy.admin.exposition import STEP_SERIES, ZEROS_MAX, Exposition, NodeCollector
from proxy.admin.routes import REFUSED
from proxy.admin.server import TICK_SECONDS, LoopLag
from pyddmq.testing import ManualClock, ManualScheduler
from tests.admin_node import PlainNode, busy_node
from tools import metrics_doc

ROOT = Path(__file__).resolve().parents[4]


def _scrape(node: PlainNode) -> dict[str, float]:
    text, content_type = Exposition(node, "asyncio").render("")
    assert content_type.startswith("text/plain")
    samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            samples[f"{sample.name}{{{labels}}}"] = sample.value
    return samples


def test_scrape_shows_counters_and_worked_out_gauges() -> None:
    """Counters come as they stand, lag as it is at the scrape, process figures beside them."""
    node = busy_node()
    node.metrics.counter(REFUSED, "404").add(3)
    samples = _scrape(node)
    assert samples["pyddmq_admin_refused_total{status=404}"] == 3
    assert samples["pyddmq_group_lag_messages{group=permits-audit,topic=permits}"] == 105
    assert samples["pyddmq_group_lag_seconds{group=permits-audit,topic=permits}"] == 312.5
    assert samples["pyddmq_group_stuck_keys{group=permits-audit,topic=permits}"] == 2
    assert samples["pyddmq_uptime_seconds{}"] == 900
    assert samples["pyddmq_ready{}"] == 1
    assert samples["process_resident_memory_bytes{}"] > 0


def test_scrape_before_the_store_is_open_leaves_its_gauges_out() -> None:
    """A size that is not known is absent, not 0: an alert on free space must not fire at the start."""
    node = PlainNode()
    node.store_view = None
    node.state = "starting"
    samples = _scrape(node)
    assert "pyddmq_store_free_bytes{}" not in samples
    assert samples["pyddmq_ready{}"] == 0


def test_scrapes_of_two_nodes_do_not_mix() -> None:
    """Two nodes of one process each show their own."""
    first, second = PlainNode(), PlainNode()
    first.metrics.counter(REFUSED, "403").add(1)
    assert "pyddmq_admin_refused_total{status=403}" in _scrape(first)
    assert "pyddmq_admin_refused_total{status=403}" not in _scrape(second)


def test_loop_lag_keeps_the_worst_of_the_last_windows() -> None:
    """A late tick shows for one to two windows, whoever asks and how often, and is forgotten afterwards."""
    clock = ManualClock()
    loop = ManualScheduler(clock)
    lag = LoopLag(loop, clock)
    lag.start()
    clock.advance(TICK_SECONDS + 0.125)
    loop.run_until_idle()
    assert lag.seconds == 0.125
    assert lag.seconds == 0.125
    loop.advance(40 * TICK_SECONDS)
    assert lag.seconds == 0.125
    loop.advance(80 * TICK_SECONDS)
    assert lag.seconds == 0.0


def test_loop_lag_counts_a_tick_that_is_overdue_now() -> None:
    """A loop that stood still and answers before its timer ran is late already."""
    clock = ManualClock()
    loop = ManualScheduler(clock)
    lag = LoopLag(loop, clock)
    assert lag.seconds == 0.0
    lag.start()
    clock.advance(TICK_SECONDS + 3.0)
    assert lag.seconds == 3.0
    lag.stop()
    assert lag.seconds == 0.0
    assert loop.next_due() is None


def test_metrics_page_lists_every_metric_of_every_room() -> None:
    """docs/metrics.md is what `make docs` writes."""
    metrics_doc.load_rooms()
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert page == metrics_doc.render(_of_the_product())


def test_metric_names_follow_prometheus() -> None:
    """Ours begin with pyddmq_; counters end in _total, histograms in their unit; every one has a sentence."""
    metrics_doc.load_rooms()
    for spec in _of_the_product().values():
        assert spec.name.startswith(("pyddmq_", "kafka_consumergroup_", "kafka_partition_")), spec.name
        assert spec.kind in ("counter", "gauge", "histogram"), spec.name
        assert spec.name.endswith("_total") == (spec.kind == "counter"), spec.name
        assert spec.kind != "histogram" or spec.name.endswith("_seconds"), spec.name
        assert spec.help, spec.name


def _of_the_product() -> dict[str, Any]:
    """Leave out what other tests of this process declared for themselves."""
    return {name: spec for name, spec in SPECS.items() if not name.startswith("test")}


def test_histogram_without_an_observation_is_left_out() -> None:
    """An idle group has no buckets; its first message brings them all."""
    node = PlainNode()
    histogram = node.metrics.histogram("pyddmq_end_to_end_seconds", "billing", "orders")
    assert not any("end_to_end" in name for name in _scrape(node))
    histogram.observe(1)
    assert "pyddmq_end_to_end_seconds_count{group=billing,topic=orders}" in _scrape(node)


@pytest.mark.parametrize(("groups", "shown"), [(ZEROS_MAX, ZEROS_MAX), (ZEROS_MAX + 1, 1)])
def test_counters_at_0_are_left_out_where_there_are_very_many(groups: int, shown: int) -> None:
    """Up to the bound each group has its 0; above it those that have counted something are there."""
    node = PlainNode()
    for number in range(groups):
        node.metrics.counter("pyddmq_finished_messages_total", f"g{number}", "t").add(number == 0)
    found = {name: value for name, value in _scrape(node).items() if name.startswith("pyddmq_finished_messages_total")}
    assert len(found) == shown
    assert found["pyddmq_finished_messages_total{group=g0,topic=t}"] == 1


def test_scrape_of_many_groups_goes_in_steps() -> None:
    """Each step puts a bounded number of series together."""
    node = PlainNode()
    for number in range(4 * STEP_SERIES):
        node.metrics.counter("pyddmq_finished_messages_total", f"g{number}", "t").add(1)
    steps = NodeCollector(node, "asyncio").gathering()
    assert len(list(steps)) > 4


@pytest.mark.parametrize("accept", ["text/plain; version=x", "application/openmetrics-text; version=1.x"])
def test_accept_header_that_makes_no_sense_gets_the_text_form(accept: str) -> None:
    """The header is whatever a client sends."""
    text, content_type = Exposition(busy_node(), "loop").render(accept)
    assert content_type.startswith("text/plain")
    assert b"pyddmq_ready 1.0" in text
