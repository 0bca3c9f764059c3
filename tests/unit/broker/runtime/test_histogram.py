"""Histograms: which bucket counts what, what is told of the last minutes, and how a scrape shows them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.runtime.disks.timed_syncs import SYNC_SECONDS, TimedSyncs
from broker.runtime.histogram import BUCKETS, MICROSECONDS_MAX, Histogram, quantile_seconds
from broker.runtime.metrics import Metrics
from proxy.admin.exposition import Exposition
from proxy.node.vitals import WINDOW_SECONDS, Vitals
from proxy.operate.answers import latencies
from proxy.operate.views.node import LatencyView
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk, SimSyncs
from tests.admin_node import PlainNode
from upstream.figures.latency import HAND_OUT_SECONDS


def buckets(histogram: Histogram) -> dict[int, int]:
    """Buckets that counted something."""
    return {place: count for place, count in enumerate(histogram.counts) if count}


@pytest.mark.parametrize(
    ("microseconds", "bucket"),
    [(-5, 0), (0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1 << 20, 20), ((1 << 20) + 1, 21)],
)
def test_a_bucket_holds_what_took_at_most_its_bound(microseconds: int, bucket: int) -> None:
    """The bound itself belongs to its bucket, as Prometheus' `le` says; what is negative counts as 0."""
    histogram = Histogram()
    histogram.observe(microseconds)
    assert buckets(histogram) == {bucket: 1}
    assert histogram.sum_us == max(microseconds, 0)


def test_what_takes_longer_than_all_buckets_is_in_the_last() -> None:
    """Whatever a clock says, an observation is counted."""
    histogram = Histogram()
    histogram.observe(1 << 60, 2)
    assert buckets(histogram) == {BUCKETS - 1: 2}
    assert histogram.sum_us == 2 * MICROSECONDS_MAX


def test_many_that_share_one_duration_are_counted_each() -> None:
    """A batch of 32 is 32 observations."""
    histogram = Histogram()
    histogram.observe(1_000, 32)
    assert buckets(histogram) == {10: 32}
    assert histogram.sum_us == 32_000


def test_quantiles_are_spread_evenly_within_a_bucket() -> None:
    """Half of 10 observations up to 1.024 ms and 10 up to 2.048 ms took 1.024 ms at most, three quarters 1.536 ms."""
    histogram = Histogram()
    histogram.observe(1_000, 10)
    histogram.observe(2_000, 10)
    assert quantile_seconds(histogram.counts, 0.5) == pytest.approx(0.001024)
    assert quantile_seconds(histogram.counts, 0.75) == pytest.approx(0.001536)
    assert quantile_seconds(histogram.counts, 1.0) == pytest.approx(0.002048)
    assert quantile_seconds(Histogram().counts, 0.5) is None


def test_the_last_minutes_are_told_and_what_was_before_is_not() -> None:
    """A window begins each minute and the one before it is told too; the totals stay as they are."""
    clock, metrics = ManualClock(), Metrics()
    vitals = Vitals(metrics, clock)
    histogram = metrics.histogram(SYNC_SECONDS, "commit_log")
    histogram.observe(4_000_000)

    def minute() -> None:
        for _ in range(int(WINDOW_SECONDS)):
            clock.advance(1)
            vitals.look()

    minute()
    histogram.observe(1_000, 3)
    assert sum(histogram.recent()) == 4
    minute()
    assert latencies(metrics) == [
        LatencyView(name="sync", labels={"file": "commit_log"}, count=3, p50_seconds=0.000768, p99_seconds=0.001019)
    ]
    minute()
    assert latencies(metrics) == []
    assert sum(histogram.counts) == 4


def test_latencies_of_one_group_or_of_the_node_alone_are_shown() -> None:
    """Others are not looked at: there may be very many groups."""
    metrics = Metrics()
    metrics.histogram(SYNC_SECONDS, "commit_log").observe(1_000)
    for group in ("billing", "audit"):
        metrics.histogram(HAND_OUT_SECONDS, group, "orders").observe(1_000)
    assert [each.name for each in latencies(metrics, group="")] == ["sync"]
    assert [each.labels["group"] for each in latencies(metrics, group="billing")] == ["billing"]
    assert len(latencies(metrics)) == 3


def test_a_scrape_shows_buckets_that_add_up() -> None:
    """Each bucket has what is below it, the first what is shorter than all, `+Inf` everything; the sum is seconds."""
    node = PlainNode()
    histogram = node.metrics.histogram(SYNC_SECONDS, "commit_log")
    for microseconds in (10, 64, 65, 1_500_000, 100_000_000):
        histogram.observe(microseconds)
    text = Exposition(node, "asyncio").render("")[0].decode()
    lines = [line for line in text.splitlines() if line.startswith("pyddmq_sync_seconds_")]
    assert lines[0] == 'pyddmq_sync_seconds_bucket{file="commit_log",le="6.4e-05"} 2.0'
    assert lines[1] == 'pyddmq_sync_seconds_bucket{file="commit_log",le="0.000128"} 3.0'
    assert lines[14:16] == [
        'pyddmq_sync_seconds_bucket{file="commit_log",le="1.048576"} 3.0',
        'pyddmq_sync_seconds_bucket{file="commit_log",le="2.097152"} 4.0',
    ]
    assert lines[18:] == [
        'pyddmq_sync_seconds_bucket{file="commit_log",le="16.777216"} 4.0',
        'pyddmq_sync_seconds_bucket{file="commit_log",le="+Inf"} 5.0',
        'pyddmq_sync_seconds_count{file="commit_log"} 5.0',
        'pyddmq_sync_seconds_sum{file="commit_log"} 101.500139',
    ]


def test_syncs_are_observed_when_the_loop_hears_of_them() -> None:
    """Of a file, whether it went well or not; not of a folder."""

    class Half:
        def random(self) -> float:
            return 0.5

    clock, metrics, disk = ManualClock(), Metrics(), SimDisk()
    scheduler = ManualScheduler(clock)
    timed = TimedSyncs(SimSyncs(disk, scheduler, Half(), seconds_max=0.008), clock, metrics, "commit_log")  # type: ignore[arg-type]
    reported: list[OSError | None] = []
    timed.begin(disk.open("/log", create=True), reported.append)
    timed.begin_folder("/", reported.append)
    histogram = metrics.histogram(SYNC_SECONDS, "commit_log")
    scheduler.advance(0.003)
    assert (reported, buckets(histogram)) == ([], {})
    scheduler.advance(0.001)
    assert (reported, buckets(histogram)) == ([None, None], {12: 1})


def test_longest_sync_of_the_last_minute_counts_and_the_one_under_way() -> None:
    """It shows while the disk is still at it, and is forgotten a minute after it ended."""
    clock, ends = ManualClock(), []

    class ByHand:
        def begin(self, _: object, done: Callable[[OSError | None], None]) -> None:
            ends.append(done)

    timed = TimedSyncs(ByHand(), clock, Metrics(), "commit_log")  # type: ignore[arg-type]
    file = SimDisk().open("/log", create=True)
    assert timed.longest_seconds == 0.0
    for seconds in (4, 0.001):
        timed.begin(file, lambda _: None)
        clock.advance(seconds)
        assert timed.longest_seconds == 4
        ends.pop()(None)
    assert timed.longest_seconds == 4
    clock.advance(61)
    assert timed.longest_seconds == 0.0
