"""From judged samples to what a report shows: all in Spark, so that only buckets, worst queues and incidents come back.

A *bucket* is an equal part of the window. Of each queue a bucket keeps the worst, so a peak of one sample is seen in a
year; a group's lag in a bucket is the sum over its queues, which is an upper bound of what it was at any moment. For
that each queue must have a sample in each bucket, whenever its node looked at it: so buckets are joined until each is
as long as the longest pause between two samples that is no gap (`ReportWindow.pause_ms`), however short the window.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import broadcast, expr

from lag.report.engine.findings import LEFT
from lag.report.options import BUCKETS, HEAT_BUCKETS, INCIDENTS_MAX, PRECISE, QUEUES_MAX, ReportWindow
from lag.rules import causes, statuses
from lag.rules.expression import names_in
from lag.rules.limits import LagLimits
from lag.rules.quantities import TOPIC_QUANTITIES
from lag.rules.statuses import BY_NAME, SEVERITY, LagStatus
from lag.rules.topic_rules import ALONE
from lag.spark.columns import Names, with_cause, with_neighbours, with_status

GROUP: Final = ("cluster", "`group`")
QUEUE: Final = ("cluster", "node", "`group`", "topic", "queue")
PART_ROWS: Final = 1_000_000
"""Samples that one task sorts, about; a queue is never cut."""
PARTS: Final = (
    "cluster", "node", "group", "topic", "queue", "from_ms", "to_ms", "status", "lag", "seconds", "produced",
    "consumed", "samples", "samples_in_time", "date",
)  # fmt: skip
"""Columns of `ReportFrames.parts`: of a queue and a part of the window its worst status, most lag and greatest age, its
mean
rates, how many samples there were and how many of them in time; `date` is the day (UTC) on which the part begins."""
QUEUE_NAMES: Final = ("cluster", "node", "group", "topic", "queue")
_NUMBERS: Final = Names(topic=("topic_number",), queue=("queue_number",))
_OWN: Final = ("earlier_ms", "after_ms", "after_wide_ms", "last_ms", "left_ms", "tier", "lost_now")
"""What this module adds to samples, beside what the rules look at."""
_SUMMED: Final = ("time_ms", "lag", "produce_rate", "produce_trend", "consume_rate", "in_time")
"""Columns that every sample keeps under their names."""
_FIGURES: Final = frozenset(
    ("status", "committed", "end", "unfinished", "lost", "catch_up_s", "time_lag_ms", "time_lag_high_ms",
     "time_lag_method", *_OWN)
)  # fmt: skip
_WIDE_MS: Final = "CASE tier WHEN 'hour' THEN 3600000L WHEN 'minute' THEN 60000L ELSE 0L END"
"""The time that a row covers, before its moment, as SQL."""
_LIMITS: Final = frozenset(field.name for field in fields(LagLimits))
_TOLD: Final = tuple(
    sorted({*_FIGURES, *names_in(causes.RULE), *causes.EVIDENCE, *names_in(TOPIC_QUANTITIES["hot"].rule)}
           - {*_SUMMED, *_LIMITS, *ALONE, *TOPIC_QUANTITIES})
)  # fmt: skip
"""What is kept of single samples besides: what causes look at and their evidence names, and a queue's figures."""
_SEVERITY: Final = f"CASE status {' '.join(f'WHEN {name!r} THEN {rank}' for name, rank in SEVERITY.items())} END"
_CALM: Final = ", ".join(repr(name) for name, each in BY_NAME.items() if each.level.name == "OK")
_POSITION: Final = "if(committed < `start`, `start`, committed)"
"""Where a group continues."""
_KNOWN: Final = "if({0} IS NULL OR {1} > {2}, 0L, {1})"
"""How much of some time is known by a sample's state: all, if it is no gap."""
_IN_TIME: Final = """CASE WHEN status = 'UNKNOWN' THEN NULL
    WHEN time_lag_ms IS NOT NULL THEN time_lag_ms <= {target}
    WHEN time_lag_low_ms > {target} THEN false
    WHEN time_lag_high_ms <= {target} THEN true END"""


class ReportFrames:
    """The frames of one report, from one walk over its samples; each is small.

    Attributes:
        queues: Names of queues and topics, numbered, with the moment of each queue's last sample: rows carry the
            numbers alone.
        rows: The window's samples, judged: those that are calm added up by queue and bucket, each other one, and each
            queue's last one, by itself, with the finding about it as the struct `finding`.

    Args:
        samples: Samples of the window, and of `limits.window_ms` before it, so that its first rows are judged as well.
        window: What is reported on.
        limits: Thresholds.
        events: When offsets of queues were reset and queues left, by name; null: neither happened.
        findings: Whether there are findings about single samples. If not, objectives and groups are all that there is.
    """

    def __init__(
        self,
        samples: DataFrame,
        window: ReportWindow,
        limits: LagLimits,
        events: DataFrame | None = None,
        *,
        findings: bool = True,
    ) -> None:
        self._window = window
        self._limits = limits
        self.queues = _queues(samples, window, events).persist()
        count = self.queues.agg(*_aggregates("coalesce(sum(count), 0) count")).collect()[0]["count"]
        parts = max(int(samples.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1), -(-count // PART_ROWS))
        names = broadcast(self.queues.drop("count", "absurd"))
        numbered = samples.join(names, list(QUEUE_NAMES)).drop(*QUEUE_NAMES).repartition(parts, "queue_number")
        narrow = self._narrow(self._judged(numbered), findings=findings)
        if findings:
            narrow = self._with_causes(narrow)
        self.rows = narrow.groupBy("queue_number", "bucket", "heat_bucket", "finding").agg(*_aggregates(
            "count(1) samples",
            "count_if(in_time) kept",
            "sum(ended) ended",
            "sum(ended_kept) ended_kept",
            "sum(lost_here) lost",
            "sum(known_ms) known_ms",
            "sum(over_ms) over_ms",
            "max(pause_ms) pause_ms",
            "max(peak_lag) lag",
            "max(peak_age_ms) age_ms",
            "max(severity) severity",
            f"sum({_precise('produce_rate')}) produce_sum",
            "count(produce_rate) produce_count",
            f"sum({_precise('consume_rate')}) consume_sum",
            "count(consume_rate) consume_count",
        ))  # fmt: skip

    def _judged(self, numbered: DataFrame) -> DataFrame:
        """Judge the window's samples, each beside its queue's sample before and after it in the window.

        Of two samples of a queue in one millisecond the later counts.
        """
        window, limits = self._window, self._limits
        over = f"OVER (PARTITION BY {_NUMBERS.one} ORDER BY time_ms"
        ordered = f"{over}, epoch, sequence)"
        frame = numbered.selectExpr(
            "* EXCEPT (resets)",
            "array_max(filter(resets, x -> x <= time_ms)) AS reset_ms",
            "array_max(filter(resets, x -> x <= time_ms)) AS reset_before_ms",
            f"lead(time_ms) {ordered} AS after_ms",
            f"lead({_WIDE_MS}) {ordered} AS after_wide_ms",
        ).where("after_ms IS NULL OR after_ms > time_ms")
        frame = with_status(frame, limits, _NUMBERS).where(f"time_ms >= {window.from_ms}L")
        frame = frame.selectExpr(
            "*",
            f"({_IN_TIME.format(target=limits.target_ms)}) AS in_time",
            f"lag(time_ms) {over}) AS earlier_ms",
            f"{_POSITION} AS position",
            f"lag({_POSITION}) {over}) AS position_then",
            f"greatest(0L, skipped - lag(skipped) {over})) AS skipped_now",
            f"lag(if(`start` IS NULL, NULL, expired)) IGNORE NULLS {over}) AS expired_then",
        )
        frame = frame.selectExpr(
            "*",
            f"if(tier = 'raw', lag(in_time) {over}), in_time) AS state",
            f"if(time_ms - earlier_ms <= {limits.stale_ms} + {_WIDE_MS}, time_ms - earlier_ms, NULL) AS pause_ms",
            "if(`start` IS NULL, 0L, coalesce(greatest(0L, expired - expired_then), 0L)) AS lost_now",
        )
        return frame.selectExpr(
            "*",
            "if(pause_ms IS NULL OR reset_before_ms > earlier_ms, 0L, "
            "coalesce(greatest(0L, position - position_then - lost_now - skipped_now), 0L)) AS finished_now",
        )

    def _narrow(self, frame: DataFrame, *, findings: bool) -> DataFrame:
        """Return what is added up, and `finding`, which is null of a calm sample but the last of its queue."""
        window = self._window
        age = "coalesce(time_lag_ms, time_lag_high_ms)"
        alone = f"status NOT IN ({_CALM}) OR time_ms = last_ms"
        gap_ms = f"{self._limits.stale_ms} + {_WIDE_MS}"
        head = _KNOWN.format("in_time", f"time_ms - {window.from_ms}L", gap_ms)
        tail = _KNOWN.format("in_time", f"{window.to_ms}L - time_ms", gap_ms)
        kept = ", ".join(f"`{name}`" for name in _TOLD)
        return frame.selectExpr(
            *(f"`{name}`" for name in (*_NUMBERS.topic, *_NUMBERS.queue, *_SUMMED, "pause_ms")),
            "lost_now AS lost_here",
            f"{_SEVERITY} AS severity",
            "greatest(lag, row_lag_max) AS peak_lag",
            f"greatest({age}, CAST(row_age_max_ms AS DOUBLE)) AS peak_age_ms",
            f"CAST((time_ms - {window.from_ms}L) DIV {window.width_ms(BUCKETS)}L AS INT) AS bucket",
            f"CAST((time_ms - {window.from_ms}L) DIV {window.width_ms(HEAT_BUCKETS)}L AS INT) AS heat_bucket",
            "finished_now + lost_now + if(time_ms = last_ms AND NOT in_time, coalesce(lag, 0L), 0L) AS ended",
            "if(state, finished_now, 0L) AS ended_kept",
            f"if(state IS NULL, 0L, coalesce(pause_ms, 0L)) + if(earlier_ms IS NULL, {head}, 0L)"
            f" + if(time_ms = last_ms, {tail}, 0L) AS known_ms",
            "if(NOT state, coalesce(pause_ms, 0L), 0L) AS over_ms",
            f"if({alone}, struct({kept}), NULL) AS finding" if findings else "CAST(NULL AS STRING) AS finding",
        )

    def _with_causes(self, narrow: DataFrame) -> DataFrame:
        """Return the cause, which is looked for where there is a finding."""
        frame = with_neighbours(narrow, _NUMBERS).selectExpr("*", "finding.*")
        whole = ", ".join(f"`{name}`" for name in (*_TOLD, *_SUMMED, *ALONE, "cause"))
        frame = with_cause(frame, self._limits)
        return frame.selectExpr(*(f"`{name}`" for name in narrow.columns if name != "finding"),
                                f"if(finding IS NULL, NULL, struct({whole})) AS finding")  # fmt: skip

    def close(self) -> None:
        """Give back what is held in memory."""
        self.queues.unpersist()
        self.rows.unpersist()

    def _named(self, frame: DataFrame) -> DataFrame:
        """Return rows with their queues' names in place of numbers."""
        names = self.queues.select("queue_number", *QUEUE_NAMES)
        return frame.join(broadcast(names), "queue_number").drop("queue_number")

    def _joined(self, window: ReportWindow, name: str, buckets: int) -> DataFrame:
        """Return the rows with the numbers of a window's buckets, each made of whole ones of the walk, as `bucket`."""
        width, part = window.width_ms(buckets), self._window.width_ms(buckets)
        return self.rows.selectExpr("* EXCEPT (bucket)", f"CAST({name} * {part}L DIV {width} AS INT) AS bucket")

    def refused(self) -> DataFrame:
        """A row per node with samples that had message times that cannot be: `absurd` of them."""
        return self.queues.groupBy("node").agg(*_aggregates("sum(absurd) absurd")).where("absurd > 0")

    def groups(self, window: ReportWindow) -> DataFrame:
        """A row per group and bucket of the window, whose `pause_ms` is known: lag, age, severity, rates."""
        return (
            self._named(self._joined(window, "bucket", BUCKETS).groupBy("queue_number", "bucket").agg(*_aggregates(
                "max(lag) lag", "max(age_ms) age_ms", "max(severity) severity",
                "if(sum(produce_count) > 0, sum(produce_sum) DIV sum(produce_count), NULL) produced",
                "if(sum(consume_count) > 0, sum(consume_sum) DIV sum(consume_count), NULL) consumed",
            )))
            .groupBy("cluster", "group", "bucket")
            .agg(*_aggregates("sum(lag) lag", "max(age_ms) age_ms", "max(severity) severity",
                              "sum(produced) produced", "sum(consumed) consumed"))
        )  # fmt: skip

    def parts(self, window: ReportWindow) -> DataFrame:
        """A row per queue and bucket of the window, whose `pause_ms` is known: what `PARTS` says."""
        statuses_of = " ".join(f"WHEN {rank} THEN {name!r}" for name, rank in SEVERITY.items())
        width, begin = window.width_ms(BUCKETS), f"{window.from_ms}L + bucket * {window.width_ms(BUCKETS)}L"
        return self._named(self._joined(window, "bucket", BUCKETS).groupBy("queue_number", "bucket").agg(*_aggregates(
            "sum(samples) samples", "sum(kept) samples_in_time", "max(lag) lag", "max(age_ms) age_ms",
            "max(severity) severity",
            f"try_divide(sum(produce_sum), sum(produce_count) * {PRECISE}D) produced",
            f"try_divide(sum(consume_sum), sum(consume_count) * {PRECISE}D) consumed",
        ))).selectExpr(
            *QUEUE, f"{begin} AS from_ms", f"least({begin} + {width}L, {window.to_ms}L) AS to_ms",
            f"CASE severity {statuses_of} END AS status", "lag", "age_ms / 1000 AS seconds", "produced", "consumed",
            "samples", "samples_in_time", f"to_date(timestamp_millis({begin})) AS date",
        )  # fmt: skip

    def objectives(self) -> DataFrame:
        """A row per group: see `lag.report.options.Reduced`."""
        sums = ("samples", "kept", "ended", "ended_kept", "lost", "known_ms")
        return (
            self._named(self.rows.groupBy("queue_number").agg(*_aggregates(
                *(f"sum({name}) {name}" for name in (*sums, "over_ms")), "max(pause_ms) pause_ms",
            )))
            .groupBy("cluster", "group")
            .agg(*_aggregates(*(f"sum({name}) {name}" for name in sums), "max(over_ms) over_ms",
                              "count(1) queues", "max(pause_ms) pause_ms"))
        )  # fmt: skip

    def last(self) -> DataFrame:
        """A row per queue, its last one, with all that the rules looked at; of a group the worst queues only."""
        place = (
            f"row_number() OVER (PARTITION BY {', '.join(GROUP)} "
            "ORDER BY severity DESC, lag DESC NULLS LAST, topic, queue, node) AS place"
        )
        here = "if(left_ms IS NULL, {}, NULL)"
        # One that does not catch up keeps its group from it.
        never = "left_ms IS NULL AND NOT (unfinished <=> 0L) AND catch_up_s IS NULL"
        over = f"OVER (PARTITION BY {', '.join(GROUP)})"
        caught_up = f"if(count_if({never}) {over} > 0, NULL, max({here.format('catch_up_s')}) {over})"
        sums = [
            f"{text} {over} AS group_{name}"
            for name, text in {
                "queues": "count(1)",
                "lag": f"sum({here.format('lag')})",
                "unfinished": f"sum({here.format('unfinished')})",
                "age_ms": f"max({here.format('coalesce(time_lag_ms, time_lag_high_ms)')})",
            }.items()
        ]
        sums.append(f"{caught_up} AS group_catch_up_s")
        cases = "CASE WHEN left_ms IS NOT NULL THEN {} WHEN gone THEN {} ELSE {} END AS {}"
        return (
            self._findings("time_ms = last_ms")
            .selectExpr("*", f"{self._gone()} AS gone")
            .selectExpr(
                "* EXCEPT (status, severity, cause)",
                cases.format(f"'{LEFT}'", "'UNKNOWN'", "status", "status"),
                cases.format(0, SEVERITY["UNKNOWN"], "severity", "severity"),
                "if(gone OR left_ms IS NOT NULL, NULL, cause) AS cause",
            )
            .selectExpr("*", place, *sums)
            .where(f"place <= {2 * QUEUES_MAX}")
        )

    def _gone(self) -> str:
        """Whether a queue's last sample says nothing of the window's end any more, as SQL: nothing was recorded since.

        What was lost or set back stays what it is. A row of a minute or an hour speaks for all of it.
        """
        kept = ", ".join(repr(each.name) for each in statuses.STATUSES if _holds_for_ever(each))
        return f"{self._window.to_ms} - time_ms > {self._limits.stale_ms} + {_WIDE_MS} AND status NOT IN ({kept})"

    def _findings(self, condition: str) -> DataFrame:
        """Return single samples of which something holds, with names."""
        single = self.rows.where("finding IS NOT NULL").selectExpr(
            "queue_number", "finding.*", "lag AS peak_lag", "age_ms AS peak_age_ms", "severity"
        )
        return self._named(single.where(condition))

    def heat(self, window: ReportWindow) -> DataFrame:
        """A row per bucket of each group's worst queues, and of the sum of its others, whose topic is null."""
        joined = self._joined(window, "heat_bucket", HEAT_BUCKETS)
        rows = self._named(joined.groupBy("queue_number", "bucket").agg(*_aggregates("max(lag) lag")))
        place = (
            f"dense_rank() OVER (PARTITION BY {', '.join(GROUP)} ORDER BY highest DESC NULLS LAST, topic, queue, node)"
        )
        highest = f"max(lag) OVER (PARTITION BY {', '.join(QUEUE)}) AS highest"
        named = f"place <= {QUEUES_MAX}"
        return (
            rows.selectExpr("*", highest)
            .selectExpr("*", f"{place} AS place")
            .selectExpr("cluster", "`group`", f"if({named}, node, NULL) node", f"if({named}, topic, NULL) topic",
                        f"if({named}, queue, NULL) queue", f"least(place, {QUEUES_MAX + 1}) place", "bucket", "lag")
            .groupBy("cluster", "group", "node", "topic", "queue", "place", "bucket")
            .agg(*_aggregates("sum(lag) lag"))
        )  # fmt: skip

    def incidents(self) -> DataFrame:
        """A row per incident of a queue, as docs/lag-rules.md says; of a group the worst.

        `until_ms` is the first moment after it that is OK; null: it had not ended at the queue's last sample. `facts`
        are what the cause's evidence names, as they were when it was first found. `held` has how long each cause held.
        """
        over = f"OVER (PARTITION BY {', '.join(QUEUE)} ORDER BY time_ms)"
        # The sample before is in trouble, too, if it is the one before among those in trouble.
        begins = (
            f"(NOT coalesce(earlier_ms = lag(time_ms) {over}, false) "
            f"OR time_ms - earlier_ms > {self._limits.stale_ms} + {_WIDE_MS}) AS begins"
        )
        rows = (
            self._findings(f"status NOT IN ({_CALM})")
            .selectExpr("*", begins)
            .selectExpr("*", f"sum(CAST(begins AS INT)) {over} AS incident")
        )
        ended = f"after_ms IS NOT NULL AND after_ms - time_ms > {self._limits.stale_ms} + after_wide_ms"
        # A sample speaks for the time until the next one; of a piece of a longer window its lead does not count.
        speaks = f"after_ms IS NULL OR {ended} OR after_ms < {self._window.counted_ms}L"
        facts = ", ".join(f"`{name}`" for name in causes.EVIDENCE)
        of_cause = rows.groupBy(*QUEUE_NAMES, "incident", "severity", "cause").agg(*_aggregates(
            "min(time_ms) from_ms",
            "max(time_ms) last_ms",
            f"max_by(CASE WHEN {ended} THEN time_ms WHEN after_ms IS NULL THEN left_ms ELSE after_ms END, time_ms) "
            "until_ms",
            f"sum(if({speaks}, 0L, after_ms - time_ms)) held_ms",
            f"min_by(struct({facts}), time_ms) facts",
            "max(peak_lag) lag",
            "max(peak_age_ms) age_ms",
            f"sum(if(time_ms < {self._window.counted_ms}L, 0L, lost_now)) lost",
        ))  # fmt: skip
        worst = "struct(severity, cause IS NOT NULL, held_ms, -from_ms)"
        found = of_cause.groupBy(*QUEUE_NAMES, "incident").agg(*_aggregates(
            "max_by(until_ms, last_ms) until_ms",
            f"max_by(cause, {worst}) cause",
            f"max_by(facts, {worst}) facts",
            "collect_list(struct(severity, cause, held_ms)) held",
            "max(severity) severity",
            "max(lag) lag",
            "max(age_ms) age_ms",
            "sum(lost) lost",
            "min(from_ms) from_ms",
            "max(last_ms) last_ms",
        ))  # fmt: skip
        place = (
            f"row_number() OVER (PARTITION BY {', '.join(GROUP)} "
            "ORDER BY severity DESC, lag DESC NULLS LAST, from_ms, topic, queue, node) AS place"
        )
        return found.selectExpr("*", place).where(f"place <= {INCIDENTS_MAX}")


def _queues(samples: DataFrame, window: ReportWindow, events: DataFrame | None) -> DataFrame:
    """Number queues and topics in the order of their names, and count; each with its resets, and when it left."""
    topic = "cluster, `group`, topic"
    queues = (
        samples.groupBy(*QUEUE_NAMES)
        .agg(*_aggregates(
            "max(time_ms) last_ms", "count(1) count", f"count_if(absurd AND time_ms >= {window.from_ms}) absurd"
        ))
        .selectExpr("*", f"CAST(dense_rank() OVER (ORDER BY {topic}) AS BIGINT) AS topic_number",
                    f"CAST(row_number() OVER (ORDER BY {topic}, node, queue) AS BIGINT) AS queue_number")
    )  # fmt: skip
    if events is None:
        return queues.selectExpr("*", "CAST(array() AS ARRAY<BIGINT>) AS resets", "CAST(NULL AS BIGINT) AS left_ms")
    # An event may be about all nodes, groups, topics or queues: a queue looks for it by each of these names.
    either = "explode(array({0}, {1})) AS {0}"
    named = queues.select("queue_number", *QUEUE_NAMES)
    for name in QUEUE_NAMES[1:]:
        rest = [f"`{other}`" for other in ("queue_number", *QUEUE_NAMES) if other != name]
        named = named.selectExpr(*rest, either.format(f"`{name}`", "-1L" if name == "queue" else "''"))
    found = (
        named.join(broadcast(events), list(QUEUE_NAMES))
        .groupBy("queue_number")
        .agg(*_aggregates("flatten(collect_list(resets)) resets", "array_max(flatten(collect_list(lefts))) left_at_ms"))
    )
    return queues.join(found, "queue_number", "left").selectExpr(
        *(f"`{name}`" for name in queues.columns),
        "coalesce(resets, CAST(array() AS ARRAY<BIGINT>)) AS resets",
        "if(left_at_ms >= last_ms, left_at_ms, NULL) AS left_ms",
    )


def _precise(rate: str) -> str:
    """Return a rate in whole millionths, as SQL."""
    return f"CAST(floor({rate} * {PRECISE}.0D + 0.5D) AS BIGINT)"


def _holds_for_ever(status: LagStatus) -> bool:
    """Whether a status is worse than UNKNOWN and does not look at how old the sample is."""
    return SEVERITY[status.name] > SEVERITY["UNKNOWN"] and "stale_ms" not in names_in(status.rule)


def _aggregates(*texts: str) -> list[Column]:
    """Return aggregates written as SQL, `sum(x) name`."""
    return [expr(text.rpartition(" ")[0]).alias(text.rpartition(" ")[2]) for text in texts]
