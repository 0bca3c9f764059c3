"""Order queue and order keys."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.upstream_world import World
from upstream.job import OrderKey, UpstreamJob
from upstream.state import JobState
from upstream.waiting.order import OrderQueue, compile_path, key_text

WORLD = World()
SUBSCRIPTION = WORLD.group._slots["t"].subscription
GROUP_QUEUE = next(iter(WORLD.group.queues_by_topic["t"].values()))


def job(offset: int, key: OrderKey | None) -> UpstreamJob:
    """Make a job that only the order queue looks at."""
    assert SUBSCRIPTION is not None
    return UpstreamJob(SUBSCRIPTION, GROUP_QUEUE, offset, offset * 100, 100, key)


@given(
    keys=st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "c", "Aa", "BB"])), max_size=60),
    choices=st.lists(st.integers(0, 10**6), min_size=200, max_size=200),
    late=st.sets(st.integers(0, 59)),
)
def test_order_queue_runs_one_per_key_in_order(keys: list[str | None], choices: list[int], late: set[int]) -> None:
    """Whatever finishes when, and whatever is finished out of turn: per key never two run, and in order (promise 3)."""
    queue = OrderQueue()
    running: deque[UpstreamJob] = deque()
    jobs = [job(offset, key) for offset, key in enumerate(keys)]
    done: list[int] = []
    fed = 0
    for choice in choices:
        if fed < len(jobs) and choice % 3:
            batch = jobs[fed : fed + choice % 7]
            queue.submit_many(batch, running.append)
            fed += len(batch)
        elif running:
            running.rotate(choice % len(running))
            finished = running.popleft()
            finished.state = JobState.FINISHED
            done.append(finished.offset)
            if finished.key is not None and (following := queue.release(finished)) is not None:
                running.append(following)
        for each in jobs[:fed]:
            if each.offset in late and each.state is JobState.WAITING:
                each.state = JobState.FINISHED
                late.discard(each.offset)
        active = [each.key for each in running if each.key is not None]
        assert len(active) == len(set(active))
    while running:
        finished = running.popleft()
        finished.state = JobState.FINISHED
        done.append(finished.offset)
        if finished.key is not None and (following := queue.release(finished)) is not None:
            running.append(following)
    for key in {each for each in keys if each}:
        in_order = [offset for offset in done if keys[offset] == key]
        assert in_order == sorted(in_order)
    assert queue.waiting == 0
    assert len(queue) == 0
    assert all(each.state is JobState.FINISHED for each in jobs[:fed])


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("$.a", {"a": "x"}, "x"),
        ("$['case:concept:name']", {"case:concept:name": "case-1"}, "case-1"),
        ("$.a.b['c d'][0]", {"a": {"b": {"c d": [7]}}}, "7"),
        ('$["a"].a', {"a": {"a": 1}}, "1"),
        ("$.a.a", {"a": "text"}, None),
        ("$.a[1]", {"a": [1]}, None),
        ("$.a[0]", {"a": "text"}, None),
        ("$.a", {}, None),
        ("$.a", {"a": None}, None),
        ("$.a", {"a": {"b": 1}}, None),
        ("$.a", {"a": [1]}, None),
        ("$.a[-1]", {"a": [1, 2]}, "2"),
        ("$['it\\'s']", {"it's": 5}, "5"),
        ("$.ключ", {"ключ": "v"}, "v"),
        ("$.a", [1], None),
    ],
)
def test_path_getter_finds_text_or_nothing(path: str, data: Any, expected: str | None) -> None:
    """Names, bracketed names and indexes; missing, null and composite values are no key (D14)."""
    assert compile_path(path)(data) == expected


def test_number_and_its_text_are_one_key() -> None:
    """Keys compare by their text: 1 and "1" are one key, true is not "True" (D14)."""
    assert key_text(1) == key_text("1") == "1"
    assert key_text(True) == "true"
    assert key_text(1.5) == "1.5"
    assert key_text(12345678901234567890123) == "12345678901234567890123"
    assert key_text(None) is None
