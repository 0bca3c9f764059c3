"""Makes docs/metrics.md from the one table of metrics."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping

from broker.runtime.metrics import SPECS, Spec
from tools.numbers import without_numbers

ROOMS = ("broker", "upstream", "actions", "lag", "proxy")
_ASIDE = ("cli", "demo", "spark", "__main__")

_INTRODUCTION = """\
# Metrics

What `/metrics` on the admin port shows, in Prometheus' text form. This page is made from the table in the code
(`make docs`); a test keeps the two equal. The log's lines are in
[log events](log-events.md).

Every message that is skipped, dropped, damaged or refused is counted here (promise 6). The log has one line per kind,
group and minute with the count and the first example. Two kinds are only counted: messages that the configuration
skips (`tag_filter`, `pressure_traffic`), and results that change nothing (`stale`). Counters start at 0 with the
process. A counter with more than 1,000 series shows only those above 0. The Prometheus client adds `process_*`.
"""
_NOTES = {
    "histogram": """
Each has `_bucket` with `le`, `_sum` and `_count`; bounds double from one bucket to the next. An observation is a
message, or a sync; the messages of a frame, or of a batch, are observed together. *End to end* is from stored to
finished, not from born: a timed message is stored again in its topic when it is due, so a requested delay is not
included. Store timestamps are whole milliseconds, so durations may be 1 ms too long. A series begins with its first
observation.
"""
}


def modules_of(package: str) -> Iterator[str]:
    """Yield the names of a package's modules, at every depth, but for programs of their own.

    A package that is left out is not imported either, as `pkgutil.walk_packages` would.
    """
    yield package
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, prefix=f"{package}."):
        if found.name.rpartition(".")[2] in _ASIDE:
            continue
        if found.ispkg:
            yield from modules_of(found.name)
        else:
            yield found.name


def load_rooms() -> None:
    """Import every module of the server, so that each has declared its metrics."""
    for room in ROOMS:
        for name in modules_of(room):
            importlib.import_module(name)


def render(specs: Mapping[str, Spec]) -> str:
    """Return the page: counters, gauges, then histograms, each by name."""
    parts = [_INTRODUCTION]
    for kind, title in (("counter", "Counters"), ("gauge", "Gauges"), ("histogram", "Histograms")):
        parts.append(f"\n## {title}\n{_NOTES.get(kind, '')}\n| name | labels | meaning |\n| --- | --- | --- |\n")
        parts.extend(_row(specs[name]) for name in sorted(specs) if specs[name].kind == kind)
    return without_numbers("".join(parts))


def _row(spec: Spec) -> str:
    labels = ", ".join(f"`{label}`" for label in spec.labels)
    meaning = spec.help.rstrip(".")
    return f"| `{spec.name}` | {labels} | {meaning}. |\n"


def page() -> str:
    """Return the page of this checkout."""
    load_rooms()
    return render(SPECS)
