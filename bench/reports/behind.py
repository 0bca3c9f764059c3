"""Where the node is behind its rivals, said in plain lines below the tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from bench.measures.runs import Figures
from bench.reports.timer_report import name_of

_EQUAL = 0.01
"""What differs by less is no difference."""
Pick = Callable[[Figures], float | None]

_LOWER: dict[str, tuple[tuple[str, Pick], ...]] = {
    "publish": (("CPU per message", lambda run: run.cpu_us),),
    "pull": (("CPU per message", lambda run: run.cpu_us),),
    "latency": (
        ("received p50", lambda run: run.latency_ms["p50"]),
        ("received p99", lambda run: run.latency_ms["p99"]),
        ("answered p50", lambda run: run.ack_ms["p50"]),
        ("answered p99", lambda run: run.ack_ms["p99"]),
    ),
    "memory": (("own memory at most", lambda run: run.memory["own_max"]),),
    "timers": (
        ("late p50", lambda run: run.latency_ms["p50"]),
        ("late p99", lambda run: run.latency_ms["p99"]),
        ("late p99.9", lambda run: run.latency_ms["p99.9"]),
        ("seconds to start after SIGKILL", lambda run: run.facts["restart_seconds"]),
        ("own memory", lambda run: run.memory["own_end"]),
    ),
    "timer burst": (
        ("seconds to drain", lambda run: run.facts["drain_seconds"]),
        ("other topic's publish p99", lambda run: run.ack_ms["p99"]),
        ("other topic's pull p99", lambda run: run.latency_ms["p99"]),
    ),
}
"""By measure, what is better when it is lower."""
_HIGHER: dict[str, tuple[tuple[str, Pick], ...]] = {
    "publish": (("messages per second", lambda run: run.per_second),),
    "pull": (("messages per second", lambda run: run.per_second),),
    "timers": (("published per second", lambda run: run.facts["published_per_second"]),),
}
"""By measure, what is better when it is higher."""


def behind(results: Sequence[Figures]) -> str:
    """Return a list of all figures in which a rival is better, with by how much; empty without a rival."""
    if all(each.server == "pyddmq" for each in results):
        return ""
    lines = list(_lines(results))
    return "Behind a rival in:\n\n" + ("\n".join(lines) or "- nothing") + "\n"


def _lines(results: Sequence[Figures]) -> Iterator[str]:
    ours = {(each.measure, each.batch): None for each in results if each.server == "pyddmq"}
    for measure, batch in ours:
        runs = [each for each in results if (each.measure, each.batch) == (measure, batch)]
        for rival in dict.fromkeys(name_of(each) for each in runs if each.server != "pyddmq"):
            found = [*_worse(runs, rival, _LOWER[measure], lower=True)]
            found += _worse(runs, rival, _HIGHER.get(measure, ()), lower=False)
            if found:
                size = f", batch {batch}" if measure in ("publish", "pull") else ""
                yield f"- {measure}{size}, beside {rival}: {'; '.join(found)}"


def _worse(runs: Sequence[Figures], rival: str, picks: Iterable[tuple[str, Pick]], *, lower: bool) -> Iterator[str]:
    for what, pick in picks:
        ours, theirs = (
            statistics.median(value for run in runs if name_of(run) == name and (value := pick(run)) is not None)
            for name in ("pyddmq", rival)
        )
        share = ours / theirs
        if share >= 1 + _EQUAL if lower else share <= 1 - _EQUAL:
            yield f"{what} {share:.2f} times its"
