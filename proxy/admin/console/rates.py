"""What the node did lately: one-second rates of the last ten minutes, and the node's last hour, in memory."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from math import isnan, nan

from broker.runtime.histogram import quantile_seconds
from broker.runtime.later import Repeated
from broker.runtime.metrics import Rises
from broker.runtime.seams import Scheduler
from broker.views import View
from proxy.operate.attention.judgement import Judgement
from proxy.operate.live_node import LiveNode
from proxy.operate.views.lag_history import LagCourse
from proxy.services.publishing import PUBLISH_SECONDS
from proxy.services.topic_port import MESSAGES_SENT
from upstream.figures.counters import FINISHED

RINGS_AT_ONCE = 256
"""Courses that are begun in one second, a few milliseconds."""
SECONDS = 600
"""One-second rates that are kept."""
HOUR_STEP = 10
HOUR_PARTS = 360


class Moment(View, frozen=True, kw_only=True):
    """Ten seconds of the node.

    Attributes:
        at_ms: Their end.
        published: Messages stored per second.
        finished: Messages finished per second, over all groups.
        lag: Messages behind, over all groups; null: not known.
        publish_p99_seconds: p99 of the latency of publishing; null without publishes.
    """

    at_ms: int
    published: float
    finished: float
    lag: int | None
    publish_p99_seconds: float | None


class _Ring:
    """The last ten minutes of a group, a value a second."""

    __slots__ = ("finished", "lag", "published")

    def __init__(self) -> None:
        empty = array("f", [nan]) * SECONDS
        self.published, self.finished, self.lag = empty, empty[:], empty[:]


class SecondRates:
    """Samples the node's counters every second, from `start` to `stop`.

    Args:
        node: The node.
        scheduler: Its loop.

    Attributes:
        hour: The last hour of the node, in parts of ten seconds, the oldest first.
        hour_sums: Messages published and finished since the last part.
    """

    def __init__(self, node: LiveNode, scheduler: Scheduler) -> None:
        self._node = node
        self._ticks = Repeated(scheduler, 1.0, self.sample)
        self._rings: dict[str, _Ring] = {}
        self._judged: Judgement | None = None
        self._groups: dict[str, set[str]] = {}
        self._lags: Mapping[str, float] = {}
        self._risen = Rises(node.metrics, (MESSAGES_SENT, FINISHED))
        self._count = 0
        self.hour_sums = [0, 0]
        self._at = node.clock.monotonic()
        self._at_ms = node.clock.wall_ms()
        self.hour: deque[Moment] = deque(maxlen=HOUR_PARTS)

    def start(self) -> None:
        """Begin."""
        self._ticks.begin()

    def stop(self) -> None:
        """End; harmless when it never began."""
        self._ticks.end()

    def sample(self) -> None:
        """Take one second."""
        now = self._node.clock.monotonic()
        seconds, self._at = max(now - self._at, 0.001), now
        self._at_ms = self._node.clock.wall_ms()
        published, finished = self._rises()
        self._look_at_groups()
        # Of many thousand groups at once they would take long to make.
        for name in list(islice((name for name in self._lags if name not in self._rings), RINGS_AT_ONCE)):
            self._rings[name] = _Ring()
        stored: dict[str, int] = {}
        for topic, count in published.items():
            for name in self._groups.get(topic, ()):
                stored[name] = stored.get(name, 0) + count
        place = self._count % SECONDS
        is_first = not self._count
        for name, ring in self._rings.items():
            ring.published[place] = nan if is_first else stored.get(name, 0) / seconds
            ring.finished[place] = nan if is_first else finished.get(name, 0) / seconds
            ring.lag[place] = self._lags.get(name, nan)
        self._count += 1
        if is_first:
            return
        self.hour_sums[0] += sum(published.values())
        self.hour_sums[1] += sum(finished.values())
        if self._count % HOUR_STEP == 0:
            self._end_moment()

    def of_group(self, name: str) -> LagCourse:
        """Return the last ten minutes of a group."""
        ring = self._rings.get(name) or _Ring()
        place = self._count % SECONDS
        order = [(place + step) % SECONDS for step in range(SECONDS)]
        return LagCourse(
            since_ms=self._at_ms - SECONDS * 1000,
            width_ms=1000,
            published=[_known(ring.published[each]) for each in order],
            finished=[_known(ring.finished[each]) for each in order],
            lag=[_known(ring.lag[each]) for each in order],
        )

    def latest(self, name: str, seconds: int = 10) -> tuple[float | None, float | None]:
        """Return what was published for and finished by a group per second, over the last seconds."""
        ring = self._rings.get(name)
        if ring is None:
            return None, None
        places = [(self._count - 1 - step) % SECONDS for step in range(min(seconds, SECONDS))]
        return _mean(ring.published, places), _mean(ring.finished, places)

    def _rises(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return by how much the counters rose since the last sample: by topic, and by group."""
        stored: dict[str, int] = {}
        done: dict[str, int] = {}
        for (name, labels), more in self._risen.look().items():
            into = stored if name == MESSAGES_SENT else done
            into[labels[0]] = into.get(labels[0], 0) + more
        return stored, done

    def _look_at_groups(self) -> None:
        judged = None if self._node.last_judgement is None else self._node.last_judgement[1]
        if judged is None or judged is self._judged:
            return
        self._judged = judged
        self._groups = {}
        for queue in judged.queues:
            self._groups.setdefault(queue.topic, set()).add(queue.group)
        self._lags = {each.group: nan if each.unfinished is None else each.unfinished for each in judged.groups}
        self._rings = {name: ring for name, ring in self._rings.items() if name in self._lags}

    def _end_moment(self) -> None:
        known = [lag for lag in self._lags.values() if not isnan(lag)]
        p99 = quantile_seconds(self._node.metrics.histogram(PUBLISH_SECONDS).recent(), 0.99)
        self.hour.append(
            Moment(
                at_ms=self._at_ms,
                published=round(self.hour_sums[0] / HOUR_STEP, 3),
                finished=round(self.hour_sums[1] / HOUR_STEP, 3),
                lag=int(sum(known)) if known else None,
                publish_p99_seconds=None if p99 is None else round(p99, 6),
            )
        )
        self.hour_sums = [0, 0]


def _known(value: float) -> float | None:
    return None if isnan(value) else round(value, 1)


def _mean(values: Sequence[float], places: Sequence[int]) -> float | None:
    known = [values[each] for each in places if not isnan(values[each])]
    return sum(known) / len(known) if known else None
