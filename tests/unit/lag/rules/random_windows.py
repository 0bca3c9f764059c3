"""Random windows: anything that a node could have recorded, and much that it could not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from lag.samples import QueueSample
from tests.unit.lag.rules.cases import BEGIN

_offsets = st.integers(0, 300)
_counts = st.sampled_from([0, 0, 0, 1, 3, 20])
_ages = st.none() | st.sampled_from([0, 1, 500, 5_000, 61_000, 170_000, 180_000, 181_000, 4_000_000])


@st.composite
def windows(draw: st.DrawFn) -> list[QueueSample]:
    """Return samples of one queue, oldest first."""
    shape = draw(st.sampled_from(["steady", "steady", "wild"]))
    count = draw(st.integers(1, 12))
    now, found = BEGIN, []
    start, end, committed = sorted(draw(st.tuples(_offsets, _offsets, _offsets)))
    committed, end = end, committed
    more, done = draw(st.integers(0, 30)), draw(st.integers(0, 30))
    steady: dict[str, Any] = {
        "holders": draw(st.integers(0, 2)),
        "pushing": draw(st.booleans()),
        "matched": draw(st.none() | st.sampled_from([0.0, 0.25, 1.0])),
        "asked_ms": draw(_ages),
    }
    for _ in range(count):
        now += draw(st.sampled_from([10_000, 10_000, 10_000, 9_876, 40_000, 200_000]))
        if shape == "wild":
            start, end, committed = draw(_offsets), draw(_offsets), draw(_offsets)
        else:
            end += more
            committed = min(end, committed + done)
        found.append(_sample(draw, now, (start, end, committed), steady))
    return found


def _sample(draw: st.DrawFn, now: int, offsets: tuple[int, int, int], steady: dict[str, Any]) -> QueueSample:
    start, end, committed = offsets

    def ago(age: int | None) -> int | None:
        return None if age is None else now - age

    kept: dict[str, Any] = {name: ago(value) if name.endswith("_ms") else value for name, value in steady.items()}
    if not draw(st.integers(0, 9)):
        return QueueSample(time_ms=now, **kept)
    lag = end > committed
    return QueueSample(
        time_ms=now,
        start=start,
        end=end,
        committed=draw(st.sampled_from([committed] * 9 + [None])),
        finished=draw(_counts),
        expired=draw(st.sampled_from([0] * 9 + [5])),
        started=draw(st.none() | st.just(min(end, committed + 2))),
        in_flight=draw(_counts),
        waiting=draw(_counts),
        retrying=draw(_counts),
        start_ms=ago(draw(_ages)),
        committed_ms=ago(draw(_ages)) if lag else None,
        started_ms=ago(draw(_ages)),
        end_ms=ago(draw(_ages)),
        moved_ms=ago(draw(_ages)),
        answered_ms=ago(draw(_ages)),
        held_since_ms=ago(draw(_ages)),
        held_offset=committed,
        held_attempts=draw(_counts),
        paused=draw(st.sampled_from([False] * 9 + [True])),
        limited=draw(st.booleans()),
        **kept,
    )
