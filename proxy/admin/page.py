"""The status page: plain HTML made on the server, no scripts; everything that comes from outside is escaped.

It is meant for somebody who was just woken: what needs attention stands first, then the figures, then the tables, the
worst row on top. `render` is a pure function of the node's view.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from broker.runtime.metrics import SPECS
from broker.scheduled.delay.delays import Delays
from broker.scheduled.delay.listing import level_statuses
from broker.scheduled.timer.listing import timer_status
from broker.scheduled.timer.timers import Timers
from broker.transaction.transactions import Transactions
from proxy.admin.entry.access_pages import AGAIN, END, Viewer, begin, viewer_line
from proxy.admin.lag_table import lag_section
from proxy.admin.tables import ROWS_MAX, Cell, table
from proxy.operate.answers import counter_sums, groups_of, latencies, topics_of
from proxy.operate.attention.judgement import Judgement
from proxy.operate.attention.of_groups import STUCK_SECONDS
from proxy.operate.live_node import LiveNode
from proxy.operate.lookups.transactions import counts
from proxy.operate.moments import moment_text
from proxy.operate.push_texts import state_text, throttled_text
from proxy.operate.text import age, amount, byte_size, duration
from proxy.operate.views.node import ConnectionView
from upstream.views import GroupView, SubscriptionView, holder_text, running_text, whereabouts

# What waits, on the status page: delay levels, timers, undecided transactions.


def delays_table(delays: Delays | None, now_ms: int) -> str:
    """Return the section of the status page; nothing while no message was ever delayed."""
    if delays is None or not delays.levels:
        return ""
    rows = [
        [
            Cell(str(each.level), "n"),
            Cell(age((each.delay_ms or 0) / 1000), "n"),
            Cell(f"{each.pending:,}", "n"),
            Cell(f"{each.refused:,}", "n late" if each.refused else "n"),
            Cell("" if each.next_due_ms is None else _due(each.next_due_ms, now_ms), "k"),
        ]
        for each in level_statuses(delays)
        if each.pending
    ]
    return table("Delay levels", ("#Level", "#Delay", "#Pending", "#Refused", "Next"), rows, "Nothing is delayed.")


def _due(due_ms: int, now_ms: int) -> str:
    left = (due_ms - now_ms) / 1000
    return f"{moment_text(due_ms)}, in {age(left)}" if left >= 0 else f"{moment_text(due_ms)}, late by {age(-left)}"


def timers_table(timers: Timers | None, now_ms: int) -> str:
    """Return the section of the status page; nothing while no message ever waited for a moment."""
    if timers is None or timers.entering.queue is None:
        return ""
    status = timer_status(timers)
    notes = [f"{status.pending_total:,} pending"]
    if status.next_due_ms is not None:
        notes.append(f"the next due {_due(status.next_due_ms, now_ms)}")
    if status.refused:
        notes.append(f"{status.refused:,} refused")
    paused = [each.stage for each in status.stages if each.paused]
    if paused:
        notes.append(f"paused: {', '.join(paused)}")
    rows = [[Cell(each.topic, "k"), Cell(f"{each.pending:,}", "n")] for each in status.topics]
    return table("Timers", ("Topic", "#Pending"), rows, "Nothing waits for a moment.", note="; ".join(notes))


def transactions_table(transactions: Transactions | None, now_ms: int) -> str:
    """Return the section of the status page; nothing while there never was a transaction."""
    if transactions is None or transactions.halves.queue() is None:
        return ""
    found = counts(transactions, now_ms=now_ms)
    rows = [[Cell(each.topic), Cell(each.group), Cell(f"{each.count:,}", "n")] for each in found.pending]
    notes = [] if found.oldest_ms is None else [f"the oldest for {age((now_ms - found.oldest_ms) / 1000)}"]
    if found.discarded_total:
        notes.append(f"{found.discarded_total:,} discarded: pyddmq transactions list --state discarded")
    return table(
        "Undecided transactions",
        ("Topic", "Producer group", "#Undecided"),
        rows,
        "Every transaction is decided.",
        note="; ".join(notes),
    )


_CODE, _AS_CODE = re.compile("`([^`]+)`"), r"<code>\1</code>"
REFRESH_SECONDS = 5
DETAILS_MAX = 2_000
"""Deliveries per group that are read to be summed up by holder."""


def render(
    node: LiveNode,
    judged: Judgement,
    *,
    group: str | None = None,
    refresh: bool = True,
    viewer: Viewer | None = None,
    is_whole: bool = True,
) -> str | None:
    """Return the page, of one group when `group` is given; None when there is no group of that name.

    Args:
        node: The node.
        judged: Its last judgement.
        group: Only this one.
        refresh: Whether the page loads itself again.
        viewer: Who looks; None where there are no rules.
        is_whole: Whether he may see what is about the node; else what is about the group alone.
    """
    groups = groups_of(node, DETAILS_MAX, group)
    if group is not None and not groups:
        return None
    parts = [
        _head(node, group, refresh, viewer),
        _opened(node),
        _attention(judged, group, is_whole=is_whole),
        _tiles(node, groups, is_whole=is_whole),
        lag_section(judged, group),
        _groups_table(groups),
        _latencies_table(node, group),
    ]
    if group is not None:
        parts.append(_queues_table(groups[0]))
    if any(each.fetchers for each in groups):
        parts.append(_fetchers_table(groups, node.clock.wall_ms()))
    if any(topic.push for each in groups for topic in each.topics):
        parts.append(_pushes_table(groups, node.clock.wall_ms()))
    parts += [_stuck_table(groups, node.clock.wall_ms()), _out_table(groups, node.clock.wall_ms())]
    if group is None:
        now_ms = node.clock.wall_ms()
        parts += [delays_table(node.delays(), now_ms), timers_table(node.timers(), now_ms)]
        parts += [transactions_table(node.transactions(), now_ms)]
        parts += [_clients_table(node), _topics_table(node), _counters_table(node)]
    trail = ' · <a href="/audit">audit trail</a>' if viewer is None or viewer.may_administer else ""
    parts.append(
        '<footer><a href="/api/groups">groups</a>, <a href="/api/stats">stats</a> and <a href="/api/topics">topics</a>'
        ' as JSON · <a href="/metrics">metrics</a> · <a href="/readyz?verbose">readiness</a>'
        f"{trail}</footer>{END}"
    )
    return "".join(parts)


def refusal(status: int, text: str, *, may_sign_in: bool = False) -> str:
    """Return the page that says why there is none."""
    way = ' · <a href="/sign-in">Sign in</a>' if may_sign_in else ""
    return (
        f'{begin(f"{status} · pyddmq")}<span class="chip warn">{status}</span></header>'
        f'<ul class="look"><li class="warn">{escape(text)}</li></ul><p><a href="/">The status page</a>{way}</p>{END}'
    )


def _head(node: LiveNode, group: str | None, refresh: bool, viewer: Viewer | None) -> str:
    chip = {"ready": "good", "failed": "bad"}.get(node.state, "warn")
    here = "/" if group is None else f"/?group={quote(group, safe='')}"
    again = _refreshing(here, viewer) if refresh else ""
    toggle = "&refresh=0" if "?" in here else "?refresh=0"
    switch = (
        f'<a href="{escape(here + toggle)}">stop refreshing</a>' if refresh else f'<a href="{escape(here)}">refresh</a>'
    )
    title = "pyddmq" if group is None else f"{group} · pyddmq"
    up = age(node.clock.monotonic() - node.started_monotonic)
    return (
        f"{begin(f'{node.state} · {title}', refresh=again)}"
        f'<span class="chip {chip}">{escape(node.state)}</span>'
        f"<span>{escape(node.version)}, up {up}</span>{viewer_line(viewer)}"
        f"<small>{moment_text(node.clock.wall_ms())} · {switch}</small></header>"
    )


def _refreshing(here: str, viewer: Viewer | None) -> str:
    """Have a page load itself again; that is no use of a session, which would else never end."""
    parameter = f"{'&' if '?' in here else '?'}{AGAIN}=1"
    target = f"; url={here}{parameter}" if viewer is not None and viewer.by_session else ""
    return f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}{escape(target)}">'


def _opened(node: LiveNode) -> str:
    """Say that nobody is asked who he is, where the ports may be anywhere."""
    if node.access != "open":
        return ""
    text = (
        "<code>access: open</code><small>There are no access rules: every client that reaches the Thrift "
        "ports may publish to any topic, and pull and acknowledge for any group.</small>"
    )
    return f'<ul class="look"><li class="warn">{text}</li></ul>'


def _attention(judged: Judgement, group: str | None, *, is_whole: bool) -> str:
    """Return what needs attention; without `is_whole` what is about the group alone."""
    found = [each for each in judged.about(group) if is_whole or each.group == group]
    if not found:
        level = judged.level if group is None else judged.as_lag(limit=0, group=group).level
        text, chip = "Nothing needs attention.", "good"
        if not judged.lag.enabled:
            text = "Nothing needs attention. Lag is not judged, since <code>lag.enabled</code> is false."
        elif level != "OK":
            text, chip = "Nothing needs attention so far; the lag of some queues cannot be judged yet.", "warn"
        return f'<ul class="look"><li class="{chip}">{text}</li></ul>'
    lines = [
        f'<li class="{"bad" if finding.bad else "warn"}">{escape(finding.text)}'
        f"<small>{_CODE.sub(_AS_CODE, escape(finding.advice))}</small></li>"
        for finding in found[:ROWS_MAX]
    ]
    if len(found) > ROWS_MAX:
        more = amount(len(found) - ROWS_MAX, "more finding")
        lines.append(f'<li class="warn">And {more}: <a href="/api/attention">/api/attention</a></li>')
    return f'<ul class="look">{"".join(lines)}</ul>'


def _tiles(node: LiveNode, groups: Sequence[GroupView], *, is_whole: bool) -> str:
    topics = [topic for group in groups for topic in group.topics]
    oldest = max((topic.lag_seconds or 0.0 for topic in topics), default=0.0)
    behind = f"{sum(topic.lag or 0 for topic in topics):,}"
    if any(topic.lag is None for topic in topics):
        behind = "unknown" if behind == "0" else f"{behind} and more"
    stuck = sum(topic.stuck_keys_total for topic in topics)
    tiles = [
        ("lag, messages", behind),
        ("age of the oldest", age(oldest)),
        ("in flight with clients", f"{sum(topic.in_flight for topic in topics):,}"),
        ("waiting for their key", f"{sum(topic.waiting for topic in topics):,}"),
        ("keys held", f"{stuck:,}"),
    ]
    if is_whole:
        store = node.store()
        tiles += [
            ("clients connected", f"{len(node.connections()):,}"),
            (
                f"stored, {byte_size(store.free_bytes)} free" if store else "store",
                byte_size(store.used_bytes) if store else "not open",
            ),
            ("worst loop delay", f"{node.loop_lag() * 1000:,.1f} ms"),
        ]
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles)
    return f'<dl class="tiles">{cells}</dl>'


def _groups_table(groups: Sequence[GroupView]) -> str:
    rows = sorted(
        ((group, topic) for group in groups for topic in group.topics),
        key=lambda row: (-(row[1].lag_seconds or 0.0), -(row[1].lag or 0), row[0].group, row[1].topic),
    )
    header = ("Group", "Topic", "State", "#Behind", "#Oldest", "#Ready", "#Out", "#Retrying", "#Waiting", "#Keys held")
    return table("Groups", header, [_group_row(group, topic) for group, topic in rows], "No group is configured.")


def _group_row(group: GroupView, topic: SubscriptionView) -> list[Cell]:
    lag, lag_seconds = topic.lag or 0, topic.lag_seconds or 0.0
    known = topic.lag is not None
    return [
        Cell(group.group, "k", link=f"/?group={quote(group.group, safe='')}"),
        Cell(topic.topic, "k"),
        Cell(running_text(topic), "late" if topic.paused_since_ms is not None or topic.throttled else ""),
        Cell(f"{lag:,}" if known else "unknown", "n"),
        Cell(age(lag_seconds) if known else "", "n"),
        Cell(f"{topic.buffered:,}", "n"),
        Cell(f"{topic.in_flight:,}", "n"),
        Cell(f"{topic.retrying:,}", "n"),
        Cell(f"{topic.waiting:,}", "n late" if topic.reading_stopped else "n"),
        Cell(f"{topic.stuck_keys_total:,}", "n"),
    ]


def _queues_table(group: GroupView) -> str:
    rows = [
        [
            Cell(topic.topic, "k"),
            Cell(queue.qid, "c"),
            Cell(f"{queue.committed:,}", "n"),
            Cell(f"{queue.produced:,}", "n"),
            Cell(f"{queue.lag:,}", "n"),
            Cell(age(queue.lag_seconds), "n"),
        ]
        for topic in group.topics
        for queue in topic.queues
    ]
    header = ("Topic", "Queue", "#Committed", "#End", "#Behind", "#Oldest")
    return table("Queues", header, rows, "No queue yet.", rows_max=1_000)


def _fetchers_table(groups: Sequence[GroupView], now_ms: int) -> str:
    rows = [
        [
            Cell(each.id, "c"),
            Cell(group.group, "k"),
            Cell(each.address, "c"),
            Cell(", ".join(each.queues) or "none", "k"),
            _since(each.since_ms, now_ms),
            _since(each.fetched_ms, now_ms),
        ]
        for group in groups
        for each in group.fetchers
    ]
    header = ("Fetcher", "Group", "Client", "Owns", "#Since", "#Last fetch")
    return table("Fetchers of low-level groups", header, rows, "No client fetches.")


def _pushes_table(groups: Sequence[GroupView], now_ms: int) -> str:
    rows = [
        [
            Cell(url.url, "c"),
            Cell(group.group, "k"),
            Cell(topic.topic, "k"),
            Cell(state_text(url), "" if url.state == "closed" else "late"),
            Cell(f"{url.failures:,}", "n late" if url.failures else "n"),
            Cell("–", "n") if url.since_ms is None else _since(url.since_ms, now_ms, 0.0),
            Cell("" if url.probe_ms is None else f"in {age(max(0, url.probe_ms - now_ms) / 1000)}"),
            Cell(url.reason or "", "k"),
            Cell(f"{topic.push.out:,}", "n"),
            Cell(throttled_text(topic.push), "k"),
        ]
        for group in groups
        for topic in group.topics
        if topic.push is not None
        for url in topic.push.urls
    ]
    header = ("URL", "Group", "Topic", "State", "#Failures in a row", "#Since", "Next probe", "Last failure")
    return table("Pushes", (*header, "#Requests out", "Throttled"), rows, "No URL yet.")


def _stuck_table(groups: Sequence[GroupView], now_ms: int) -> str:
    found = sorted(
        ((group.group, key) for group in groups for topic in group.topics for key in topic.stuck_keys),
        key=lambda row: row[1].since_ms,
    )
    rows = [
        [
            Cell("" if key.key is None else key.key, "k c"),
            Cell(group, "k"),
            Cell(f"{key.topic}, {key.qid}, offset {key.offset}", "k"),
            Cell(f"{key.attempts:,}", "n"),
            Cell(
                holder_text(key.holder, key.holder_client) if key.holder else whereabouts(key.state),
                "c" if key.holder else "",
            ),
            _since(key.since_ms, now_ms, STUCK_SECONDS),
            Cell("–" if key.waiting is None else f"{key.waiting:,}", "n"),
            Cell(key.reason or "", "k"),
        ]
        for group, key in found
    ]
    total = sum(topic.stuck_keys_total for group in groups for topic in group.topics)
    header = ("Key", "Group", "Its first message", "#Deliveries", "Held by", "#Since", "#Behind it", "Last failure")
    return table("Keys that block others", header, rows, "No message waits for its key.", total=total)


def _out_table(groups: Sequence[GroupView], now_ms: int) -> str:
    rows: list[tuple[int, list[Cell]]] = []
    listed = 0
    for group in groups:
        held: dict[tuple[str, str], tuple[int, int, str]] = {}
        for each in group.in_flight:
            listed += 1
            holder = holder_text(each.holder, each.holder_client)
            count, since_ms, first = held.get((each.topic, holder), (0, each.since_ms, ""))
            if not first or each.since_ms < since_ms:
                since_ms, first = each.since_ms, f"{each.qid}, offset {each.offset}"
            held[each.topic, holder] = count + 1, since_ms, first
        for (topic, holder), (count, since_ms, first) in held.items():
            cells = [Cell(holder, "c"), Cell(group.group, "k"), Cell(topic, "k"), Cell(f"{count:,}", "n")]
            rows.append((since_ms, [*cells, Cell(first, "k"), _since(since_ms, now_ms, STUCK_SECONDS)]))
    rows.sort(key=lambda row: row[0])
    total = sum(group.in_flight_total for group in groups)
    note = f"summed up from {listed:,} of {amount(total, 'message')}" if listed < total else ""
    header = ("Client", "Group", "Topic", "#Messages", "The oldest", "#Since")
    return table("In flight with clients", header, [cells for _, cells in rows], "No message is in flight.", note=note)


def _clients_table(node: LiveNode) -> str:
    now_ms = node.clock.wall_ms()
    connections = sorted(node.connections(), key=lambda each: each.since_ms)
    rows = [
        [
            Cell(holder_text(each.address, each.client), "c"),
            Cell(each.service),
            Cell(_doing(each, now_ms)),
            Cell(f"{each.requests:,}", "n"),
            _since(each.since_ms, now_ms),
        ]
        for each in connections
    ]
    return table("Clients", ("Client", "Service", "Doing", "#Requests", "#Connected"), rows, "No client is connected.")


def _doing(connection: ConnectionView, now_ms: int) -> str:
    """Return what a connection does; for one that does not read its replies how many bytes wait, and for how long."""
    if not connection.unsent_bytes or connection.unsent_since_ms is None:
        return connection.state
    seconds = max(0, now_ms - connection.unsent_since_ms) // 1000
    return f"{connection.state} ({byte_size(connection.unsent_bytes)} unread for {seconds} s)"


def _topics_table(node: LiveNode) -> str:
    rows = [
        [
            Cell(topic.topic, "k"),
            Cell(topic.kind),
            Cell("" if topic.message_type == "MIXED" else topic.message_type.lower()),
            Cell(f"{len(topic.queues):,}", "n"),
            Cell(f"{topic.messages:,}", "n"),
        ]
        for topic in topics_of(node)
    ]
    return table("Topics", ("Topic", "Kind", "Takes", "#Queues", "#Messages held"), rows, "No topic yet.")


def _counters_table(node: LiveNode) -> str:
    rows = [
        [Cell(name, "c"), Cell(SPECS[name].help, "k"), Cell(f"{value:,}", "n")]
        for name, value in counter_sums(node).items()
        if value
    ]
    title = "Counters that are not zero"
    return table(title, ("Counter", "Meaning", "#Since the start"), rows, "All are zero.", rows_max=500)


def _latencies_table(node: LiveNode, group: str | None) -> str:
    rows = [
        [
            Cell(each.name, "k"),
            Cell(", ".join(each.labels.values())),
            Cell(f"{each.count:,}", "n"),
            Cell(duration(each.p50_seconds), "n"),
            Cell(duration(each.p99_seconds), "n"),
        ]
        for each in latencies(node.metrics, group=group)
    ]
    header = ("What", "Of", "#Count", "#Half within", "#99 % within")
    return table("Latency, last two minutes", header, rows, "No measurements.")


def _since(since_ms: int, now_ms: int, late_seconds: float | None = None) -> Cell:
    seconds = (now_ms - since_ms) / 1000
    late = late_seconds is not None and seconds >= late_seconds
    return Cell(age(seconds), "n late" if late else "n", title=moment_text(since_ms))
