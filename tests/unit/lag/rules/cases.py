"""Windows of samples with what every user of the rules must make of them: plain numbers, live node, Spark.

Windows are written by columns: a single value stands for all samples, a list or range for one each. Samples are 10 s
apart from `BEGIN` on; moments are seconds after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lag.rules.limits import LagLimits
from lag.samples import QueueSample

BEGIN: Final = 1_700_000_000_000
EVERY_S: Final = 10


def window(count: int, *, times: Sequence[int] | None = None, **columns: Any) -> tuple[QueueSample, ...]:
    """Return `count` samples.

    Args:
        count: How many.
        times: Their moments in s after `BEGIN`; else every 10 s.
        columns: A field's value in all of them, or a list or range of its values; moments in s after `BEGIN`.
    """
    found = []
    for place in range(count):
        values = {name: _value(name, column, place) for name, column in columns.items()}
        at = times[place] if times else place * EVERY_S
        found.append(QueueSample(time_ms=BEGIN + at * 1000, **values))
    return tuple(found)


def _value(name: str, column: Any, place: int) -> Any:
    value = column[place] if isinstance(column, list | range | tuple) else column
    return BEGIN + round(value * 1000) if name.endswith("_ms") and value is not None else value


@dataclass(frozen=True, kw_only=True)
class Case:
    """One window and the verdict on it.

    Attributes:
        name: What is the case.
        samples: The window, oldest first, and what lies before it.
        status: Expected status.
        cause: Expected cause.
        figures: Expected values of some figures.
        evidence: The sentence that speaks for the cause; null: any.
        now_s: The moment that is judged, in s after `BEGIN`; null: that of the newest sample.
        reset_s: When an operator reset the offset.
        limits: Thresholds.
    """

    name: str
    samples: tuple[QueueSample, ...]
    status: str
    cause: str | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    evidence: str | None = None
    now_s: int | None = None
    reset_s: int | None = None
    limits: LagLimits = field(default_factory=LagLimits)

    @property
    def now_ms(self) -> int:
        """The moment that is judged, in Unix ms."""
        return self.samples[-1].time_ms if self.now_s is None else BEGIN + self.now_s * 1000

    @property
    def reset_ms(self) -> int | None:
        """When an operator reset the offset, in Unix ms."""
        return None if self.reset_s is None else BEGIN + self.reset_s * 1000


_TIMES = range(0, 310, 10)
_OFTEN = [each - 1 for each in _TIMES]
"""A second before each of 31 samples, which fill a window of 300 s."""
_LIVE: Mapping[str, Any] = {"holders": 1, "asked_ms": _OFTEN, "answered_ms": _OFTEN, "moved_ms": _OFTEN}
"""A consumer is there, and moves."""
_STUCK: Mapping[str, Any] = {**_LIVE, "moved_ms": 0, "committed": 100, "committed_ms": 5, "end": range(101, 411, 10)}
"""A consumer is there and answers, and the committed offset stands since the window's begin."""


def _before(seconds: float) -> list[float]:
    """Return moments so long before each sample of a full window."""
    return [each - seconds for each in _TIMES]


def _full(**columns: Any) -> tuple[QueueSample, ...]:
    """Return a window of 31 samples over 300 s, of a queue that keeps all it ever got."""
    return window(31, **{"start": 0, "start_ms": 0, **columns})


def _by(first: int, step: int, count: int = 31) -> list[int]:
    """Return an even rise."""
    return [first + place * step for place in range(count)]


CASES: Final = (
    Case(
        name="caught up, with traffic",
        samples=_full(end=_by(100, 10), committed=_by(100, 10), started=_by(100, 10), **_LIVE),
        status="OK",
        figures={
            "lag": 0,
            "unfinished": 0,
            "ready": 0,
            "queueing_ms": 0,
            "time_lag_ms": 0,
            "time_lag_low_ms": 0,
            "time_lag_high_ms": 0,
            "time_lag_method": "message",
            "produce_rate": 1.0,
            "consume_rate": 1.0,
            "velocity": 0.0,
            "catch_up_s": None,
            "retention_ratio": 0.0,
            "margin": 400,
            "still_ms": 0,
            "idle_ms": 0,
            "filtered_lag": None,
            "samples": 31,
            "reset": False,
        },
    ),
    Case(
        name="a constant lag of one poll",
        samples=_full(end=_by(100, 10), committed=_by(95, 10), committed_ms=_before(2), in_flight=5, **_LIVE),
        status="OK",
        figures={"lag": 5, "in_flight": 5, "velocity": 0.0, "time_lag_ms": 2000},
    ),
    Case(
        name="a large lag that is young, at a high rate",
        samples=_full(end=_by(5000, 50_000), committed=_by(0, 50_000), committed_ms=_before(0.9), **_LIVE),
        status="OK",
        figures={"lag": 5000, "produce_rate": 5000.0, "time_lag_ms": 900},
    ),
    Case(
        name="more comes than is finished",
        samples=_full(
            end=_by(100, 20),
            committed=_by(50, 10),
            started=_by(60, 10),
            started_ms=_before(20),
            committed_ms=_before(30),
            **_LIVE,
        ),
        status="WARN",
        cause="slow_consumer",
        figures={"velocity": 1.0, "ready": 340, "queueing_ms": 20_000, "catch_up_s": None, "lag": 350},
    ),
    Case(
        name="rising from nothing, within the target",
        samples=_full(end=_by(100, 20), committed=_by(100, 10), committed_ms=_before(30), **_LIVE),
        status="WARN",
        cause="slow_consumer",
        figures={"velocity": 1.0, "lag": 300, "growing": True},
    ),
    Case(
        name="rising for less than a minute",
        samples=_full(
            end=_by(100, 20), committed=[*_by(100, 20, 26), *_by(610, 10, 5)], committed_ms=_before(30), **_LIVE
        ),
        status="OK",
        figures={"lag": 50, "growing": False},
    ),
    Case(
        name="rising for two minutes after a long calm",
        samples=_full(
            end=_by(100, 400), committed=[*_by(100, 400, 18), *_by(7000, 100, 13)], committed_ms=_before(30), **_LIVE
        ),
        status="WARN",
        cause="slow_consumer",
        figures={"lag": 3900, "growing": True, "produce_rate": 40.0, "consume_rate": 10.0},
    ),
    Case(
        name="commits in batches two minutes apart, and keeps up",
        samples=_full(
            end=_by(100, 10), committed=[100] * 7 + [160] * 12 + [280] * 12, committed_ms=_before(30), **_LIVE
        ),
        status="OK",
        figures={"lag": 120, "growing": False},
    ),
    Case(
        name="production ended a while ago, and the rates say so",
        samples=_full(end=[*_by(100, 130, 27), *[3480] * 4], committed=_by(100, 10), committed_ms=_before(90), **_LIVE),
        status="WARN",
        cause="slow_consumer",
        figures={"produce_rate": 0.0, "produce_trend": 13.0, "consume_rate": 1.0, "catch_up_s": 3080.0},
    ),
    Case(
        name="late, and neither better nor worse",
        samples=_full(end=_by(2000, 10), committed=_by(1000, 10), committed_ms=_before(120), **_LIVE),
        status="WARN",
        cause="slow_consumer",
        figures={"velocity": 0.0, "time_lag_ms": 120_000},
    ),
    Case(
        name="late, by another target in time",
        samples=_full(end=_by(2000, 10), committed=_by(1000, 10), committed_ms=_before(120), **_LIVE),
        limits=LagLimits(target_ms=120_000),
        status="OK",
    ),
    Case(
        name="late, and falling",
        samples=_full(end=_by(10_000, 10), committed=_by(1000, 100), committed_ms=_before(120), **_LIVE),
        status="CATCHING_UP",
        figures={"lag": 6300, "velocity": -9.0, "catch_up_s": 700.0},
    ),
    Case(
        name="late, and falling within the dead-band",
        samples=_full(end=_by(10_000, 100), committed=_by(1000, 104), committed_ms=_before(120), **_LIVE),
        status="WARN",
        cause="slow_consumer",
    ),
    Case(
        name="the consumer has gone",
        samples=_full(end=_by(101, 10), committed=100, committed_ms=5, moved_ms=0, asked_ms=0, answered_ms=0),
        status="STOP",
        cause="no_consumer",
        figures={"lag": 301, "idle_ms": 295_000, "still_ms": 295_000, "consume_rate": 0.0},
    ),
    Case(
        name="one message, and the consumer has gone",
        samples=_full(end=101, committed=100, committed_ms=5, moved_ms=0, asked_ms=0, answered_ms=0),
        status="STOP",
        cause="no_consumer",
        figures={"lag": 1},
    ),
    Case(
        name="gone, seen by the samples alone",
        samples=_full(end=_by(101, 10), committed=100, asked_ms=0),
        status="STOP",
        cause="no_consumer",
        figures={"time_lag_method": "bounded", "time_lag_low_ms": 300_000, "time_lag_high_ms": 300_000},
    ),
    Case(
        name="a slow topic's next message",
        samples=_full(
            end=[100] * 30 + [101],
            committed=100,
            committed_ms=[None] * 30 + [299],
            moved_ms=-3600,
            asked_ms=_OFTEN,
            answered_ms=-3600,
            holders=1,
        ),
        status="OK",
        figures={"lag": 1, "still_ms": 1000, "idle_ms": 1000},
    ),
    Case(
        name="one long job",
        samples=_full(end=105, committed=100, committed_ms=0, moved_ms=0, asked_ms=0, in_flight=1, holders=1),
        status="OK",
        figures={"lag": 5, "still_ms": 300_000},
    ),
    Case(
        name="clients answer, and nothing moves",
        samples=_full(**_STUCK, in_flight=4, retrying=3),
        status="STALL",
        cause="slow_consumer",
        figures={"still_ms": 295_000, "idle_ms": 1000},
    ),
    Case(
        name="the push target fails",
        samples=_full(**{**_STUCK, "holders": 0}, pushing=True, retrying=5, held_attempts=4, held_reason="503"),
        status="STALL",
        cause="push_target_failing",
    ),
    Case(
        name="one message fails again and again",
        samples=_full(**_STUCK, waiting=5, finished=_by(0, 2), held_offset=100, held_since_ms=20, held_attempts=7),
        status="BLOCKED",
        cause="poison_message",
        figures={"lag": 301, "unfinished": 241},
    ),
    Case(
        name="one message has failed a few times, and holds nobody up",
        samples=_full(
            **{**_STUCK, "committed": _by(100, 10), "moved_ms": _OFTEN},
            held_offset=100,
            held_since_ms=20,
            held_attempts=4,
        ),
        status="OK",
    ),
    Case(
        name="one message has just failed too often, and others succeed",
        samples=_full(
            **{**_STUCK, "committed": _by(100, 10), "moved_ms": _OFTEN},
            held_offset=400,
            held_since_ms=295,
            held_attempts=5,
            failing=2,
            succeeded_ms=_OFTEN,
        ),
        status="BLOCKED",
        cause="poison_message",
        figures={"poisoned": True, "none_succeeds": False},
    ),
    Case(
        name="every message fails",
        samples=_full(
            **_STUCK,
            held_offset=100,
            held_since_ms=200,
            held_attempts=9,
            held_reason="503",
            failing=4,
            succeeded_ms=200,
        ),
        status="BLOCKED",
        cause="all_fail",
        evidence="4 messages have failed, and none has succeeded for 1 min 40 s; last failure: 503",
    ),
    Case(
        name="a busy client is elsewhere at this moment",
        samples=_full(
            end=_by(1000, 20),
            committed=_by(500, 10),
            committed_ms=_before(30),
            asked_ms=_before(5),
            answered_ms=_before(40),
            moved_ms=_before(40),
        ),
        status="WARN",
        cause="slow_consumer",
        figures={"client_silent_ms": 5000},
    ),
    Case(
        name="no client was at work for a minute",
        samples=_full(
            end=_by(1000, 20),
            committed=_by(500, 10),
            committed_ms=_before(70),
            asked_ms=_before(61),
            answered_ms=_before(65),
            moved_ms=_before(65),
        ),
        status="WARN",
        cause="no_consumer",
    ),
    Case(
        name="one client does not answer",
        samples=_full(
            end=_by(101, 10),
            committed=100,
            committed_ms=-100,
            moved_ms=-100,
            asked_ms=_OFTEN,
            answered_ms=-100,
            in_flight=1,
            holders=1,
            waiting=50,
            out_offset=100,
            out_client="billing-7",
            out_since_ms=-100,
        ),
        status="WARN",
        cause="unanswered",
        evidence="offset 100 has been in flight with billing-7 for 6 min 40 s without an answer; 301 messages are "
        "behind",
    ),
    Case(
        name="a sink waits for its server",
        samples=_full(
            end=_by(101, 10),
            committed=100,
            committed_ms=5,
            moved_ms=0,
            asked_ms=0,
            pushing=True,
            sink_server="db:5432",
            sink_reason="connection refused",
            sink_since_ms=10,
        ),
        status="STOP",
        cause="sink_waits",
        evidence="a sink has waited 4 min 50 s for db:5432; last failure: connection refused; 301 messages are behind",
    ),
    Case(
        name="the offset was set back by someone",
        samples=_full(end=400, committed=[*_by(100, 20, 11), *_by(150, 1, 20)], committed_ms=_before(5), **_LIVE),
        status="REWIND",
        cause="rewind",
        figures={"rewound": 131, "consume_rate": 0.1, "lag": 231},
        evidence="the committed offset fell from 300 to 169, without a recorded reset; 231 messages are behind",
    ),
    Case(
        name="the offset was set back by an operator",
        samples=_full(end=400, committed=[*[390] * 16, *_by(100, 20, 15)], committed_ms=_before(5), **_LIVE),
        reset_s=155,
        status="OK",
        figures={"rewound": 0, "reset": True, "consume_rate": 2.0, "lag": 20},
    ),
    Case(
        name="an operator's reset left more than can be done in time",
        samples=_full(
            end=_by(4000, 40), committed=[*_by(3840, 10, 16), *_by(100, 20, 15)], committed_ms=_before(90), **_LIVE
        ),
        reset_s=155,
        status="WARN",
        cause="operator_reset",
        figures={"rewound": 0, "reset": True, "lag": 4820},
        evidence="an operator reset the offset 145 s ago, when it was 3990; it is 380 now, and 4820 messages "
        "are behind",
    ),
    Case(
        name="after an operator's reset nobody came back",
        samples=_full(end=400, committed=[390, *[100] * 30], committed_ms=0, moved_ms=0, asked_ms=0, answered_ms=0),
        reset_s=5,
        status="STOP",
        cause="no_consumer",
        figures={"reset": True},
    ),
    Case(
        name="an operator's reset, and the offset fell once more",
        samples=_full(
            end=400, committed=[*[390] * 11, *_by(100, 20, 10), *[50] * 10], committed_ms=_before(5), **_LIVE
        ),
        reset_s=105,
        status="REWIND",
        cause="rewind",
        figures={"rewound": 230, "reset": True},
        evidence="the committed offset fell from 280 to 50, without a recorded reset; 350 messages are behind",
    ),
    Case(
        name="a reset of long ago excuses nothing",
        samples=_full(end=400, committed=[*[390] * 16, *_by(100, 20, 15)], committed_ms=_before(5), **_LIVE),
        reset_s=-10,
        status="REWIND",
        cause="rewind",
        figures={"reset": False},
    ),
    Case(
        name="the offset fell and has come back",
        samples=_full(end=_by(100, 10), committed=[*_by(100, 10, 15), 200, *_by(260, 10, 15)], **_LIVE),
        status="OK",
        figures={"rewound": 0, "lag": 0},
    ),
    Case(
        name="the offset is beyond the end",
        samples=_full(end=100, committed=500, **_LIVE),
        status="AHEAD",
        figures={"lag": 0},
    ),
    Case(
        name="retention took what was not finished",
        samples=_full(
            start=[0] * 20 + [150] * 11,
            end=400,
            committed=[100] * 20 + [150] * 11,
            expired=[0] * 20 + [50] * 11,
            committed_ms=_before(5),
            **_LIVE,
        ),
        status="DATA_LOSS",
        figures={"lost": 50, "lost_recently": 50, "margin": 0, "lag": 250},
    ),
    Case(
        name="retention takes all, and no client consumes",
        samples=_full(
            start=_by(1000, 200), end=_by(3000, 200), committed=_by(1000, 200), expired=_by(0, 200), asked_ms=0
        ),
        status="DATA_LOSS",
        cause="no_consumer",
        figures={
            "consume_rate": 0.0,
            "consume_trend": 0.0,
            "produce_rate": 20.0,
            "catch_up_s": None,
            "lost_recently": 6000,
        },
    ),
    Case(
        name="retention takes the rest of what a slow consumer finishes, of a Kafka whose committed offset lags behind",
        samples=_full(
            start=_by(1000, 200),
            end=_by(3000, 200),
            committed=_by(900, 150),
            expired=[max(0, 100 + 50 * place) for place in range(31)],
            committed_ms=_before(90),
            **_LIVE,
        ),
        status="DATA_LOSS",
        cause="slow_consumer",
        figures={"consume_rate": 15.0, "catch_up_s": None},
    ),
    Case(
        name="messages were lost a moment ago, and the consumer gains on production",
        samples=_full(
            start=[0] * 20 + [150] * 11,
            end=_by(4000, 10),
            committed=_by(150, 50),
            expired=[0] * 20 + [50] * 11,
            committed_ms=_before(90),
            **_LIVE,
        ),
        status="DATA_LOSS",
        cause="slow_consumer",
        figures={"consume_rate": 5.0, "produce_rate": 1.0, "catch_up_s": None},
    ),
    Case(
        name="an operator skips what a consumer cannot do",
        samples=_full(end=4000, committed=_by(100, 10), skipped=_by(0, 10), committed_ms=_before(90), **_LIVE),
        status="WARN",
        cause="slow_consumer",
        figures={"consume_rate": 0.0, "catch_up_s": None},
    ),
    Case(
        name="the topic was emptied",
        samples=_full(
            start=[0] * 20 + [400] * 11,
            end=[400] * 20 + [400] * 11,
            committed=[100] * 20 + [400] * 11,
            expired=[0] * 20 + [300] * 11,
            base=[0] * 20 + [400] * 11,
            **_LIVE,
        ),
        status="DATA_LOSS",
        cause="topic_deleted",
        evidence="the topic now begins at offset 400; 300 messages were deleted unfinished",
    ),
    Case(
        name="a loss of long ago",
        samples=_full(end=_by(100, 10), committed=_by(100, 10), expired=50, **_LIVE),
        status="OK",
        figures={"lost": 50, "lost_recently": 0},
    ),
    Case(
        name="a loss while nothing was recorded",
        samples=window(
            4,
            times=(-3600, 280, 290, 300),
            start=[0, 50, 50, 50],
            end=100,
            committed=[0, 100, 100, 100],
            expired=[0, 50, 50, 50],
            moved_ms=299,
        ),
        status="DATA_LOSS",
        figures={"lost_recently": 50, "samples": 3},
    ),
    Case(
        name="near retention, by its share",
        samples=_full(start=1000, end=1600, committed=1100, committed_ms=_before(10), **_LIVE),
        status="RETENTION_RISK",
        figures={"retention_ratio": 100 * 5 / 6, "margin": 100},
    ),
    Case(
        name="all of a queue from which nothing was ever taken",
        samples=_full(end=600, committed=0, committed_ms=_before(10), **_LIVE),
        status="OK",
        figures={"retention_ratio": 100.0},
    ),
    Case(
        name="retention comes nearer",
        samples=_full(
            start=_by(1000, 100), end=_by(6000, 10), committed=_by(5000, 10), committed_ms=_before(10), **_LIVE
        ),
        status="RETENTION_RISK",
        figures={"loss_eta_s": 1300 / 9, "margin": 1300, "retention_ratio": 1000 * 100 / 2300},
    ),
    Case(
        name="nobody ever read it",
        samples=_full(end=100),
        status="NOT_CONSUMED",
        cause="no_consumer",
        figures={"lag": None, "unfinished": None, "time_lag_ms": None, "time_lag_method": "none", "margin": None},
    ),
    Case(
        name="nobody ever read it, from its first offset",
        samples=_full(end=100, committed=0, committed_ms=0),
        status="NOT_CONSUMED",
        cause="no_consumer",
        figures={"lag": 100},
    ),
    Case(
        name="the first message has just come",
        samples=_full(end=[0] * 30 + [5], start_ms=[None] * 30 + [295]),
        status="NO_OFFSET",
        cause="no_consumer",
    ),
    Case(
        name="read, and not committed yet",
        samples=_full(end=100, holders=1, asked_ms=_OFTEN, in_flight=10, started=10),
        status="NO_OFFSET",
        figures={"ready": 90, "lag": None},
    ),
    Case(
        name="the committed offset is no longer there, and the lag rose while it was",
        samples=_full(end=_by(100, 10), committed=[50] * 30 + [None], **_LIVE),
        status="NO_OFFSET",
        figures={"lag": None},
    ),
    Case(
        name="the queue cannot be read",
        samples=_full(end=[100] * 30 + [None], committed=[100] * 30 + [None], start=[0] * 30 + [None]),
        status="UNKNOWN",
        figures={"lag": None, "time_lag_ms": None, "time_lag_method": "none", "lost": None, "margin": None},
    ),
    Case(
        name="the node records no more",
        samples=_full(end=_by(100, 10), committed=_by(100, 10), **_LIVE),
        now_s=3600,
        status="UNKNOWN",
    ),
    Case(
        name="the node records no more, with lag",
        samples=_full(end=_by(101, 10), committed=100, committed_ms=5, moved_ms=0, asked_ms=0, answered_ms=0),
        now_s=3600,
        status="UNKNOWN",
    ),
    Case(
        name="recording has just begun",
        samples=window(2, start=0, end=100, committed=100, moved_ms=9, holders=1),
        status="INCOMPLETE",
        figures={"lag": 0, "samples": 2},
    ),
    Case(
        name="an old message after a restart",
        samples=window(4, start=0, end=100, committed=97, committed_ms=-1000, asked_ms=30, holders=1),
        status="INCOMPLETE",
        figures={"lag": 3},
    ),
    Case(
        name="the topic was made anew",
        samples=_full(end=[1000] * 29 + [10, 12], committed=[1000] * 29 + [10, 12], **_LIVE),
        status="INCOMPLETE",
        figures={"samples": 2, "rewound": 0},
    ),
    Case(
        name="paused, with lag",
        samples=_full(end=_by(101, 10), committed=100, committed_ms=5, moved_ms=0, paused=True),
        status="PAUSED",
        cause="paused",
    ),
    Case(
        name="resumed a moment ago",
        samples=_full(
            end=_by(1010, 10),
            committed=100,
            committed_ms=-3000,
            moved_ms=-3600,
            asked_ms=_OFTEN,
            holders=1,
            paused=[True] * 29 + [False] * 2,
        ),
        status="WARN",
        cause="slow_consumer",
        figures={"still_ms": 20_000},
    ),
    Case(
        name="time between two samples",
        samples=_full(end=_by(0, 100), committed=[0, *_by(50, 100, 30)], **_LIVE),
        status="OK",
        figures={
            "lag": 50,
            "time_lag_method": "interpolated",
            "time_lag_ms": 5000.0,
            "time_lag_low_ms": 0,
            "time_lag_high_ms": 10_000,
        },
    ),
    Case(
        name="between two samples, by the estimate late",
        samples=_full(end=_by(0, 100), committed=[0, *_by(50, 100, 30)], **_LIVE),
        status="WARN",
        cause="slow_consumer",
        figures={"time_lag_ms": 5000.0, "time_lag_low_ms": 0},
        limits=LagLimits(target_ms=4_000, floor_messages=0, floor_ms=0),
    ),
    Case(
        name="older than the window",
        samples=_full(end=_by(5000, 10), committed=_by(1000, 10), end_ms=_before(1), **{**_LIVE, "start_ms": None}),
        status="WARN",
        cause="slow_consumer",
        figures={
            "time_lag_method": "bounded",
            "time_lag_ms": None,
            "time_lag_low_ms": 300_000,
            "time_lag_high_ms": None,
        },
    ),
    Case(
        name="perhaps in time, perhaps not",
        samples=window(3, start=0, end=5000, committed=1000, moved_ms=19, holders=1),
        status="UNKNOWN",
        figures={"time_lag_ms": None, "time_lag_low_ms": 20_000, "time_lag_high_ms": None},
    ),
    Case(
        name="far more is produced than before",
        samples=_full(
            end=[*_by(20, 10, 16), *_by(370, 200, 15)], committed=_by(0, 10), committed_ms=_before(40), **_LIVE
        ),
        status="WARN",
        cause="producer_surge",
    ),
    Case(
        name="a rate limit holds back",
        samples=_full(end=_by(100, 20), committed=_by(50, 10), committed_ms=_before(30), limited=True, **_LIVE),
        status="WARN",
        cause="rate_limit",
    ),
    Case(
        name="a message from the future",
        samples=_full(end=120, committed=100, committed_ms=_before(-60), **_LIVE),
        status="OK",
        figures={"time_lag_ms": 0, "lag": 20},
    ),
    Case(
        name="a filter takes a tenth",
        samples=_full(end=_by(1000, 10), committed=_by(0, 10), committed_ms=_before(10), matched=0.1, **_LIVE),
        status="OK",
        figures={"lag": 1000, "filtered_lag": 100.0},
    ),
    Case(
        name="finished out of order",
        samples=_full(end=1100, committed=100, finished=995, committed_ms=_before(90), **_LIVE),
        status="OK",
        figures={"lag": 1000, "unfinished": 5},
    ),
    Case(
        name="samples that could not be read count for nothing",
        samples=_full(end=[None] * 29 + [100, 110], committed=[None] * 29 + [100, 110], **_LIVE),
        status="INCOMPLETE",
        figures={"samples": 2, "produce_rate": 1.0},
    ),
)
