"""Judges a node: the one function that page, JSON, commands, readiness, metrics and the webhook ask.

The rules of `of_node`, `of_clients` and `of_groups` are over a state, or over the last minute, so that a finding ends
with its condition. `proxy.operate.attention.judgement` joins them with the verdicts of the lag rules.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from broker.runtime.steps import run_now
from lag.rules.statuses import worst
from lag.verdicts.changes import GroupVerdict
from proxy.operate.attention import of_clients, of_groups, of_node
from proxy.operate.attention.judgement import LEVELS, Judgement, joining
from proxy.operate.live_node import LiveNode
from proxy.operate.views.findings import Finding
from proxy.operate.views.lag import LagQueue
from upstream.views import GroupView

DETAILS_MAX = 100
"""Deliveries and keys of a group that are enough for the rules: more are counted only."""
KEEP_SECONDS = 1.0
"""How long a judgement is good enough for a leisurely caller."""
_GROUPS_AT_ONCE, _ROWS_AT_ONCE = 16, 512


def judged(node: LiveNode) -> Judgement:
    """Judge at once, as `judging` does in steps."""
    return run_now(judging(node))


def judging(
    node: LiveNode, *, leisurely: bool = False, groups: Sequence[GroupView] | None = None
) -> Generator[None, None, Judgement]:
    """Judge a node and all its groups, in steps of about a millisecond.

    Args:
        node: The node.
        leisurely: Whether a judgement of the last second is good enough, and with very many queues older lag verdicts
            (`proxy.recording.judging`); for callers that ask again and again.
        groups: Views of all groups with DETAILS_MAX details, where the caller has just read them.
    """
    now = node.clock.monotonic()
    if leisurely and node.last_judgement is not None and now - node.last_judgement[0] < KEEP_SECONDS:
        return node.last_judgement[1]
    lag = yield from node.lag_queues(leisurely=leisurely)
    if groups is None:
        groups = yield from node.groups_in_steps(details_max=DETAILS_MAX)
    yield
    troubles, now_ms = node.troubles(), node.clock.wall_ms()
    yield
    found = [*of_node.findings(node, troubles), *of_clients.findings(troubles)]
    for number, group in enumerate(groups, start=1):
        found += yield from of_groups.findings(group, troubles.risen, now_ms)
        if number % _GROUPS_AT_ONCE == 0:
            yield
    dated = yield from _with_since(node, found, now_ms)
    made = yield from joining(lag, dated)
    node.last_judgement = now, made
    return made


def verdicts(
    node: LiveNode, is_wanted: Callable[[str, str], bool], time_ms: int
) -> Generator[None, None, dict[str, GroupVerdict]]:
    """Judge in steps, and return the verdict on each group, and on the node itself by the name "".

    Args:
        node: The node.
        is_wanted: Whether a group's verdict takes a topic into account (`enableAlarm`).
        time_ms: The moment of the verdicts.
    """
    made = yield from judging(node, leisurely=True)
    by_group: dict[str, list[LagQueue]] = {}
    for number, queue in enumerate(made.queues, start=1):
        if is_wanted(queue.group, queue.topic):
            by_group.setdefault(queue.group, []).append(queue)
        if number % _ROWS_AT_ONCE == 0:
            yield
    idle = GroupVerdict(status="OK", since_ms=time_ms)
    found = {name: idle for name in made.lag.empty if is_wanted(name, "")}
    yield
    for number, (name, queues) in enumerate(by_group.items(), start=1):
        found[name] = _of_queues(queues, time_ms)
        if number % _ROWS_AT_ONCE == 0:
            yield
    found[""] = idle
    # The worst comes last, and takes the place of the others.
    for number, finding in enumerate(reversed(made.findings), start=1):
        if number % _ROWS_AT_ONCE == 0:
            yield
        name = finding.group or ""
        before = found.get(name, idle)
        # A webhook that fails cannot be reported by itself.
        if finding.finding == "lag_webhook" or (name and not is_wanted(name, finding.topic or "")):
            continue
        if LEVELS.index(before.level.name) <= LEVELS.index(finding.level):
            found[name] = _of_finding(finding, before, time_ms)
    return found


def _of_queues(queues: Sequence[LagQueue], time_ms: int) -> GroupVerdict:
    status = worst(each.status for each in queues)
    alike = [each for each in queues if each.status == status]
    chosen = max(alike, key=lambda each: (each.lag or -1, each.topic, -each.queue))
    return GroupVerdict(
        status=status,
        since_ms=time_ms,
        queues=len(alike),
        topic=chosen.topic,
        queue=chosen.queue,
        cause=chosen.cause,
        evidence=chosen.evidence,
        advice=chosen.advice,
        lag=chosen.lag,
        time_lag_ms=chosen.time_lag_low_ms,
    )


def _of_finding(finding: Finding, before: GroupVerdict, time_ms: int) -> GroupVerdict:
    """Return the verdict that a finding is; `before` is that on the queues of its group."""
    status = finding.status or finding.finding
    is_same = before.status == status
    return GroupVerdict(
        status=status,
        severity=finding.severity,
        since_ms=time_ms,
        queues=before.queues if is_same else 0,
        topic=finding.topic or "",
        queue=-1 if finding.queue is None else finding.queue,
        cause=finding.cause,
        evidence=finding.evidence or finding.text,
        advice=finding.advice,
        lag=before.lag if is_same else None,
        time_lag_ms=before.time_lag_ms if is_same else None,
    )


def _with_since(node: LiveNode, found: Iterable[Finding], now_ms: int) -> Generator[None, None, list[Finding]]:
    """Return findings with their begin, in steps: what does not say it began when this process first saw it."""
    seen: dict[Any, int] = {}
    dated = []
    for number, each in enumerate(found, start=1):
        what = (each.finding, each.group, each.topic, each.key, each.queue, each.offset)
        since_ms = node.first_seen.get(what, now_ms) if each.since_ms is None else each.since_ms
        seen[what] = since_ms = min(since_ms, now_ms)
        dated.append(replace(each, since_ms=since_ms))
        if number % _ROWS_AT_ONCE == 0:
            yield
    node.first_seen = seen
    return dated
