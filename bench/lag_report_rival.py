"""What DuckDB makes of exported samples: the figures of a lag report, as near as SQL comes.

    python -m bench.lag_report_rival PLACE FROM_MS TO_MS

Of each sample its lag, age, rates over a minute, trends over five minutes (least squares, where the rules take medians
of slopes), what was lost, by how much the offset was set back, and one of eight statuses. Of each queue the share of
samples in time, highest figures, percentiles and how it stands at the end; of each group 240 parts of the window; and
incidents, which are stretches of one queue in trouble. No causes, gaps, resets, restarts, findings and pages.
"""

from __future__ import annotations

import sys
from pathlib import Path

_JUDGED = """CREATE TEMP TABLE judged AS
WITH samples AS (
    SELECT "group", topic, queue, time_ms, "start", "end", committed, expired, in_flight, paused, moved_ms, answered_ms,
        greatest("end" - greatest(committed, "start"), 0) AS lag,
        CASE WHEN "end" > committed THEN time_ms - committed_ms ELSE 0 END AS age_ms
    FROM read_parquet({files}) WHERE time_ms >= {begin} - 300000 AND time_ms < {end}
), windows AS (
    SELECT *,
        ("end" - first("end") OVER recent) * 1000.0 / nullif(time_ms - first(time_ms) OVER recent, 0) AS produced,
        (committed - first(committed) OVER recent) * 1000.0 / nullif(time_ms - first(time_ms) OVER recent, 0)
            AS consumed,
        regr_slope("end", time_ms) OVER five * 1000 AS produce_trend,
        regr_slope(committed, time_ms) OVER five * 1000 AS consume_trend,
        min(lag) OVER five AS least, max(committed) OVER five - committed AS rewound, count(*) OVER five AS known,
        expired - first(expired) OVER five AS lost_recently, expired - lag(expired) OVER one AS lost,
        time_ms - lag(time_ms) OVER one AS passed_ms
    FROM samples
    WINDOW one AS (PARTITION BY "group", topic, queue ORDER BY time_ms),
        recent AS (PARTITION BY "group", topic, queue ORDER BY time_ms RANGE BETWEEN 60000 PRECEDING AND CURRENT ROW),
        five AS (PARTITION BY "group", topic, queue ORDER BY time_ms RANGE BETWEEN 300000 PRECEDING AND CURRENT ROW)
)
SELECT *, CASE WHEN lost_recently > 0 THEN 8 WHEN committed > "end" THEN 7 WHEN rewound > 0 THEN 6
    WHEN lag > 0 AND in_flight = 0 AND time_ms - greatest(moved_ms, answered_ms) >= 180000 AND NOT paused THEN 5
    WHEN lag > 0 AND time_ms - moved_ms >= 180000 AND NOT paused THEN 4
    WHEN known < 3 THEN 3
    WHEN lag > 10 AND age_ms > 1000 AND (produce_trend > consume_trend * 1.05 AND least > 10 OR age_ms > 60000) THEN 2
    ELSE 1 END AS status
FROM windows WHERE time_ms >= {begin}"""
_QUEUE = '"group", topic, queue'
_FIGURES = (
    f"""SELECT {_QUEUE}, count(*), avg((age_ms <= 60000)::INT), sum(CASE WHEN age_ms > 60000 THEN passed_ms ELSE 0 END),
        max(lag), max(age_ms), quantile_cont(lag, [0.5, 0.95, 0.99]), quantile_cont(age_ms, [0.5, 0.95, 0.99]),
        arg_max(lag, time_ms), arg_max(status, time_ms), arg_max(produced, time_ms), arg_max(consumed, time_ms),
        sum(lost), max(passed_ms)
    FROM judged GROUP BY ALL""",
    f"""SELECT "group", bucket, sum(lag), max(age_ms), max(status), sum(produced), sum(consumed) FROM (
        SELECT {_QUEUE}, (time_ms - {{begin}}) // {{width}} AS bucket, max(lag) AS lag, max(age_ms) AS age_ms,
            max(status) AS status, avg(produced) AS produced, avg(consumed) AS consumed
        FROM judged GROUP BY ALL
    ) GROUP BY ALL""",
    f"""SELECT {_QUEUE}, min(time_ms), max(time_ms), max(status), max(lag), max(age_ms), sum(lost) FROM (
        SELECT *, sum((passed_ms IS NULL OR passed_ms > 90000 OR before = 1)::INT)
            OVER (PARTITION BY {_QUEUE} ORDER BY time_ms) AS incident
        FROM (SELECT *, lag(status) OVER (PARTITION BY {_QUEUE} ORDER BY time_ms) AS before FROM judged)
        WHERE status > 1
    ) GROUP BY {_QUEUE}, incident""",
)


def main(place: str, begin: int, end: int) -> int:
    """Make the figures; returns how many rows they have."""
    import duckdb

    files = [str(each) for each in sorted(Path(place).glob("queues/*/*.parquet"))]
    names = {"files": repr(files), "begin": begin, "end": end, "width": max(1, (end - begin) // 240)}
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2")
        connection.execute(_JUDGED.format(**names))
        return sum(len(connection.execute(query.format(**names)).fetchall()) for query in _FIGURES)


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
