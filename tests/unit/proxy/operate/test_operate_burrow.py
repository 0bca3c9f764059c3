"""Answers in Burrow's shape: each field as it stands there, statuses by its rules."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.runtime.steps import run_now
from lag.rules.burrow import BurrowStatus, group_status, judge
from lag.samples import QueueSample
from proxy.operate.burrow import Queues, single, status_of, topics_of


def samples(*commits: tuple[int, int], end: int | None = None) -> list[QueueSample]:
    """Return samples that saw a commit each, 10 s apart: offset and lag; `end` is the last one's, read later."""
    found = [
        QueueSample(time_ms=number * 10_000, moved_ms=number * 10_000, start=0, end=offset + lag, committed=offset)
        for number, (offset, lag) in enumerate(commits, start=1)
    ]
    if end is not None:
        last = found[-1]
        found.append(
            QueueSample(time_ms=last.time_ms + 1, moved_ms=last.moved_ms, start=0, end=end, committed=last.committed)
        )
    return found


def status(queues: Queues | None, now_ms: int, *, show_all: bool = True) -> dict[str, Any]:
    """Return the status of the group `billing`."""
    return run_now(status_of("prod", "billing", queues, now_ms, show_all=show_all))


def test_group_has_the_fields_of_burrow() -> None:
    """Names, nulls and sums; the partition with the most lag stands apart."""
    queues = {("orders", 0): samples((5, 2), (7, 3)), ("orders", 1): samples(*[(9, 0)] * 10), ("audit", 0): []}
    found = status(queues, 21_000)
    assert found == {
        "cluster": "prod",
        "group": "billing",
        "status": "WARN",
        "complete": 0.33333334,
        "partition_count": 3,
        "totallag": 3,
        "maxlag": found["partitions"][1],
        "partitions": [
            {
                "topic": "audit",
                "partition": 0,
                "owner": "",
                "client_id": "",
                "status": "OK",
                "start": None,
                "end": None,
                "current_lag": 0,
                "complete": 0,
            },
            {
                "topic": "orders",
                "partition": 0,
                "owner": "",
                "client_id": "",
                "status": "WARN",
                "start": {"offset": 5, "timestamp": 10_000, "lag": 2},
                "end": {"offset": 7, "timestamp": 20_000, "lag": 3},
                "current_lag": 3,
                "complete": 0.2,
            },
            found["partitions"][2],
        ],
    }
    assert found["partitions"][2]["complete"] == 1


def test_status_lists_what_is_not_ok_and_lag_lists_all() -> None:
    """As /status and /lag do; count, sum and worst are of all partitions in both."""
    queues = {("orders", 0): samples((5, 2), (7, 3)), ("orders", 1): samples((9, 0))}
    few, every = status(queues, 21_000, show_all=False), status(queues, 21_000)
    assert [each["partition"] for each in few["partitions"]] == [0]
    assert [each["partition"] for each in every["partitions"]] == [0, 1]
    assert {**few, "partitions": []} == {**every, "partitions": []}


def test_group_that_is_not_there_is_notfound() -> None:
    """Whole, without partitions."""
    found = status(None, 0)
    assert (found["status"], found["complete"], found["partitions"], found["maxlag"]) == ("NOTFOUND", 1, [], None)
    empty = status({}, 0)
    assert (empty["status"], empty["complete"]) == ("OK", 0)


def test_current_lag_is_to_the_newest_end() -> None:
    """And not to that of the last commit."""
    assert status({("orders", 0): samples((5, 2), end=20)}, 11_000)["totallag"] == 15


@pytest.mark.parametrize("seed", range(20))
def test_statuses_are_those_of_the_rules(seed: int) -> None:
    """On random windows; the rules are tested against a second writing of them."""
    rng = random.Random(seed)
    for _ in range(50):
        queues = {}
        for queue in range(rng.randint(1, 4)):
            offset, commits = 0, []
            for _ in range(rng.randint(1, 12)):
                offset = max(0, offset + rng.choice((-3, 0, 0, 1, 2, 5)))
                commits.append((offset, rng.choice((0, 1, 1, 2, 4))))
            queues["orders", queue] = samples(*commits)
        now_ms = rng.randint(1, 400_000)
        found = status(queues, now_ms)
        wanted = [judge(each, now_ms // 1000 * 1000) for each in queues.values()]
        assert [each["status"] for each in found["partitions"]] == [each.name for each in wanted]
        assert found["status"] == group_status([BurrowStatus.OK, *wanted]).name


def test_consumer_detail_has_a_place_for_each_commit_of_the_window() -> None:
    """Null where none was seen yet, oldest first; the list's places are the partitions' numbers."""
    found = topics_of({("orders", 2): samples((5, 2), (7, 3), end=12)})
    assert list(found) == ["orders"]
    first, second, third = found["orders"]
    assert first == second == {"offsets": [], "owner": "", "client_id": "", "current-lag": 0}
    assert third["current-lag"] == 5
    assert third["offsets"][:8] == [None] * 8
    assert third["offsets"][8:] == [
        {"offset": 5, "timestamp": 10_000, "lag": 2},
        {"offset": 7, "timestamp": 20_000, "lag": 3},
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (0.0, "0"), (2 / 3, "0.6666667"), (0.1, "0.1"), (1 / 7, "0.14285715")]
)
def test_shares_have_single_precision(value: float, text: str) -> None:
    """As Go writes a float32."""
    assert str(single(value)) == text
