"""Queues as no node would record them, by the hundred."""

from __future__ import annotations

from random import Random
from typing import Any

from lag.samples import QueueSample
from tests.unit.lag.rules.cases import BEGIN

_AGES = (None, 0, 1, 500, 5_000, 31_000, 170_000, 181_000, 4_000_000)


def wild_queue(random: Random) -> list[QueueSample]:
    """Return samples of one queue, oldest first."""
    now, found = BEGIN, []
    start, committed, end = sorted(random.choices(range(300), k=3))
    more, done, moods = random.randint(0, 30), random.randint(0, 30), random.random()
    odd = random.random() < 0.2
    for _ in range(random.randint(1, 15)):
        now += random.choice([10_000, 10_000, 10_000, 10_123, 40_000, 200_000])
        if random.random() < 0.03 or odd:
            start, committed, end = (random.randint(0, 300) for _ in range(3))
        end += more
        committed = committed if moods < 0.3 else min(end, committed + done)
        found.append(_sample(random, now, (start, committed, end), moods))
    return found


def _sample(random: Random, now: int, offsets: tuple[int, int, int], moods: float) -> QueueSample:
    start, committed, end = offsets

    def ago(chances: tuple[int | None, ...] = _AGES) -> int | None:
        age = random.choice(chances)
        return None if age is None else now - age

    values: dict[str, Any] = {"holders": random.randint(0, 2), "pushing": moods > 0.8, "paused": random.random() < 0.05}
    if random.random() < 0.1:
        return QueueSample(time_ms=now, **values)
    return QueueSample(
        time_ms=now,
        start=start,
        end=end,
        committed=None if random.random() < 0.1 else committed,
        finished=random.choice([0, 0, 3, 500]),
        expired=random.choice([0] * 30 + [5]),
        started=random.choice([None, committed, end]),
        in_flight=random.choice([0, 0, 3]),
        waiting=random.choice([0, 3]),
        retrying=random.choice([0, 1, 2]),
        start_ms=ago(),
        committed_ms=ago((None, None, None, 0, 20_000, 40_000, 500_000)),
        started_ms=ago(),
        end_ms=ago(),
        moved_ms=ago((None, 0, 9_000, 170_000, 400_000)) if moods > 0.2 else ago((None, 4_000_000)),
        answered_ms=ago((None, None, 9_000, 400_000)),
        asked_ms=ago((None, 9_000)),
        held_offset=committed,
        held_since_ms=ago((None, None, 5_000, 400_000)),
        held_attempts=random.choice([0, 1, 4, 5]),
        limited=random.random() < 0.1,
        matched=random.choice([None, 0.0, 0.25, 1.0]),
        skipped=random.choice([0] * 20 + [7]),
        failing=random.choice([0, 0, 0, 1, 2]),
        succeeded_ms=ago((None, 5_000, 61_000)),
        out_offset=committed,
        out_client="c",
        out_since_ms=ago((None, None, 90_000, 400_000)),
        sink_server="s",
        base=random.choice([0] * 20 + [None, 7]),
        sink_since_ms=ago((None, None, None, 20_000)),
        **values,
    )
