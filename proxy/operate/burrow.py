"""What Burrow would say of a node's groups: plain values in the shape of its HTTP answers, statuses by its rules.

A queue is a partition, its commits those that the node's samples of the last minutes saw (`lag.rules.burrow`). Nothing
here is ours to change: names, nulls and the order of fields are Burrow's.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from lag.rules.burrow import DEFAULTS, BurrowStatus, Commit, commits_of, group_status, judge
from lag.samples import QueueSample

Queues = Mapping[tuple[str, int], Sequence[QueueSample]]
"""By topic and number of the queue: its samples, oldest first."""
_FLOAT = struct.Struct("<f")


def topics_of(queues: Queues) -> dict[str, list[dict[str, Any]]]:
    """Return the commits of a group: by topic a list whose places are the partitions' numbers."""
    found: dict[str, list[dict[str, Any]]] = {}
    for (topic, queue), samples in sorted(queues.items()):
        partitions = found.setdefault(topic, [])
        while len(partitions) < queue:
            partitions.append(_partition([], 0))
        commits = commits_of(samples)
        partitions.append(_partition(commits, _current_lag(samples, commits)))
    return found


def status_of(
    cluster: str, group: str, queues: Queues | None, now_ms: int, *, show_all: bool
) -> Generator[None, None, dict[str, Any]]:
    """Judge a group in steps, a partition each.

    Args:
        cluster: Its cluster, as it was asked for.
        group: Its name, likewise.
        queues: Its samples; None: there is no such cluster or group.
        now_ms: The moment that is judged; the clock that Burrow looks at has whole seconds.
        show_all: Whether partitions that are OK are listed too.
    """
    if queues is None:
        return _status(cluster, group, BurrowStatus.NOTFOUND, 1.0, [], None)
    partitions: list[dict[str, Any]] = []
    statuses = [BurrowStatus.OK]
    for place, samples in sorted(queues.items()):
        status, partition = _judged(place, samples, now_ms)
        statuses.append(status)
        partitions.append(partition)
        yield
    whole = sum(each["complete"] == 1 for each in partitions)
    complete = whole / len(partitions) if partitions else 0.0
    worst = max(partitions, key=lambda each: each["current_lag"], default=None)
    found = _status(cluster, group, group_status(statuses), complete, partitions, worst)
    if not show_all:
        found["partitions"] = [each for each in partitions if each["status"] != BurrowStatus.OK.name]
    return found


def _judged(place: tuple[str, int], samples: Sequence[QueueSample], now_ms: int) -> tuple[BurrowStatus, dict[str, Any]]:
    commits = commits_of(samples)
    # A partition without commits is OK there, and not complete.
    status = judge(samples, now_ms // 1000 * 1000) if commits else BurrowStatus.OK
    topic, queue = place
    return status, {
        "topic": topic,
        "partition": queue,
        "owner": "",
        "client_id": "",
        "status": status.name,
        "start": _commit(commits[0]) if commits else None,
        "end": _commit(commits[-1]) if commits else None,
        "current_lag": _current_lag(samples, commits),
        "complete": single(len(commits) / DEFAULTS.intervals),
    }


def _status(  # noqa: PLR0917 - in the order of the fields
    cluster: str,
    group: str,
    status: BurrowStatus,
    complete: float,
    partitions: list[dict[str, Any]],
    worst: dict[str, Any] | None,
) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "group": group,
        "status": status.name,
        "complete": single(complete),
        "partitions": partitions,
        "partition_count": len(partitions),
        "maxlag": worst,
        "totallag": sum(each["current_lag"] for each in partitions),
    }


def _partition(commits: Sequence[Commit], lag: int) -> dict[str, Any]:
    missing = DEFAULTS.intervals - len(commits) if commits else 0
    return {
        "offsets": [*[None] * missing, *map(_commit, commits)],
        "owner": "",
        "client_id": "",
        "current-lag": lag,
    }


def _commit(commit: Commit) -> dict[str, int]:
    return {"offset": commit.offset, "timestamp": commit.time_ms, "lag": commit.lag}


def _current_lag(samples: Sequence[QueueSample], commits: Sequence[Commit]) -> int:
    end = next((sample.end for sample in reversed(samples) if sample.end is not None), 0)
    return max(0, end - commits[-1].offset) if commits else 0


def single(value: float) -> float:
    """Return a number with the digits that single precision has, as Burrow counts and writes shares: 0.33333334."""
    (near,) = _FLOAT.unpack(_FLOAT.pack(value))
    for digits in range(1, 10):
        text = float(f"{near:.{digits}g}")
        if _FLOAT.unpack(_FLOAT.pack(text))[0] == near:
            return int(text) if text.is_integer() else text
    return float(near)
