"""Samples as hypothesis draws them, and a fleet of queues that moves as consumers do."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from lag.journal.columns import Key
from lag.samples import EventKind, LagEvent, QueueSample, ScheduledSample

NOW_MS = 1_770_000_000_000

_names = st.sampled_from(["orders", "orders-billing", "%RETRY%g", "t", "größe"])
_counts = st.one_of(st.integers(0, 3), st.integers(-(1 << 61), 1 << 61))
_offsets = st.none() | st.integers(0, 10) | st.integers(0, 1 << 61)
_moments = st.none() | st.integers(NOW_MS - 100_000, NOW_MS + 100_000) | st.integers(-(1 << 61), 1 << 61)
_texts = st.none() | st.sampled_from(["customer-7", "timeout"]) | st.text(max_size=20)

keys: st.SearchStrategy[Key] = st.tuples(_names, _names, st.integers(0, 5))
moments = st.integers(NOW_MS - 5, NOW_MS + 50)
queue_samples = st.builds(
    QueueSample,
    time_ms=moments,
    start=_offsets,
    end=_offsets,
    committed=_offsets,
    finished=_counts,
    expired=_counts,
    started=_offsets,
    in_flight=_counts,
    waiting=_counts,
    retrying=_counts,
    dead_letters=_counts,
    start_ms=_moments,
    committed_ms=_moments,
    started_ms=_moments,
    end_ms=_moments,
    moved_ms=_moments,
    answered_ms=_moments,
    asked_ms=_moments,
    holders=_counts,
    held_key=_texts,
    held_since_ms=_moments,
    held_offset=_offsets,
    held_attempts=_counts,
    held_reason=_texts,
    paused=st.booleans(),
    limited=st.booleans(),
    pushing=st.booleans(),
    matched=st.none() | st.floats(0.0, 1.0),
    skipped=_counts,
    failing=_counts,
    succeeded_ms=_moments,
    out_offset=_offsets,
    out_client=_texts,
    out_since_ms=_moments,
    sink_server=_texts,
    sink_reason=_texts,
    sink_since_ms=_moments,
    base=_offsets,
)
scheduled_samples = st.builds(
    ScheduledSample,
    time_ms=moments,
    kind=st.sampled_from(["timer", "delay", "half"]),
    topic=_names | st.just(""),
    level=st.integers(0, 18),
    pending=_counts,
    overdue=_counts,
    oldest_due_ms=_moments,
    oldest_ms=_moments,
)
events = st.builds(
    LagEvent,
    time_ms=moments,
    kind=st.sampled_from(EventKind),
    group=_names | st.just(""),
    topic=_names | st.just(""),
    queue=st.integers(-1, 20),
    detail=st.text(max_size=20),
)


def fleet(seed: int, queues: int, snapshots: int, moving: float = 0.3) -> list[list[tuple[Key, QueueSample]]]:
    """Return snapshots, 10 s apart, of queues of which a share moves; those are always the same."""
    random = Random(seed)
    states = [(random.randrange(1 << 32), random.randrange(1000), random.random() < moving) for _ in range(queues)]
    found = []
    for number in range(snapshots):
        rows: list[tuple[Key, QueueSample]] = []
        for index, (end, lag, moves) in enumerate(states):
            # Read in slices: a few queues share a millisecond.
            now = NOW_MS + number * 10_000 + index // 30
            read = now if moves else NOW_MS - 50_000
            if moves:
                end += random.randrange(2000)  # noqa: PLW2901
                lag = max(0, lag + random.randrange(-20, 20))  # noqa: PLW2901
            states[index] = (end, lag, moves)
            sample = QueueSample(
                time_ms=now,
                start=0,
                end=end,
                committed=end - lag,
                started=end - lag + min(lag, 16),
                in_flight=min(lag, 16),
                start_ms=NOW_MS - 86_400_000,
                committed_ms=read - lag * 10 if lag else None,
                started_ms=read - lag * 9 if lag else None,
                end_ms=read - 3,
                moved_ms=read - 5,
                answered_ms=read - 5,
                asked_ms=read - 2,
                holders=2,
            )
            rows.append((("orders-billing", f"orders-{index // 8}", index % 8), sample))
        found.append(rows)
    return found
