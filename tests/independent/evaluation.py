"""The lag rules a second time, in pandas, written from the documentation alone (docs/lag-rules.md).

It uses nothing of `lag/rules`, `lag/report` or `lag/spark`. Each sample is judged at its own moment. What is not
known is NA, and conditions follow the logic of three values, which pandas has for its nullable types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from lag.samples import LagEvent

LEVELS = {
    "DATA_LOSS": "ERR", "AHEAD": "ERR", "REWIND": "ERR", "BLOCKED": "ERR", "STOP": "ERR", "NOT_CONSUMED": "ERR",
    "STALL": "ERR", "UNKNOWN": "UNKNOWN", "RETENTION_RISK": "WARN", "WARN": "WARN", "NO_OFFSET": "WARN",
    "INCOMPLETE": "UNKNOWN", "CATCHING_UP": "OK", "PAUSED": "OK", "OK": "OK",
}  # fmt: skip
"""Statuses, the worst first, with the level of each."""
RANKS = {status: number for number, status in enumerate(LEVELS)}
QUEUE = ["group", "topic", "queue"]
NO_CAUSE = ("OK", "CATCHING_UP", "UNKNOWN", "INCOMPLETE")
FACTS = (
    "readable", "reset_ms", "flat_since", "behind_since", "paused_until", "least_unfinished", "peak_committed",
    "earlier_expired", "earlier_committed", "below_ms", "below_end", "above_ms", "above_end", "growing_since", "grown",
    "grown_produced", "peak_before", "produce_slope", "consume_slope", "produce_recent", "consume_recent",
    "start_slope", "produce_first", "produce_second", "consume_first", "consume_second",
)  # fmt: skip


def judged(samples: pd.DataFrame, events: Sequence[LagEvent], limits: Any) -> pd.DataFrame:
    """Return the samples (columns `round`, group, topic, queue and those of a sample) with figures, status, cause."""
    parts = []
    for name, rows in samples.groupby(QUEUE, sort=False):
        resets = [each.time_ms for each in events if each.kind.value == "reset" and is_about(each, name)]
        parts.append(rows.join(_window_facts(rows, resets, limits)))
    table = pd.concat(parts)
    table = table.join(_figures(table, limits))
    table = table.join(_beside_others(table, limits))
    return table.join(_verdicts(table, limits))


def without_doubt(samples: pd.DataFrame, events: Sequence[LagEvent], limits: Any) -> pd.DataFrame:
    """Return the samples in the order of time without what steps of the clock make doubtful."""
    table = samples.copy()
    for event in events:
        if event.kind.value != "clock":
            continue
        now, by = event.time_ms, int(event.detail.removesuffix(" ms"))
        until = now + (limits.window_ms if by > 0 else -by + limits.stale_ms)
        table = table[(table["time_ms"] < now - limits.stale_ms) | (table["time_ms"] >= until)]
        for name in ("start_ms", "committed_ms", "started_ms", "end_ms"):
            old = (table["time_ms"] >= until) & (table[name] <= max(now, now - by))
            table[name] = table[name].mask(old.fillna(False))
    return table.sort_values("time_ms", kind="stable")


def is_about(event: LagEvent, name: Any) -> bool:
    """Whether an event is about a queue."""
    group, topic, queue = name
    return event.group == group and event.topic in {"", topic} and event.queue in {-1, queue}


# What the window of samples says


def _window_facts(rows: pd.DataFrame, resets: Sequence[int], limits: Any) -> pd.DataFrame:
    """Return what the formulas name and no sample has, of one queue, a row per sample."""
    names = ("start", "end", "committed", "finished", "expired", "skipped", "base")
    columns = {name: rows[name].to_numpy(dtype=float, na_value=np.nan) for name in names}
    times = rows["time_ms"].to_numpy(dtype=np.int64)
    paused = rows["paused"].to_numpy(dtype=bool)
    known = ~np.isnan(columns["start"]) & ~np.isnan(columns["end"])
    found = []
    for at, now in enumerate(times):
        first = int(np.searchsorted(times[: at + 1], now - limits.window_ms))
        inside = np.arange(first, at + 1)
        use = inside[known[inside]]
        use = use[_last(np.append(False, np.diff(columns["end"][use]) < 0)) :]
        before = np.flatnonzero(known[:first])
        view = {name: values[use] for name, values in columns.items()}
        fact = _facts(view, times[use], [each for each in resets if now - limits.window_ms <= each <= now], limits)
        fact["readable"] = len(use)
        rested = times[use[paused[use]]]
        fact["paused_until"] = rested[-1] if len(rested) else None
        earlier = before[-1] if len(before) else use[0] if len(use) else None
        fact["earlier_expired"] = None if earlier is None else columns["expired"][earlier]
        fact["earlier_committed"] = None if earlier is None else columns["committed"][earlier]
        found.append(fact)
    table = pd.DataFrame(found, index=rows.index, columns=list(FACTS))
    return table.astype("Float64")


def _facts(view: dict[str, Any], times: Any, resets: Sequence[int], limits: Any) -> dict[str, Any]:
    """Return the facts of one window, of its samples that could be read."""
    fact: dict[str, Any] = {"reset_ms": max(resets, default=None)}
    count = len(times)
    if not count:
        return fact
    start, end, committed = view["start"], view["end"], view["committed"]
    position = np.fmax(committed, start)
    lag = np.maximum(end - np.where(np.isnan(committed), np.nan, position), 0)
    left = np.maximum(lag - view["finished"], 0)
    behind = end > position
    fact["flat_since"] = times[_run(committed == committed[-1])] if not np.isnan(committed[-1]) else None
    fact["behind_since"] = times[_run(behind)] if behind[-1] else None
    fact["least_unfinished"] = _least(left)
    later = committed[times >= max(resets, default=0)]
    fact["peak_committed"] = None if np.isnan(later).all() else np.nanmax(later)
    if not np.isnan(committed[-1]) and lag[-1] > 0:
        under = np.flatnonzero(end <= position[-1])
        above = under[-1] + 1 if len(under) else 0
        fact["above_ms"], fact["above_end"] = times[above], end[above]
        if len(under):
            fact["below_ms"], fact["below_end"] = times[under[-1]], end[under[-1]]
    if not np.isnan(left[-1]):
        rising = np.append(left[1:] >= left[:-1], True)
        run = _run(rising)
        since = run + int(np.flatnonzero(left[run:] == left[run])[-1])
        fact["growing_since"], fact["grown"] = times[since], left[-1] - left[since]
        fact["grown_produced"] = end[-1] - end[since]
        fact["peak_before"] = _most(left[:since])
    use = ~np.isnan(committed) & (times >= max(resets, default=0))
    done = (position - view["expired"] - view["skipped"])[use]
    committed, base, when = committed[use], view["base"][use], times[use]
    begin = _last(np.append(False, (committed[1:] < committed[:-1]) | (base[1:] > base[:-1])))
    fact["consume_slope"] = _slope(when[begin:], done[begin:])
    fact["consume_recent"] = _recent(when[begin:], done[begin:], limits)
    fact["consume_first"], fact["consume_second"] = _halves(when[begin:], done[begin:])
    fact["produce_slope"], fact["start_slope"] = _slope(times, end), _slope(times, start)
    fact["produce_recent"] = _recent(times, end, limits)
    fact["produce_first"], fact["produce_second"] = _halves(times, end)
    return fact


def _run(holds: Any) -> int:
    """Return the place where the trailing run of True begins."""
    broken = np.flatnonzero(~holds)
    return int(broken[-1]) + 1 if len(broken) else 0


def _last(holds: Any) -> int:
    """Return the last place of True, 0 where there is none."""
    places = np.flatnonzero(holds)
    return int(places[-1]) if len(places) else 0


def _least(values: Any) -> float | None:
    return None if np.isnan(values).all() else float(np.nanmin(values))


def _most(values: Any) -> float | None:
    return None if np.isnan(values).all() else float(np.nanmax(values))


def _slope(times: Any, values: Any) -> float | None:
    """Return the median of slopes over pairs of samples that are half the samples apart, per second."""
    half = len(times) // 2
    if not half:
        return None
    return float(np.median((values[half:] - values[:-half]) * 1000.0 / (times[half:] - times[:-half])))


def _recent(times: Any, values: Any, limits: Any) -> float | None:
    """Return the slope over the shortest span of samples that is `recent_ms` or longer, else over all."""
    if len(times) < 2:
        return None
    first = max(int(np.searchsorted(times, times[-1] - limits.recent_ms, side="right")) - 1, 0)
    return float((values[-1] - values[first]) * 1000.0 / (times[-1] - times[first]))


def _halves(times: Any, values: Any) -> tuple[float | None, float | None]:
    """Return the slopes over both halves."""
    if len(times) < 3:
        return None, None
    half = len(times) // 2
    slopes = [(values[b] - values[a]) * 1000.0 / (times[b] - times[a]) for a, b in ((0, half), (half, len(times) - 1))]
    return float(slopes[0]), float(slopes[1])


# Figures and statuses: formulas over columns


def _positive(values: pd.Series) -> pd.Series:
    """Return values that are 0 at least."""
    return values.clip(lower=0)


def _latest(*columns: pd.Series) -> pd.Series:
    """Return the greatest of what is known."""
    return pd.concat(columns, axis=1).max(axis=1).astype("Float64")


def _first(*columns: pd.Series) -> pd.Series:
    """Return the first that is known."""
    found = columns[0]
    for each in columns[1:]:
        found = found.fillna(each)
    return found


def _where(holds: pd.Series, then: Any, other: Any) -> pd.Series:
    """Return `then` where it holds, else `other`, also where that is not known."""
    other = other if isinstance(other, pd.Series) else pd.Series(other, index=holds.index, dtype="Float64")
    return other.mask(holds.fillna(False).astype(bool), then)


def _figures(t: pd.DataFrame, limits: Any) -> pd.DataFrame:
    """Return figures of each row by itself."""
    f = pd.DataFrame(index=t.index)
    now = t["time_ms"]
    position = pd.concat([t["committed"], t["start"]], axis=1).max(axis=1, skipna=False).where(t["committed"].notna())
    f["lag"] = _positive(t["end"] - position)
    f["unfinished"] = _positive(f["lag"] - t["finished"])
    none = f["lag"] == 0
    direct = f["lag"].notna() & (none.fillna(False) | t["committed_ms"].notna())
    between = f["lag"].notna() & ~direct & t["below_ms"].notna() & t["above_ms"].notna()
    f["method"] = np.select([f["lag"].isna(), direct, between], ["none", "message", "interpolated"], "bounded")
    part = (t["above_end"] - position) * (t["above_ms"] - t["below_ms"]) / (t["above_end"] - t["below_end"])
    exact = _where(none, 0, _positive(now - t["committed_ms"]))
    f["age"] = _where(direct, exact, _where(between, _positive(now - (t["above_ms"] - part)), pd.NA))
    bound = f["method"] == "bounded"
    ages = [_positive(now - t[name]) for name in ("above_ms", "end_ms", "started_ms")]
    least = _latest(*ages, pd.Series(0, index=t.index, dtype="Float64"))
    f["low"] = _where(direct, exact, _where(between, ages[0], _where(bound, least, pd.NA)))
    most = _positive(now - t["start_ms"])
    most = _where(most < f["low"], f["low"], most)
    f["high"] = _where(direct, exact, _where(between, _positive(now - t["below_ms"]), _where(bound, most, pd.NA)))
    f["lost"] = t["expired"].where(t["start"].notna())
    f["lost_recently"] = _positive(f["lost"] - t["earlier_expired"])
    f["consume_rate"] = _positive(t["consume_recent"])
    f["consume_trend"] = _positive(t["consume_slope"])
    f["velocity"] = t["produce_slope"] - f["consume_trend"]
    gain, trend = f["consume_rate"] - t["produce_recent"], f["consume_trend"] - t["produce_slope"]
    ways = _first(
        _where(gain > limits.dead_band * t["produce_recent"], f["lag"] / gain, pd.NA),
        _where(f["velocity"] < 0, f["lag"] / trend, pd.NA),
    )
    f["catch_up_s"] = _where(f["lost_recently"] == 0, ways, pd.NA)
    f["ratio"] = (f["lag"] * 100.0 / (t["end"] - t["start"])).where(t["end"] > t["start"])
    nearing = t["start_slope"] - f["consume_trend"]
    f["loss_eta_s"] = _where(nearing > 0, _positive(t["committed"] - t["start"]) / nearing, pd.NA)
    stood = _latest(
        _first(t["moved_ms"], t["flat_since"]), t["paused_until"], _first(t["committed_ms"], t["behind_since"])
    )
    some = f["lag"].notna()
    f["still"] = _where(none, 0, _where(some, _positive(now - stood), pd.NA))
    f["idle"] = _where(none, 0, _where(some, _positive(now - _latest(stood, t["answered_ms"])), pd.NA))
    f["silent"] = _positive(now - _latest(t["asked_ms"], t["answered_ms"]))
    tries, held = t["held_attempts"], _positive(now - t["held_since_ms"])
    others = (t["waiting"] > 0) | (t["finished"] > 0) | (f["still"] >= limits.stop_ms)
    blocks = (tries >= limits.blocked_attempts) & (held >= limits.stop_ms) & others
    f["poisoned"] = (f["lag"] > 0) & ((tries >= limits.poison_attempts) | blocks)
    silent = (_positive(now - t["succeeded_ms"]) >= limits.all_fail_ms).fillna(True)
    f["none_succeeds"] = (f["lag"] > 0) & (t["failing"] > 1) & silent
    f["growing"] = (
        (now - t["growing_since"] >= limits.growing_ms)
        & (t["grown"] > limits.dead_band * _positive(t["grown_produced"]))
        & (t["grown"] > 0)
        & (f["unfinished"] > limits.floor_messages)
        & (f["unfinished"] > t["peak_before"]).fillna(True)
    )
    f["rewound"] = _positive(t["peak_committed"] - t["committed"])
    return f


def _beside_others(t: pd.DataFrame, limits: Any) -> pd.DataFrame:
    """Return whether each queue stands out of the other queues of its group and topic, in the same round."""
    moment = [t["group"], t["topic"], t["round"]]
    stands = pd.Series(False, index=t.index)
    for name in ("lag", "produce_slope"):
        own = t[name].astype("Float64").astype(float)
        others = own.groupby(moment).transform("count") - own.notna()
        mean = (own.groupby(moment).transform("sum") - own.fillna(0)) / others
        squares = ((own**2).groupby(moment).transform("sum") - (own**2).fillna(0)) / others
        stands |= (own > mean + 2 * np.sqrt((squares - mean**2).clip(lower=0))) & (own > 2 * mean)
    enough = t["lag"].groupby(moment).transform("count") >= limits.queues_min
    return pd.DataFrame({"hot": stands & enough & (t["lag"] > limits.floor_messages)})


def _verdicts(t: pd.DataFrame, limits: Any) -> pd.DataFrame:
    """Return status and cause of each row."""
    now, zero = t["time_ms"], t["lag"] == 0
    behind, rests, enough = t["lag"] > 0, t["paused"], t["readable"] >= limits.samples_min
    fresh = pd.Series(True, index=t.index, dtype="boolean")
    stop, floor = limits.stop_ms, limits.floor_messages
    never_asked = t["asked_ms"].isna() & t["answered_ms"].isna() & t["moved_ms"].isna()
    untouched = never_asked & (t["committed"] <= t["start"]).fillna(True) & (t["in_flight"] == 0)
    small = _surely(t["unfinished"] <= floor, t["high"] <= limits.floor_ms)
    band = limits.dead_band * _positive(t["produce_slope"])
    rises = (t["velocity"] > band) & (t["least_unfinished"] > floor)
    falls = t["velocity"] + band < 0
    late = _surely(_first(t["age"], t["low"]) > limits.target_ms, t["unfinished"] > limits.target_messages)
    lately = [now - t[name] < stop for name in ("moved_ms", "answered_ms", "paused_until")]
    works = _surely(zero, t["in_flight"] > 0, t["high"] < stop, *lately)
    known = t["lag"].notna()
    kept = t["end"] > t["start"]
    in_time = (_first(t["age"], t["high"]) <= limits.target_ms) & (t["unfinished"] <= limits.target_messages).fillna(
        True
    )
    short = (~enough & ~rests) | (~works & t["moved_ms"].isna() & known & ~rests)
    short |= ~small & t["velocity"].isna() & known & ~rests
    statuses = {
        "DATA_LOSS": t["lost_recently"] > 0,
        "AHEAD": t["committed"] > t["end"],
        "REWIND": t["rewound"] > 0,
        "BLOCKED": ~rests & fresh & t["poisoned"],
        "STOP": ~rests & ~untouched & behind & (t["in_flight"] == 0) & (t["idle"] >= stop),
        "NOT_CONSUMED": ~rests & untouched & enough & kept
        & (now - _first(t["start_ms"], t["behind_since"]) >= stop) & (now - t["paused_until"] >= stop).fillna(True),
        "STALL": ~rests & behind & (t["still"] >= stop) & (now - t["answered_ms"] < stop),
        "UNKNOWN": t["start"].isna() | t["end"].isna(),
        "RETENTION_RISK": ((t["ratio"] >= limits.retention_percent) & (t["start"] > 0) & (t["lag"] > floor))
        | ((t["loss_eta_s"] < limits.loss_eta_limit_s) & (t["lag"] > floor)),
        "WARN": ~rests & enough & known & ~small & (rises | t["growing"] | (late & ~falls)),
        "NO_OFFSET": t["committed"].isna(),
        "INCOMPLETE": short,
        "CATCHING_UP": ~rests & ~small & late & falls,
        "PAUSED": rests,
        "OK": ~rests & enough & known & t["unfinished"].notna() & works & (small | (in_time & ~rises & ~t["growing"])),
    }  # fmt: skip
    still = t["still"] >= stop
    asks = t["silent"] < limits.absent_ms
    surge = (t["produce_second"] > t["produce_first"] * limits.surge) & (t["produce_second"] > t["consume_second"])
    causes = {
        "topic_deleted": (t["lost_recently"] > 0) & (t["base"] > t["earlier_committed"]),
        "paused": rests,
        "rewind": t["rewound"] > 0,
        "sink_waits": behind & t["sink_since_ms"].notna(),
        "push_target_failing": t["pushing"] & behind
        & (t["none_succeeds"] | (still & ((t["retrying"] > 1) | (t["idle"] >= stop)))),
        "all_fail": t["none_succeeds"],
        "poison_message": t["poisoned"],
        "unanswered": behind & still & (_positive(now - t["out_since_ms"]) >= stop),
        "no_consumer": ~t["pushing"] & (behind | t["committed"].isna()) & (t["holders"] == 0) & (t["in_flight"] == 0)
        & (t["silent"] >= limits.absent_ms).fillna(True),
        "operator_reset": t["reset_ms"].notna() & behind,
        "rate_limit": t["limited"] & behind,
        "hot_queue": t["hot"],
        "producer_surge": behind & surge
        & (t["consume_second"] >= t["consume_first"] * (t["produce_first"] / t["produce_second"])),
        "slow_consumer": behind & ((t["holders"] > 0) | (t["in_flight"] > 0) | asks)
        & ((t["velocity"] > 0) | (_first(t["age"], t["low"]) > limits.target_ms) | t["growing"] | still),
    }  # fmt: skip
    status = _first_that_holds(statuses, "UNKNOWN", t.index)
    cause = _first_that_holds(causes, "", t.index).mask(status.isin(NO_CAUSE), "")
    return pd.DataFrame({"status": status, "cause": cause}, index=t.index)


def _surely(*conditions: pd.Series) -> pd.Series:
    """Return whether one of them holds for sure: not where it is not known."""
    return pd.concat(conditions, axis=1).astype("boolean").fillna(False).any(axis=1)


def _first_that_holds(conditions: dict[str, pd.Series], other: str, index: Any) -> pd.Series:
    holds = [each.fillna(False).to_numpy(dtype=bool) for each in conditions.values()]
    return pd.Series(np.select(holds, list(conditions), other), index=index)


# A window: shares and incidents


def objective(rows: pd.DataFrame, resets: Any, limits: Any, from_ms: int, to_ms: int) -> dict[str, Any]:
    """Return the shares of a group over the judged samples of a window."""
    total = dict.fromkeys(("samples", "kept", "ended", "ended_kept", "lost", "known_ms", "over_ms"), 0)
    queues = rows.groupby(QUEUE, sort=False)
    for name, queue in queues:
        sums = _kept(queue, resets(name), limits, from_ms, to_ms)
        for key in total:
            total[key] = max(total[key], sums[key]) if key == "over_ms" else total[key] + sums[key]
    return {
        "samples": total["samples"],
        "samples_share": total["kept"] / total["samples"],
        "messages_share": total["ended_kept"] / total["ended"] if total["ended"] else None,
        "over_seconds": total["over_ms"] / 1000,
        "coverage": total["known_ms"] / (queues.ngroups * (to_ms - from_ms)),
        "lost": total["lost"],
    }


def _kept(queue: pd.DataFrame, resets: Sequence[int], limits: Any, from_ms: int, to_ms: int) -> dict[str, int]:
    """Return the sums of one queue: of the time between two samples counts what the first of them says."""
    read, known = queue["start"].notna(), queue["status"] != "UNKNOWN"
    late = (_first(queue["age"], queue["low"]) > limits.target_ms).fillna(False).astype(bool) & known
    kept = (_first(queue["age"], queue["high"]) <= limits.target_ms).fillna(False).astype(bool) & known
    times = queue["time_ms"]
    passed = times.diff().where(times.diff() <= limits.stale_ms)
    lost = _positive(queue["expired"].where(read) - queue["expired"].where(read).ffill().shift()).fillna(0)
    position = queue["committed"].mask((queue["committed"] < queue["start"]).fillna(False), queue["start"])
    finished = position.diff() - lost - _positive(queue["skipped"].diff())
    jumped = np.zeros(len(queue), dtype=bool)
    places = np.searchsorted(times.to_numpy(dtype=np.int64), list(resets))
    jumped[places[places < len(queue)]] = True
    finished = _positive(finished).where(passed.notna() & ~jumped).fillna(0)
    were_late, were_kept = late.shift(fill_value=False), kept.shift(fill_value=False)
    waits = queue["lag"].iloc[-1] if late.iloc[-1] else 0
    ends = [(times.iloc[0] - from_ms, 0), (to_ms - times.iloc[-1], -1)]
    beside = sum(gap for gap, at in ends if gap <= limits.stale_ms and (late | kept).iloc[at])
    return {
        "samples": len(queue),
        "kept": int(kept.sum()),
        "ended": int(finished.sum() + lost.sum() + waits),
        "ended_kept": int(finished[were_kept].sum()),
        "lost": int(lost.sum()),
        "known_ms": int(passed[were_kept | were_late].sum() + beside),
        "over_ms": int(passed[were_late].sum()),
    }


def incidents(rows: pd.DataFrame, limits: Any, left_ms: int | None = None) -> list[dict[str, Any]]:
    """Return the incidents of one queue over the judged samples of a window."""
    found: list[dict[str, Any]] = []
    running: list[Any] = []

    def end(at: int | None) -> None:
        status = min((each["status"] for each in running), key=lambda each: RANKS[each], default="INCOMPLETE")
        if status != "INCOMPLETE":
            held: dict[str, float] = {}
            for each in running:
                if each["status"] == status and each["cause"]:
                    held[each["cause"]] = held.get(each["cause"], 0) + each["speaks_ms"]
            lags = [each["lag"] for each in running if not pd.isna(each["lag"])]
            ages = [each["high"] if pd.isna(each["age"]) else each["age"] for each in running]
            age = max((each for each in ages if not pd.isna(each)), default=None)
            cause = max(held, key=held.__getitem__, default="")
            found.append({
                "from_ms": running[0]["time_ms"], "to_ms": at, "status": status, "cause": cause,
                "peak_lag": max(lags, default=None), "peak_seconds": None if age is None else age / 1000,
            })  # fmt: skip
        running.clear()

    passed = -rows["time_ms"].diff(-1)
    for row in rows.assign(speaks_ms=passed.where(passed <= limits.stale_ms, 0).fillna(0)).to_dict("records"):
        if running and row["time_ms"] - running[-1]["time_ms"] > limits.stale_ms:
            end(running[-1]["time_ms"])
        if LEVELS[row["status"]] == "OK":
            end(row["time_ms"])
        else:
            running.append(row)
    end(left_ms)
    return found


def at_the_end(row: Any, limits: Any, to_ms: int) -> str:
    """Return the status of a queue's last sample at the window's end: nothing is known of now where it is old."""
    holds = row["status"] in {"DATA_LOSS", "AHEAD", "REWIND"}
    return "UNKNOWN" if to_ms - row["time_ms"] > limits.stale_ms and not holds else str(row["status"])


def waiting(rows: pd.DataFrame, limits: Any) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return status, scheduled, overdue, lateness (ms), and the worst of both, of what waits by its own time."""
    found: dict[tuple[str, int], tuple[Any, ...]] = {}
    for (kind, level), some in rows.groupby(["kind", "level"]):
        late = (some["time_ms"] - some["oldest_due_ms"]).clip(lower=0).where(some["overdue"] > 0).fillna(0)
        last, lateness = some.iloc[-1], int(late.iloc[-1])
        if not last["pending"] and not some["overdue"].any():
            continue
        status = "LATE" if lateness >= limits.late_ms else "IN_TIME"
        if kind == "half":
            age = last["time_ms"] - last["oldest_ms"]
            status = "UNDECIDED" if last["pending"] and age is not pd.NA and age >= limits.undecided_ms else "IN_TIME"
        scheduled, overdue = max(last["pending"] - last["overdue"], 0), last["overdue"]
        peaks = int(some["overdue"].max()), None if kind == "half" else int(late.max())
        found[kind, level] = (status, scheduled, overdue, None if kind == "half" else lateness, *peaks)
    return found


FLOATS = {"matched"}
TEXTS = {"group", "topic", "kind", "held_key", "held_reason", "out_client", "sink_server", "sink_reason"}
FLAGS = {"paused", "limited", "pushing"}


def table_of(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return samples as a table of nullable types."""
    table = pd.DataFrame(rows)
    types = {
        name: "Float64" if name in FLOATS else "object" if name in TEXTS else "boolean" if name in FLAGS else "Int64"
        for name in table.columns
    }
    return table.astype(types)
