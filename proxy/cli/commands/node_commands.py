"""`pyddmq topics`, `groups` and `stats`: what the admin port returns of a running node."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.cli.admin_client import get
from proxy.cli.findings import print_findings
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson
from proxy.cli.output import print_json, print_table, print_text
from proxy.operate.push_texts import state_text, throttled_text
from proxy.operate.text import age, amount, duration
from proxy.operate.views.groups import GroupsAnswer
from proxy.operate.views.node import StatsAnswer
from proxy.operate.views.topics import TopicsAnswer
from proxy.process.exit_codes import ExitCode
from upstream.views import holder_text, running_text, whereabouts

_LIMIT = 10_000
_OUT_SHOWN = 20


def topics(
    *,
    topic: Annotated[str | None, typer.Argument(help="Only this topic, queue by queue.")] = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """List topics with the stored offsets of their queues."""
    answer = get(admin, "/api/topics", TopicsAnswer, parameters={"limit": _LIMIT, "topic": topic or None})
    if as_json:
        return print_json(answer)
    for each in answer.in_kafka if topic is not None else ():
        known = "unknown partitions" if each.partitions is None else amount(each.partitions, "partition")
        return print_text(
            f"topic {topic} is in Kafka cluster {each.cluster}, with {known}; kafka-topics.sh --describe shows more"
        )
    if topic is not None:
        rows = [
            [str(queue.queue), str(queue.min), str(queue.max), str(queue.max - queue.min)]
            for each in answer.topics
            for queue in each.queues
        ]
        kinds = ", ".join(each.message_type for each in answer.topics)
        return print_table(f"Topic {topic} ({kinds})", ["queue", "first", "end", "messages"], rows, right=(0, 1, 2, 3))
    rows = [
        [
            each.topic,
            "" if each.kind == "user" else each.kind,
            each.message_type,
            str(len(each.queues)),
            str(each.messages),
        ]
        for each in answer.topics
    ]
    rows += [
        [each.topic, f"Kafka {each.cluster}", "", "" if each.partitions is None else str(each.partitions), ""]
        for each in answer.in_kafka
    ]
    return print_table("Topics", ["topic", "kind", "type", "queues", "messages"], rows, right=(3, 4))


def groups(
    *,
    group: Annotated[
        str | None, typer.Argument(help="Only this group, with its messages in flight per client.")
    ] = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """List groups with their lag in messages and seconds, messages in flight and stuck keys."""
    answer = get(admin, "/api/groups", GroupsAnswer, parameters={"limit": _LIMIT, "group": group or None})
    if as_json:
        return print_json(answer)
    print_findings(answer.findings)
    rows = [
        [
            each.group,
            subscription.topic,
            running_text(subscription),
            "unknown" if subscription.lag is None else str(subscription.lag),
            "" if subscription.lag_seconds is None else f"{subscription.lag_seconds:.1f}",
            str(subscription.in_flight),
            str(subscription.waiting),
            str(subscription.retrying),
        ]
        for each in answer.groups
        for subscription in each.topics
    ]
    columns = ["group", "topic", "state", "lag", "lag s", "in flight", "waiting", "retrying"]
    print_table("Groups", columns, rows, right=(3, 4, 5, 6, 7))
    _print_pushes(answer)
    _print_stuck_keys(answer)
    _print_fetchers(answer)
    if group is not None:
        _print_in_flight(answer)
    return ExitCode.OK


def _print_pushes(answer: GroupsAnswer) -> None:
    """Print the URLs that groups push to, if any do."""
    rows = [
        [
            each.group,
            subscription.topic,
            url.url,
            state_text(url),
            f"{url.failures}",
            "" if url.since_ms is None else age((answer.now_ms - url.since_ms) / 1000),
            "" if url.probe_ms is None else f"in {age(max(0, url.probe_ms - answer.now_ms) / 1000)}",
            url.reason or "",
            throttled_text(subscription.push),
        ]
        for each in answer.groups
        for subscription in each.topics
        if subscription.push is not None
        for url in subscription.push.urls
    ]
    if rows:
        columns = ["group", "topic", "url", "state", "failures", "since", "next probe", "last failure", "throttled"]
        print_table("Pushes", columns, rows, right=(4, 5))


def stats(*, admin: AdminAddress = ADMIN_DEFAULT, as_json: AsJson = False) -> int:
    """Show the node itself: state, uptime, store, connections and counters."""
    answer = get(admin, f"/api/stats?limit={_LIMIT}", StatsAnswer)
    if as_json:
        return print_json(answer)
    print_text(f"pyddmq {answer.version}, {answer.state}, up {answer.uptime_seconds:.0f} s")
    for reason in answer.reasons:
        print_text(f"  {reason}")
    print_findings(answer.findings)
    store = answer.store
    if store:
        mib = 1024 * 1024
        used, free = store.used_bytes / mib, store.free_bytes / mib
        print_text(f"store {store.path}: {used:,.0f} MiB used, {free:,.0f} MiB free, flush {store.flush}")
    print_table(
        "Latency, last two minutes",
        ["what", "of", "count", "half within", "99 % within"],
        [
            [
                each.name,
                ", ".join(each.labels.values()),
                f"{each.count:,}",
                duration(each.p50_seconds),
                duration(each.p99_seconds),
            ]
            for each in answer.latencies
        ],
        right=(2, 3, 4),
    )
    connections = [
        [each.address, each.client or "", each.service, _age(answer.now_ms, each.since_ms), str(each.requests)]
        for each in answer.connections
    ]
    print_table(
        amount(answer.connections_total, "connection"),
        ["address", "client", "service", "since s", "requests"],
        connections,
        right=(3, 4),
    )
    counters = [[name, f"{value:,}"] for name, value in sorted(answer.counters.items()) if value]
    return print_table("Counters that are not zero", ["name", "value"], counters, right=(1,))


def _print_stuck_keys(answer: GroupsAnswer) -> None:
    rows = [
        [
            each.group,
            key.key or "",
            f"{key.qid}@{key.offset}",
            str(key.attempts),
            holder_text(key.holder, key.holder_client) if key.holder else whereabouts(key.state),
            _age(answer.now_ms, key.since_ms),
        ]
        for each in answer.groups
        for subscription in each.topics
        for key in subscription.stuck_keys
    ]
    if rows:
        print_table(
            "Stuck keys", ["group", "key", "first message", "attempts", "holder", "since s"], rows, right=(3, 5)
        )


def _print_fetchers(answer: GroupsAnswer) -> None:
    rows = [
        [group.group, each.id, each.address, _age(answer.now_ms, each.fetched_ms), ", ".join(each.queues) or "none"]
        for group in answer.groups
        for each in group.fetchers
    ]
    if rows:
        print_table("Fetchers", ["group", "fetcher", "client", "fetched s ago", "queues"], rows, right=(3,))


def _print_in_flight(answer: GroupsAnswer) -> None:
    out = [each for group in answer.groups for each in group.in_flight]
    if not out:
        print_text("nothing is in flight")
        return
    rows = [
        [
            each.topic,
            f"{each.qid}@{each.offset}",
            holder_text(each.holder, each.holder_client),
            _age(answer.now_ms, each.since_ms),
        ]
        for each in out[:_OUT_SHOWN]
    ]
    title = "In flight" if len(out) <= _OUT_SHOWN else f"In flight, the oldest {_OUT_SHOWN} of {len(out)}"
    print_table(title, ["topic", "message", "holder", "since s"], rows, right=(3,))


def _age(now_ms: int, since_ms: int) -> str:
    """Seconds since a moment by the node's own clock."""
    return f"{max(0, now_ms - since_ms) / 1000:.1f}"
