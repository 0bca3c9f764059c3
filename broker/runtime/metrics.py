"""Counters that cost an integer addition, and the one table of everything pyddmq counts.

The hot path holds a `Counter` object and adds to its `value`, or a `Histogram` of how long something took; the admin
port reads the registry when it is scraped.
docs/metrics.md is made from `SPECS`, and a test keeps the two equal.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from broker.runtime.histogram import Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What one metric is: its Prometheus name, kind (`counter`, `gauge` or `histogram`), label names and meaning.

    `bounds` are those that a histogram shows, as powers of two of microseconds; the first holds what is shorter, too.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    bounds: range = range(0)


class Counter:
    """One labelled series: add to `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Add `amount` (it is never negative for a counter)."""
        self.value += amount


SPECS: dict[str, Spec] = {}

_WINDOWS_AT_ONCE = 1024
"""Histograms of which one step begins a window, a few milliseconds."""
OPEN_SERIES_MAX = 100
"""Series of a metric whose label's values peers choose."""
OTHER = "(other)"
"""Label of all that have no series of their own."""


def declare(name: str, help: str, labels: tuple[str, ...] = (), kind: str = "counter", bounds: range = range(0)) -> str:
    """Add a metric to the table and return its name; each room declares its own, once, at import.

    Raises:
        ValueError: The name is declared already.
    """
    if name in SPECS:
        raise ValueError(f"metric {name} is declared twice")
    SPECS[name] = Spec(name=name, kind=kind, labels=labels, help=help, bounds=bounds)
    return name


def declare_histogram(name: str, help: str, labels: tuple[str, ...] = (), *, bounds: range) -> str:
    """`declare` for how long something takes; `bounds` as those of `Spec`. Raises the same."""
    return declare(name, help, labels, "histogram", bounds)


class Metrics:
    """The series of one node. Two nodes in one process do not share them."""

    def __init__(self) -> None:
        self._series: dict[str, dict[tuple[str, ...], Counter]] = {}
        self._histograms: dict[tuple[str, tuple[str, ...]], Histogram] = {}
        self._open: dict[str, int] = {}

    def counter(self, name: str, *labels: str) -> Counter:
        """Return the series of `name` with these label values, in the order of its spec; made on first use.

        Raises:
            KeyError: The name was never declared.
            ValueError: The number of label values differs from the spec's.
        """
        of_name = self._series.get(name)
        series = None if of_name is None else of_name.get(labels)
        if series is None:
            _check_labels(name, labels)
            series = self._series.setdefault(name, {})[labels] = Counter()
        return series

    def histogram(self, name: str, *labels: str) -> Histogram:
        """Return the series of a histogram; made on first use. Raises as `counter`."""
        series = self._histograms.get((name, labels))
        if series is None:
            _check_labels(name, labels)
            series = self._histograms[(name, labels)] = Histogram()
        return series

    def histograms(self, *, group: str | None = None) -> Iterator[tuple[Spec, tuple[str, ...], Histogram]]:
        """Return histograms by name and labels: all, or those of one group; "": those without the label `group`."""
        found: Collection[tuple[tuple[str, tuple[str, ...]], Histogram]] = list(self._histograms.items())
        if group is not None:
            places = {name: spec.labels.index("group") for name, spec in SPECS.items() if "group" in spec.labels}
            found = [
                each for each in found if (each[0][1][places[each[0][0]]] if each[0][0] in places else "") == group
            ]
        by_name: dict[str, list[tuple[tuple[str, ...], Histogram]]] = {}
        for (name, labels), histogram in found:
            by_name.setdefault(name, []).append((labels, histogram))
        for name in sorted(by_name):
            for labels, histogram in sorted(by_name[name], key=itemgetter(0)):
                yield SPECS[name], labels, histogram

    def beginning_windows(self) -> Generator[None, None, None]:
        """Begin a window of every histogram, in steps."""
        for number, histogram in enumerate(list(self._histograms.values()), start=1):
            if number % _WINDOWS_AT_ONCE == 0:
                yield
            histogram.begin_window()

    def open_counter(self, name: str, label: str) -> Counter:
        """Return the series of a metric whose one label has values that peers choose: only the first names get one.

        The rest share the series `OTHER`, so that the sum is right whatever they are called. Raises as `counter`.
        """
        if (label,) not in self._series.get(name, ()):
            named = self._open.get(name, 0)
            if named >= OPEN_SERIES_MAX:
                return self.counter(name, OTHER)
            self._open[name] = named + 1
        return self.counter(name, label)

    def value(self, name: str, *labels: str) -> int:
        """Return the value of a series; 0 when it was never touched. Without labels: the sum over all of them."""
        of_name = self._series.get(name, {})
        if labels or not SPECS[name].labels:
            series = of_name.get(labels)
            return series.value if series else 0
        return sum([counter.value for counter in list(of_name.values())])

    def some(self, names: Collection[str]) -> Iterator[tuple[Spec, tuple[str, ...], int]]:
        """Return the series of some metrics that are not 0, in no order; those of other metrics are not visited."""
        for name in names:
            spec = SPECS[name]
            for labels, counter in list(self._series.get(name, {}).items()):
                if counter.value:
                    yield spec, labels, counter.value

    def values(self, name: str) -> tuple[list[tuple[str, ...]], list[int]]:
        """Return labels and values of the series of one metric, the oldest first; their order never changes."""
        series = self._series.get(name, {})
        values = [counter.value for counter in list(series.values())]
        return list(series)[: len(values)], values

    def __iter__(self) -> Iterator[tuple[Spec, tuple[str, ...], int]]:
        for name, of_name in sorted(self._series.items()):
            for labels in sorted(of_name):
                yield SPECS[name], labels, of_name[labels].value


class Rises:
    """By how much counters rose since they were looked at last; those that did not cost a comparison.

    Args:
        metrics: All counters; they begin at 0 with the process.
        names: Which metrics.
    """

    def __init__(self, metrics: Metrics, names: Iterable[str]) -> None:
        self._metrics = metrics
        self._seen: dict[str, list[int]] = {name: [] for name in names}

    def look(self, *, keep: bool = True) -> dict[tuple[str, tuple[str, ...]], int]:
        """Return the rises by name and labels, only those; `keep`: the next look compares with this one."""
        rises = {}
        for name, before in self._seen.items():
            series, now = self._metrics.values(name)
            if now == before:
                continue
            padded = before + [0] * (len(now) - len(before))
            for labels, value, was in zip(series, now, padded, strict=True):
                if value > was:
                    rises[name, labels] = value - was
            if keep:
                self._seen[name] = now
        return rises


def _check_labels(name: str, labels: tuple[str, ...]) -> None:
    spec = SPECS[name]
    if len(labels) != len(spec.labels):
        raise ValueError(f"{name} has labels {spec.labels}, got {labels}")
