"""`GET /metrics`: the node's counters in Prometheus' text form, with gauges that are worked out at the scrape."""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from broker.runtime.accelerators import states
from broker.runtime.async_steps import run_async
from broker.runtime.histogram import Histogram
from broker.runtime.metrics import SPECS, Spec, declare
from broker.runtime.steps import run_now
from lag.rules.statuses import Level
from proxy.admin.lag_metrics import LAG_NAMES
from proxy.operate.attention.findings import DETAILS_MAX, judging
from proxy.operate.attention.judgement import Judgement
from proxy.operate.live_node import LiveNode
from upstream.views import GroupView, PushView

BUILD_INFO = declare(
    "pyddmq_build_info",
    "Always 1; the labels have the version.",
    ("version", "python", "loop"),
    "gauge",
)
ACCELERATOR_INFO = declare(
    "pyddmq_leaf_info",
    "Always 1, per accelerator (docs/performance.md): `compiled`, or why it runs in Python: `absent`, `stale`, `pure`.",
    ("leaf", "state"),
    "gauge",
)
UPTIME = declare("pyddmq_uptime_seconds", "Seconds since the node was started.", kind="gauge")
READY = declare("pyddmq_ready", "1 when /readyz answers 200, else 0.", kind="gauge")
LOOP_LAG = declare(
    "pyddmq_event_loop_lag_seconds", "Worst lateness of the event loop over the last 10 to 20 s.", kind="gauge"
)
STORE_USED = declare("pyddmq_store_used_bytes", "Size of the files in the data directory.", kind="gauge")
STORE_FREE = declare("pyddmq_store_free_bytes", "Bytes free on the data directory's file system.", kind="gauge")
_GROUP_TOPIC = ("group", "topic")
LAG = declare("pyddmq_group_lag_messages", "Unfinished messages, over all queues.", _GROUP_TOPIC, "gauge")
LAG_SECONDS = declare("pyddmq_group_lag_seconds", "Age of the oldest unfinished message.", _GROUP_TOPIC, "gauge")
IN_FLIGHT = declare("pyddmq_group_in_flight_messages", "Messages in flight with clients.", _GROUP_TOPIC, "gauge")
WAITING = declare(
    "pyddmq_group_waiting_messages", "Messages that wait for an earlier message of their key.", _GROUP_TOPIC, "gauge"
)
STUCK_KEYS = declare("pyddmq_group_stuck_keys", "Order keys whose first message blocks others.", _GROUP_TOPIC, "gauge")
PAUSED = declare(
    "pyddmq_group_paused", "1 while an operator has paused the group on this topic, else 0.", _GROUP_TOPIC, "gauge"
)
THROTTLED = declare(
    "pyddmq_group_throttled",
    "1 while a limit delays messages that could be delivered; absent otherwise: maxTps, totalMaxTps, "
    "concurrency, maxConsumeLag, httpMaxTps.",
    ("group", "topic", "limit"),
    "gauge",
)
VERDICT = declare(
    "pyddmq_lag_verdict",
    "Reported verdict on a group: 0 OK, 1 WARN, 2 ERR, 3 UNKNOWN; absent with `enableAlarm: false`",
    ("group", "status", "alarm_group"),
    "gauge",
)

ATTENTION = declare(
    "pyddmq_attention",
    "Findings of the console: 1 or a count, per finding (docs/operations.md), group, topic and "
    "severity (bad, watch); absent once resolved.",
    ("finding", "group", "topic", "severity"),
    "gauge",
)
LEVEL = declare(
    "pyddmq_level",
    "Level of the node by its findings and the lag of its groups: 0 OK, 1 WARN, 2 ERR, 3 UNKNOWN.",
    kind="gauge",
)
EXPIRES_SECONDS = declare(
    "pyddmq_group_expires_seconds",
    "Seconds until the oldest unfinished message is deleted by age, at the earliest; absent without lag or limit.",
    _GROUP_TOPIC,
    "gauge",
)
EXPIRES_BYTES = declare(
    "pyddmq_group_expires_bytes",
    "Bytes until the oldest unfinished message is deleted for space, at the earliest; absent without lag or limit.",
    _GROUP_TOPIC,
    "gauge",
)
PUSH_OUT = declare("pyddmq_push_requests_out", "Push requests in flight.", _GROUP_TOPIC, "gauge")
PUSH_HELD = declare(
    "pyddmq_push_held_messages",
    "Messages delayed by the rate limit of a push.",
    _GROUP_TOPIC,
    "gauge",
)
_URL = ("group", "topic", "url")
PUSH_URL_IN = declare(
    "pyddmq_push_url_in",
    "1 while messages are pushed to a configured URL, 0 while the URL is excluded after failures.",
    _URL,
    "gauge",
)
PUSH_URL_FAILURES = declare(
    "pyddmq_push_url_failures", "Consecutive failures of a configured URL; 0 after a reply.", _URL, "gauge"
)

ZEROS_MAX = 1_000
"""Series of one counter above which those that are 0 are left out."""
STEP_SERIES = 512
STEP_HISTOGRAMS = 32
"""Series that one step puts together, in about a millisecond."""
_END = b"# EOF\n"
"""Of the OpenMetrics form."""
_Sample = tuple[tuple[str, ...], float]
_Gauge = tuple[str, tuple[str, ...], float]
"""Name, values of the labels, value."""


class NodeCollector:
    """A prometheus_client collector over one node; it keeps nothing between scrapes."""

    def __init__(self, node: LiveNode, loop_name: str) -> None:
        self._node = node
        self._loop_name = loop_name

    def collect(self) -> Iterator[Metric]:
        """Yield what `gathering` returns."""
        yield from run_now(self.gathering())

    def gathering(self, groups: Sequence[GroupView] | None = None) -> Generator[None, None, list[Metric]]:
        """Return a family for every declared metric, in steps; `groups` as of `judging`.

        A counter without labels that was never touched shows as 0. Left out are histograms without an observation and,
        of a counter with more than ZEROS_MAX series, those that are 0.
        """
        delays = self._node.delays()
        if delays is not None:
            delays.due.measure()
        transactions = self._node.transactions()
        if transactions is not None:
            transactions.measure()
        series: dict[str, list[_Sample]] = {}
        for number, (spec, labels, count) in enumerate(self._node.metrics, start=1):
            series.setdefault(spec.name, []).append((labels, count))
            if number % STEP_SERIES == 0:
                yield
        yield
        for number, (name, labels, value) in enumerate((yield from self._gauges(groups)), start=1):
            series.setdefault(name, []).append((labels, value))
            if number % STEP_SERIES == 0:
                yield
        histograms: dict[str, list[tuple[tuple[str, ...], Histogram]]] = {}
        for number, (spec, labels, histogram) in enumerate(self._node.metrics.histograms(), start=1):
            if number % STEP_SERIES == 0:
                yield
            if any(histogram.counts):
                histograms.setdefault(spec.name, []).append((labels, histogram))
        families: list[Metric] = []
        for name in sorted(SPECS.keys() - LAG_NAMES):
            spec = SPECS[name]
            if spec.kind == "histogram":
                families.append((yield from _histogram_family(spec, histograms.pop(name, ()))))
                continue
            untouched: list[_Sample] = [((), 0.0)] if spec.kind == "counter" and not spec.labels else []
            # Taken out, as all of them at the end would be much to free in one step.
            samples = series.pop(name, untouched)
            if spec.kind == "counter" and len(samples) > ZEROS_MAX:
                samples = [sample for sample in samples if sample[1]]
            families.append((yield from _family(spec, samples)))
        return families

    def _gauges(self, groups: Sequence[GroupView] | None) -> Generator[None, None, Iterator[_Gauge]]:
        if groups is None:
            groups = yield from self._node.groups_in_steps(details_max=DETAILS_MAX)
        judged = yield from judging(self._node, leisurely=True, groups=groups)
        return chain(self._of_node(judged), _of_groups(groups))

    def _of_node(self, judged: Judgement) -> Iterator[_Gauge]:
        node = self._node
        yield BUILD_INFO, (node.version, platform.python_version(), self._loop_name), 1.0
        for accelerator, state in states.items():
            yield ACCELERATOR_INFO, (accelerator, state.value), 1.0
        yield UPTIME, (), node.clock.monotonic() - node.started_monotonic
        yield READY, (), float(node.state == "ready")
        yield LOOP_LAG, (), node.loop_lag()
        store = node.store()
        if store is not None:
            yield STORE_USED, (), float(store.used_bytes)
            yield STORE_FREE, (), float(store.free_bytes)
        yield LEVEL, (), float(Level[judged.level])
        for name, verdict, recipients in node.verdicts():
            yield VERDICT, (name, verdict.status, ",".join(recipients)), float(verdict.level)
        found: dict[tuple[str, ...], int] = {}
        for each in judged.findings:
            labels = (each.finding, each.group or "", each.topic or "", each.severity)
            found[labels] = found.get(labels, 0) + each.count
        for place, count in found.items():
            yield ATTENTION, place, float(count)


def _of_groups(groups: Sequence[GroupView]) -> Iterator[_Gauge]:
    for group in groups:
        for topic in group.topics:
            labels = (group.group, topic.topic)
            # What is not known is no 0: the series is absent for so long.
            if topic.lag is not None and topic.lag_seconds is not None:
                yield LAG, labels, float(topic.lag)
                yield LAG_SECONDS, labels, topic.lag_seconds
            yield IN_FLIGHT, labels, float(topic.in_flight)
            yield WAITING, labels, float(topic.waiting)
            yield PAUSED, labels, float(topic.paused_since_ms is not None)
            yield STUCK_KEYS, labels, float(topic.stuck_keys_total)
            for limit in topic.throttled:
                yield THROTTLED, (*labels, limit.partition(" ")[0]), 1.0
            if topic.push is not None:
                yield from _of_push(labels, topic.push)
            if topic.expires_seconds is not None:
                yield EXPIRES_SECONDS, labels, topic.expires_seconds
            if topic.expires_bytes is not None:
                yield EXPIRES_BYTES, labels, float(topic.expires_bytes)


def _of_push(labels: tuple[str, str], push: PushView) -> Iterator[_Gauge]:
    yield PUSH_OUT, labels, float(push.out)
    yield PUSH_HELD, labels, float(push.held)
    for url in push.urls:
        yield PUSH_URL_IN, (*labels, url.url), float(url.state == "closed")
        yield PUSH_URL_FAILURES, (*labels, url.url), float(url.failures)


def _family(spec: Spec, samples: Iterable[_Sample]) -> Generator[None, None, Metric]:
    family: CounterMetricFamily | GaugeMetricFamily
    if spec.kind == "counter":
        family = CounterMetricFamily(spec.name, spec.help, labels=spec.labels)
    else:
        family = GaugeMetricFamily(spec.name, spec.help, labels=spec.labels)
    for number, (labels, value) in enumerate(samples, start=1):
        family.add_metric(labels, value)
        if number % STEP_SERIES == 0:
            yield
    return family


def _histogram_family(spec: Spec, series: Iterable[tuple[tuple[str, ...], Histogram]]) -> Generator[None, None, Metric]:
    family = HistogramMetricFamily(spec.name, spec.help, labels=spec.labels)
    for number, (labels, histogram) in enumerate(series, start=1):
        if number % STEP_HISTOGRAMS == 0:
            yield
        buckets = [(str((1 << each) / 1e6), sum(histogram.counts[: each + 1])) for each in spec.bounds]
        family.add_metric(labels, [*buckets, ("+Inf", sum(histogram.counts))], histogram.sum_us / 1e6)
    return family


class Exposition:
    """Renders one node's metrics and those of its process."""

    def __init__(self, node: LiveNode, loop_name: str) -> None:
        self._collector = NodeCollector(node, loop_name)

    def render(self, accept: str, lag: bytes = b"") -> tuple[bytes, str]:
        """`rendered` at once."""
        return _encoded(run_now(self._collector.gathering()), accept, lag)

    async def rendered(
        self, accept: str, lag: bytes = b"", groups: Sequence[GroupView] | None = None
    ) -> tuple[bytes, str]:
        """Return the text and its content type, in the form that the scraper's `Accept` header asks for.

        The figures are taken in steps, and written as text in a thread.

        Args:
            accept: The header.
            lag: The gauges of lag, written already: in both forms gauges are written alike.
            groups: As of `judging`.
        """
        families = await run_async(self._collector.gathering(groups))
        return await asyncio.to_thread(_encoded, families, accept, lag)


class _MetricFamilies:
    """A prometheus_client collector of families that were made before."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Sequence[Metric]:
        return self._families


def _encoded(families: list[Metric], accept: str, lag: bytes) -> tuple[bytes, str]:
    """Write families as text, and free them here, one by one: the loop's thread would take long for all of them."""
    registry = CollectorRegistry()
    registry.register(_MetricFamilies(families))
    if sys.platform == "linux":
        ProcessCollector(registry=registry)
    try:
        encoder, content_type = choose_encoder(accept)
    except (TypeError, ValueError):
        # The header names a version that is not a number.
        encoder, content_type = choose_encoder("")
    text = encoder(registry)
    while families:
        families.pop()
    end = _END if text.endswith(_END) else b""
    return text.removesuffix(_END) + lag + end, content_type
