"""The lag rules over the last samples of a node's queues, in steps, and no more often than they can change.

The verdicts on a topic are kept, and returned again while

- no new sample came, for `REUSE_MS`;
- or, for `QUIET_MS` at most, every queue of it is idle: OK, without lag, rates or messages in flight, and the new
  sample has the same offsets as the one that was judged.

A judgement takes less than a tenth of a millisecond per busy queue. A caller therefore gets the verdicts of the last
judgement until `SHARE` of the loop's time allows another one (a leisurely caller until `LEISURELY_SHARE` does), and at
most `SECONDS_MAX` old ones. However many callers there are, judging takes no more than that.
A queue to which nothing was ever written needs no verdict: it is counted only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker.runtime.seams import Clock
from broker.runtime.steps import StepsEnd, step
from conf import GroupConfig, LagConfig
from lag.rules.limits import LagLimits
from lag.samples import QueueSample
from lag.verdicts.windows import JudgedQueue, NodeWindows
from proxy.recording.limits import limits_of_config

REUSE_MS = 10_000
QUIET_MS = 300_000
SHARE = 0.01
LEISURELY_SHARE = 0.005
"""Part of the loop's time that judgements take at most."""
SECONDS_MAX = 60.0
_LOOKED_AT_ONCE = 64
_JUDGED_AT_ONCE = 4
_STAGGERED = 32
"""Parts in which idle topics are judged again, at different rounds."""


@dataclass(slots=True)
class TopicVerdicts:
    """What the rules say of the queues of a group's topic.

    Attributes:
        judged: By number.
        views: What is shown of each: a place for `proxy.operate.lookups.lag`, so that it is made once for all callers.
    """

    judged: list[JudgedQueue]
    views: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueVerdicts:
    """What the rules say of all queues.

    Attributes:
        topics: By group and topic.
        empty: By group: queues to which nothing was ever written.
    """

    topics: list[TopicVerdicts] = field(default_factory=list)
    empty: dict[str, int] = field(default_factory=dict)

    @property
    def judged(self) -> list[JudgedQueue]:
        """All queues by group, topic and number."""
        return [each for topic in self.topics for each in topic.judged]


class _Kept(NamedTuple):
    now_ms: int
    config: GroupConfig | None
    lag: LagConfig | None
    limits: LagLimits
    samples: Sequence[QueueSample]
    verdicts: TopicVerdicts
    quiet_ms: int

    @property
    def is_idle(self) -> bool:
        """Whether its verdicts hold for `quiet_ms`."""
        return self.quiet_ms > 0


class QueueJudge:
    """Judges the queues of some windows.

    Args:
        windows: The samples.
        clock: Measures how long it takes.
        config_of: Configuration of a group, for its limits; None: it has none.
        lag_of: The section of the node; None: the defaults.
    """

    def __init__(
        self,
        windows: NodeWindows,
        clock: Clock,
        config_of: Callable[[str], GroupConfig | None],
        lag_of: Callable[[], LagConfig | None] = lambda: None,
    ) -> None:
        self._windows = windows
        self._clock = clock
        self._config_of = config_of
        self._lag_of = lag_of
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._last: QueueVerdicts | None = None
        self._holds: Callable[[int], bool] = lambda _: False
        self._judged_at = self._busy = 0.0

    def judging(self, now_ms: int, *, leisurely: bool = False) -> Generator[None, None, QueueVerdicts]:
        """Judge all queues, in steps of some tenths of a ms.

        Args:
            now_ms: The moment that is judged.
            leisurely: For callers that ask again and again: whether older verdicts are good enough.
        """
        share = LEISURELY_SHARE if leisurely else SHARE
        rest = min(self._busy / share, SECONDS_MAX)
        if self._last is not None and (self._clock.monotonic() - self._judged_at < rest or self._holds(now_ms)):
            return self._last
        busy, steps = 0.0, self._judge(now_ms)
        while True:
            began = self._clock.monotonic()
            made = step(steps)
            busy += self._clock.monotonic() - began
            if isinstance(made, StepsEnd):
                self._judged_at, self._busy = self._clock.monotonic(), busy
                self._last = made.result
                return made.result
            yield

    def _judge(self, now_ms: int) -> Generator[None, None, QueueVerdicts]:
        lag, changes = self._lag_of(), self._windows.changes
        configs: dict[str, GroupConfig | None] = {}
        found, kept = QueueVerdicts(), dict[tuple[str, str], _Kept]()
        for looked_at, ((group, topic), numbers) in enumerate(self._windows.topics().items(), start=1):
            if looked_at % _LOOKED_AT_ONCE == 0:
                yield
            places = [(group, topic, number) for number in numbers]
            samples = [sample for place in places if (sample := self._windows.newest(place)) is not None]
            config, before = self._config_of(group), self._kept.get((group, topic))
            configs[group] = config
            if before is not None and before.config is config and before.lag is lag:
                limits = before.limits
            else:
                before, limits = None, limits_of_config(config, topic, lag)
            empty = sum(is_unwritten(sample, now_ms, limits) for sample in samples)
            if empty:
                found.empty[group] = found.empty.get(group, 0) + empty
            if empty == len(samples):
                continue
            again = None if before is None else _again(before, samples, now_ms)
            if again is None:
                judged = []
                steps = self._windows.judging_topic(group, topic, numbers, now_ms, limits)
                for number, each in enumerate(steps):
                    if each is not None and not is_unwritten(each.sample, now_ms, limits):
                        judged.append(each)
                    if number % _JUDGED_AT_ONCE == 0:
                        yield
                quiet_ms = QUIET_MS - len(kept) % _STAGGERED * QUIET_MS // (2 * _STAGGERED)
                quiet_ms *= all(map(_is_idle, judged))
                again = _Kept(now_ms, config, lag, limits, samples, TopicVerdicts(judged), quiet_ms)
            kept[group, topic] = again
            found.topics.append(again.verdicts)
        self._kept = kept
        until_ms = min((each.now_ms for each in kept.values() if not each.is_idle), default=now_ms) + REUSE_MS

        def holds(at_ms: int) -> bool:
            return (
                now_ms <= at_ms < until_ms
                and changes == self._windows.changes
                and self._lag_of() is lag
                and all(self._config_of(group) is config for group, config in configs.items())
            )

        self._holds = holds
        return found


def is_unwritten(sample: QueueSample, now_ms: int, limits: LagLimits) -> bool:
    """Whether nothing was ever written to a queue, nor consumed, by a sample that is not stale."""
    return sample.end == 0 and not sample.committed and now_ms - sample.time_ms <= limits.stale_ms


def _again(before: _Kept, samples: Sequence[QueueSample], now_ms: int) -> _Kept | None:
    """Return verdicts that still hold, with the new samples; None: the topic must be judged again."""
    age_ms = now_ms - before.now_ms
    if len(samples) != len(before.samples) or age_ms < 0:
        return None
    pairs = list(zip(before.samples, samples, strict=True))
    if age_ms < REUSE_MS and all(old is new for old, new in pairs):
        return before
    stale_ms = before.limits.stale_ms
    if not before.is_idle or age_ms >= before.quiet_ms:
        return None
    if not all(_is_same(old, new) and now_ms - new.time_ms <= stale_ms for old, new in pairs):
        return None
    newest = {id(old): new for old, new in pairs}
    old = before.verdicts
    judged = [each._replace(sample=newest[id(each.sample)]) for each in old.judged if id(each.sample) in newest]
    if len(judged) != len(old.judged):
        return None
    return before._replace(samples=samples, verdicts=TopicVerdicts(judged, old.views))


def _is_idle(each: JudgedQueue) -> bool:
    sample, figures = each.sample, each.verdict.figures
    return (
        each.verdict.status == "OK"
        and figures["lag"] == 0
        and not (figures["produce_rate"] or figures["consume_rate"] or figures["velocity"] or sample.in_flight)
    )


def _is_same(old: QueueSample, new: QueueSample) -> bool:
    """Whether a queue without lag is as it was, but for clients that pull and find nothing."""
    return (
        (old.start, old.end, old.committed, old.expired) == (new.start, new.end, new.committed, new.expired)
        and new.time_ms >= old.time_ms
        and not (new.in_flight or new.waiting or new.retrying or new.paused or new.limited)
    )
