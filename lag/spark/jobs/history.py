"""From judged samples to what a report shows: all in Spark, so that only buckets, worst queues and incidents come back.

A *bucket* is an equal part of the window. Of each queue a bucket keeps the worst, so a peak of one sample is seen in a
year; a group's lag in a bucket is the sum over its queues, which is an upper bound of what it was at any moment. For
that each queue must have a sample in each bucket, whenever its node looked at it: so a bucket is as long as the longest
pause between two samples that is no gap (`Window.pause_ms`), however short the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame

from lag.rules import causes, statuses
from lag.rules.expression import names_in
from lag.rules.limits import Limits
from lag.rules.statuses import BY_NAME, SEVERITY, Status
from lag.spark.columns import judged

BUCKETS: Final = 240
HEAT_BUCKETS: Final = 120
QUEUES_MAX: Final = 50
"""Queues of a group that are shown one by one."""
INCIDENTS_MAX: Final = 200
"""Incidents of a group's queues that are kept, the worst."""
GROUP: Final = ("cluster", "`group`")
QUEUE: Final = ("cluster", "node", "`group`", "topic", "queue")
_NAMES: Final = {rank: name for name, rank in SEVERITY.items()}
_SEVERITY: Final = f"CASE status {' '.join(f'WHEN {name!r} THEN {rank}' for name, rank in SEVERITY.items())} END"
_CALM: Final = ", ".join(repr(name) for name, each in BY_NAME.items() if each.level.name == "OK")
_IN_TIME: Final = """CASE WHEN status = 'UNKNOWN' THEN NULL
    WHEN time_lag_ms IS NOT NULL THEN time_lag_ms <= {target}
    WHEN time_lag_low_ms > {target} THEN false
    WHEN time_lag_high_ms <= {target} THEN true END"""

_WIDE_MS: Final = "CASE tier WHEN 'hour' THEN 3600000 WHEN 'minute' THEN 60000 ELSE 0 END"
"""What a row stands for, before its moment, as SQL."""


def status_of(severity: int) -> str:
    """Return the status of a severity."""
    return _NAMES[severity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What is reported on.

    Attributes:
        from_ms: Its begin.
        to_ms: Its end, exclusive.
        pause_ms: The longest pause between two samples of a queue that is no gap: no bucket is shorter.
    """

    from_ms: int
    to_ms: int
    pause_ms: int = 1

    def __post_init__(self) -> None:
        """Refuse what is none. Raises ValueError."""
        if self.to_ms <= self.from_ms:
            raise ValueError(f"the window ends at {self.to_ms}, which is not behind its begin, {self.from_ms}")

    def width_ms(self, buckets: int) -> int:
        """Return how long a bucket is: the last one may reach over the end."""
        return max(self.pause_ms, -(-(self.to_ms - self.from_ms) // buckets))


class History:
    """The frames of one report; each is small but `rows`.

    Attributes:
        rows: The window's samples, judged.

    Args:
        samples: Samples of the window, and of `limits.window_ms` before it, so that its first rows are judged as well.
        window: What is reported on.
        limits: Thresholds.
    """

    def __init__(self, samples: DataFrame, window: Window, limits: Limits) -> None:
        self._window = window
        self._limits = limits
        age = "coalesce(time_lag_ms, time_lag_high_ms)"
        self.rows = (
            judged(samples, limits, keep_facts=True)
            .where(f"time_ms >= {window.from_ms} AND time_ms < {window.to_ms}")
            .selectExpr(
                "*",
                f"{_SEVERITY} AS severity",
                "greatest(lag, row_lag_max) AS peak_lag",
                f"greatest({age}, CAST(row_age_max_ms AS DOUBLE)) AS peak_age_ms",
                f"{_IN_TIME.format(target=limits.target_ms)} AS in_time",
                f"lead(time_ms) OVER (PARTITION BY {', '.join(QUEUE)} ORDER BY time_ms) - time_ms AS until_next_ms",
                f"time_ms - lag(time_ms) OVER (PARTITION BY {', '.join(QUEUE)} ORDER BY time_ms) AS since_last_ms",
            )
        )

    def groups(self, window: Window) -> DataFrame:
        """A row per group and bucket of the window, whose `pause_ms` is known: lag, age, severity, rates."""
        return (
            self.rows.selectExpr("*", _bucket(window, BUCKETS))
            .groupBy("cluster", "group", "node", "topic", "queue", "bucket")
            .agg(*_aggregates("max(peak_lag) lag", "max(peak_age_ms) age_ms", "max(severity) severity",
                              "avg(produce_rate) produced", "avg(consume_rate) consumed"))
            .groupBy("cluster", "group", "bucket")
            .agg(*_aggregates("sum(lag) lag", "max(age_ms) age_ms", "max(severity) severity",
                              "sum(produced) produced", "sum(consumed) consumed"))
        )  # fmt: skip

    def objectives(self) -> DataFrame:
        """A row per group: how the target was kept, what was lost, how many samples there were, `pause_ms`."""
        passed = f"until_next_ms <= {self._limits.stale_ms}"
        came = f"if(since_last_ms <= {self._limits.stale_ms}, coalesce(produce_rate, 0.0D) * since_last_ms, 0.0D)"
        return (
            self.rows.groupBy("cluster", "group", "node", "topic", "queue")
            .agg(*_aggregates(
                "count(1) samples",
                "count_if(in_time) kept",
                f"sum({came}) produced",
                f"sum(if(in_time, {came}, 0.0D)) produced_kept",
                f"sum(if(NOT in_time AND {passed}, until_next_ms, 0)) over_ms",
                "max(expired) - min(expired) lost",
                f"max(if(since_last_ms <= {self._limits.stale_ms} + {_WIDE_MS}, since_last_ms, NULL)) pause_ms",
            ))
            .groupBy("cluster", "group")
            .agg(*_aggregates("sum(samples) samples", "sum(kept) kept", "sum(produced) produced",
                              "sum(produced_kept) produced_kept", "max(over_ms) over_ms", "sum(lost) lost",
                              "max(pause_ms) pause_ms"))
        )  # fmt: skip

    def last(self) -> DataFrame:
        """A row per queue, its last one, with all that the rules looked at; of a group the worst queues only."""
        newest = f"row_number() OVER (PARTITION BY {', '.join(QUEUE)} ORDER BY time_ms DESC) AS newest"
        place = (
            f"row_number() OVER (PARTITION BY {', '.join(GROUP)} "
            "ORDER BY severity DESC, lag DESC NULLS LAST, topic, queue, node) AS place"
        )
        sums = [
            f"{text} OVER (PARTITION BY {', '.join(GROUP)}) AS group_{name}"
            for name, text in {
                "queues": "count(1)",
                "lag": "sum(lag)",
                "unfinished": "sum(unfinished)",
                "age_ms": "max(coalesce(time_lag_ms, time_lag_high_ms))",
                "catch_up_s": "max(catch_up_s)",
            }.items()
        ]
        sums.append(
            f"max(coalesce(time_lag_ms, time_lag_high_ms)) OVER (PARTITION BY {', '.join(GROUP)}) AS group_age_ms"
        )
        sums.append(f"max(catch_up_s) OVER (PARTITION BY {', '.join(GROUP)}) AS group_catch_up_s")
        told = "if(gone, 'UNKNOWN', status) AS status", f"if(gone, {SEVERITY['UNKNOWN']}, severity) AS severity"
        return (
            self.rows.selectExpr("*", newest)
            .where("newest = 1")
            .selectExpr("*", f"{self._gone()} AS gone")
            .selectExpr("* EXCEPT (status, severity, cause)", *told, "if(gone, NULL, cause) AS cause")
            .selectExpr("*", place, *sums)
            .where(f"place <= {2 * QUEUES_MAX}")
        )

    def _gone(self) -> str:
        """Whether a queue's last sample says nothing of the window's end any more, as SQL: nobody recorded since.

        What was lost or set back stays what it is. A row of a minute or an hour speaks for all of it.
        """
        kept = ", ".join(repr(each.name) for each in statuses.STATUSES if _holds_for_ever(each))
        return f"{self._window.to_ms} - time_ms > {self._limits.stale_ms} + {_WIDE_MS} AND status NOT IN ({kept})"

    def heat(self, window: Window) -> DataFrame:
        """A row per bucket of each group's worst queues, and of the sum of its others, whose topic is null."""
        rows = self.rows.selectExpr(*QUEUE, _bucket(window, HEAT_BUCKETS), "peak_lag")
        place = (
            f"dense_rank() OVER (PARTITION BY {', '.join(GROUP)} ORDER BY highest DESC NULLS LAST, topic, queue, node)"
        )
        highest = f"max(peak_lag) OVER (PARTITION BY {', '.join(QUEUE)}) AS highest"
        named = f"place <= {QUEUES_MAX}"
        return (
            rows.selectExpr("*", highest)
            .selectExpr("*", f"{place} AS place")
            .groupBy(*(name.strip("`") for name in QUEUE), "bucket", "place")
            .agg(*_aggregates("max(peak_lag) lag"))
            .selectExpr("cluster", "`group`", f"if({named}, node, NULL) node", f"if({named}, topic, NULL) topic",
                        f"if({named}, queue, NULL) queue", f"least(place, {QUEUES_MAX + 1}) place", "bucket", "lag")
            .groupBy("cluster", "group", "node", "topic", "queue", "place", "bucket")
            .agg(*_aggregates("sum(lag) lag"))
        )  # fmt: skip

    def incidents(self) -> DataFrame:
        """A row per incident of a queue, as `lag.rules.history_rules.incidents` finds them; of a group the worst.

        `until_ms` is the first moment after it that is OK; null: it had not ended at the queue's last sample. `facts`
        are what the cause's evidence names, as they were when it was worst.
        """
        over = f"OVER (PARTITION BY {', '.join(QUEUE)} ORDER BY time_ms)"
        calm = f"status IN ({_CALM})"
        begins = (
            f"NOT {calm} AND (coalesce(lag({calm}) {over}, true) "
            f"OR time_ms - lag(time_ms) {over} > {self._limits.stale_ms}) AS begins"
        )
        after = f"lead(time_ms) {over} AS after_ms"
        rows = (
            self.rows.selectExpr("*", begins, after)
            .where(f"NOT {calm}")
            .selectExpr("*", f"sum(CAST(begins AS INT)) {over} AS incident")
        )
        ended = f"after_ms IS NOT NULL AND after_ms - time_ms > {self._limits.stale_ms}"
        worst = "struct(severity, cause IS NOT NULL, -time_ms)"
        found = rows.groupBy("cluster", "group", "node", "topic", "queue", "incident").agg(*_aggregates(
            "min(time_ms) from_ms",
            f"max_by(CASE WHEN {ended} THEN time_ms ELSE after_ms END, time_ms) until_ms",
            "max(severity) severity",
            f"max_by(cause, {worst}) cause",
            f"max_by(struct({', '.join(f'`{name}`' for name in causes.EVIDENCE)}), {worst}) facts",
            "max(peak_lag) lag",
            "max(peak_age_ms) age_ms",
        ))  # fmt: skip
        place = (
            f"row_number() OVER (PARTITION BY {', '.join(GROUP)} "
            "ORDER BY severity DESC, lag DESC NULLS LAST, from_ms) AS place"
        )
        return found.selectExpr("*", place).where(f"place <= {INCIDENTS_MAX}")


def _bucket(window: Window, buckets: int) -> str:
    """Return the number of a row's bucket, as SQL."""
    return f"CAST((time_ms - {window.from_ms}) DIV {window.width_ms(buckets)} AS INT) AS bucket"


def _holds_for_ever(status: Status) -> bool:
    """Whether a status is worse than UNKNOWN and does not look at how old the sample is."""
    return SEVERITY[status.name] > SEVERITY["UNKNOWN"] and "stale_ms" not in names_in(status.rule)


def _aggregates(*texts: str) -> list[Column]:
    """Return aggregates written as SQL, `sum(x) name`."""
    from pyspark.sql.functions import expr

    return [expr(text.rpartition(" ")[0]).alias(text.rpartition(" ")[2]) for text in texts]
