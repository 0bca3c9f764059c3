"""How long things took lately, as the console, the admin port and the command line show it."""

from __future__ import annotations

from broker.runtime.histogram import quantile_seconds
from broker.runtime.metrics import Metrics
from proxy.operate.views.node import LatencyView


def latencies(metrics: Metrics, *, group: str | None = None) -> list[LatencyView]:
    """Return those with something to tell, the node's own first, then the slowest first; of one group when given."""
    found = []
    for spec, labels, histogram in metrics.histograms():
        counts = histogram.recent()
        p50, p99 = quantile_seconds(counts, 0.5), quantile_seconds(counts, 0.99)
        named = dict(zip(spec.labels, labels, strict=True))
        if p50 is None or p99 is None or (group is not None and named.get("group") != group):
            continue
        found.append(
            LatencyView(
                name=spec.name.removeprefix("pyddmq_").removesuffix("_seconds").replace("_", " "),
                labels=named,
                count=sum(counts),
                p50_seconds=round(p50, 6),
                p99_seconds=round(p99, 6),
            )
        )
    return sorted(found, key=lambda each: ("group" in each.labels, -each.p99_seconds))
