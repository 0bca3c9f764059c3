"""The pages about the node itself: clients and limits, the node and its configuration, the audit trail."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from broker.runtime.metrics import SPECS
from broker.views import View
from proxy.access.audit_file import RECENT_MAX
from proxy.access.views import AuditEntry
from proxy.admin.console.buttons import Button, reload
from proxy.admin.console.calls import PageCall
from proxy.admin.console.overview import Tile, node_tiles
from proxy.operate.answers import counter_sums, latencies
from proxy.operate.text import byte_size
from proxy.operate.views.limits import LimitsAnswer
from proxy.operate.views.node import ConnectionView, KafkaClusterNodes, LatencyView, State
from upstream.views import holder_text

ROWS_MAX = 300
CONNECTIONS_AT_ONCE = 500
"""Connections that are looked at in one step."""
LINES_SHOWN = 3_000
"""Lines of the configuration file that its page shows."""
EACH_MAX = 20
"""Topics, and groups, of the configuration that the page shows."""


class ConnectionRow(View, frozen=True, kw_only=True):
    """A connection.

    Attributes:
        connection: Its figures.
        client: The client, with what it says of itself.
        doing: What it does, in words.
    """

    connection: ConnectionView
    client: str
    doing: str


class ClientsView(View, frozen=True, kw_only=True):
    """Connections of clients, and their limits.

    Attributes:
        now_ms: Now, by the node's wall clock.
        q: Part of the client that is looked for; "" for all.
        connections: The oldest first.
        connections_total: How many fit.
        limits: Principals and addresses that are counted; null: nothing is.
    """

    now_ms: int
    q: str
    connections: Sequence[ConnectionRow]
    connections_total: int
    limits: LimitsAnswer | None


class CounterRow(View, frozen=True, kw_only=True):
    """A counter that is not 0.

    Attributes:
        name: Its name.
        help: What it counts.
        value: Its value.
    """

    name: str
    help: str
    value: int


class NodeView(View, frozen=True, kw_only=True):
    """The node and its configuration.

    Attributes:
        now_ms: Now, by the node's wall clock.
        state: Where it is in its life.
        reasons: Why it is not ready, a sentence each.
        facts: Its name, places and limits, in words.
        tiles: Figures.
        file: The configuration file; "" without one.
        refused_ms: When the file was last refused; 0: it is in force.
        problems: Why.
        missing_ms: Since when the file is missing; 0: it is there.
        buttons: What the viewer may do.
        clusters: The nodes that share groups over Kafka, by cluster.
        latencies: Latencies of the last two minutes, without those of groups.
        counters: Counters that are not 0.
    """

    now_ms: int
    state: State
    reasons: Sequence[str]
    facts: Mapping[str, str]
    tiles: Sequence[Tile]
    file: str
    refused_ms: int
    problems: Sequence[str]
    missing_ms: int
    buttons: Sequence[Button]
    clusters: Sequence[KafkaClusterNodes]
    latencies: Sequence[LatencyView]
    counters: Sequence[CounterRow]


class ConfigurationLine(View, frozen=True, kw_only=True):
    """A line of the file.

    Attributes:
        number: Its number, from 1.
        text: Its text, with secrets masked.
        problems: What is wrong there.
    """

    number: int
    text: str
    problems: Sequence[str] = ()


class ConfigurationPageView(View, frozen=True, kw_only=True):
    """The file and the configuration in force.

    Attributes:
        now_ms: Now, by the node's wall clock.
        file: The configuration file; "" without one.
        refused_ms: When the file was last refused; 0: it is in force.
        missing_ms: Since when the file is missing; 0: it is there.
        lines: The file as it was read last.
        lines_total: How many lines it has.
        problems: What is wrong with the file as a whole, or at a line that is not shown.
        in_force: The configuration in force as YAML, without defaults and secrets.
    """

    now_ms: int
    file: str
    refused_ms: int
    missing_ms: int
    lines: Sequence[ConfigurationLine]
    lines_total: int
    problems: Sequence[str]
    in_force: str


class AuditPageView(View, frozen=True, kw_only=True):
    """The audit trail.

    Attributes:
        now_ms: Now, by the node's wall clock.
        q: Part of an entry that is looked for; "" for all.
        entries: The newest first.
        total: How many are in memory.
    """

    now_ms: int
    q: str
    entries: Sequence[AuditEntry]
    total: int


async def clients(call: PageCall) -> ClientsView:
    """Return what the page of clients shows."""
    wanted, now_ms = call.query.get("q", "").strip(), call.node.clock.wall_ms()
    found = sorted(call.node.connections(), key=lambda each: each.since_ms)
    total, rows = 0 if wanted else len(found), list[ConnectionRow]()
    for number, each in enumerate(found if wanted else found[:ROWS_MAX], start=1):
        if number % CONNECTIONS_AT_ONCE == 0:
            await asyncio.sleep(0)
        client = holder_text(each.address, each.client)
        if wanted.lower() not in client.lower():
            continue
        total += bool(wanted)
        if len(rows) < ROWS_MAX:
            rows.append(ConnectionRow(connection=each, client=client, doing=_doing(each, now_ms)))
    return ClientsView(
        now_ms=now_ms,
        q=wanted,
        connections=rows,
        connections_total=total,
        limits=call.node.limits(limit=ROWS_MAX, name=None),
    )


async def node(call: PageCall) -> NodeView:
    """Return what the page of the node shows."""
    live, configuration = call.node, call.node.configuration
    store = live.store()
    facts = {"Version": live.version, "Cluster": live.cluster, "Broker": live.broker_name, "Access": live.access}
    if store is not None:
        facts |= {
            "Data directory": store.path,
            "Stored": f"{byte_size(store.used_bytes)}, {byte_size(store.free_bytes)} free",
            "Flush": store.flush,
        }
    counters = [
        CounterRow(name=name, help=SPECS[name].help, value=value) for name, value in counter_sums(live).items() if value
    ]
    return NodeView(
        now_ms=live.clock.wall_ms(),
        state=live.state,
        reasons=live.reasons,
        facts=facts,
        tiles=node_tiles(call),
        file=configuration.file,
        refused_ms=configuration.refused_ms,
        problems=configuration.problems,
        missing_ms=configuration.missing_ms,
        buttons=[reload()] if call.may_administer() else [],
        clusters=live.nodes_in_kafka().clusters,
        latencies=latencies(live.metrics, group="")[:ROWS_MAX],
        counters=counters,
    )


async def configuration(call: PageCall) -> ConfigurationPageView:
    """Return what the page of the configuration shows."""
    view = call.node.configuration
    texts = view.text.splitlines()
    at_lines: dict[int, list[str]] = {}
    others = []
    for problem in view.problems:
        found = re.match(rf"{re.escape(view.file)}:(\d{{1,9}}):(?:\d{{1,9}}:)? (.*)", problem, re.DOTALL)
        if found is not None and 0 < int(found[1]) <= min(len(texts), LINES_SHOWN):
            at_lines.setdefault(int(found[1]), []).append(found[2])
        else:
            others.append(problem)
    return ConfigurationPageView(
        now_ms=call.node.clock.wall_ms(),
        file=view.file,
        refused_ms=view.refused_ms,
        missing_ms=view.missing_ms,
        lines=[
            ConfigurationLine(number=number, text=text, problems=at_lines.get(number, ()))
            for number, text in enumerate(texts[:LINES_SHOWN], 1)
        ],
        lines_total=len(texts),
        problems=others,
        in_force=yaml_text(call.node.settings(each_max=EACH_MAX)),
    )


async def audit(call: PageCall) -> AuditPageView:
    """Return what the page of the audit trail shows."""
    entries, total = ([], 0) if call.audit is None else call.audit.recent(2 * RECENT_MAX)
    wanted = call.query.get("q", "").strip()
    shown = [each for each in entries if wanted.lower() in _searchable(each)]
    return AuditPageView(now_ms=call.node.clock.wall_ms(), q=wanted, entries=shown[:ROWS_MAX], total=total)


def _searchable(entry: AuditEntry) -> str:
    return f"{entry.principal} {entry.what} {entry.outcome} {entry.asked} {entry.resource} {entry.address}".lower()


def _doing(connection: ConnectionView, now_ms: int) -> str:
    """Return what a connection does; for one that does not read its replies how many bytes wait, and for how long."""
    if not connection.unsent_bytes or connection.unsent_since_ms is None:
        return connection.state
    seconds = max(0, now_ms - connection.unsent_since_ms) // 1000
    return f"{connection.state} ({byte_size(connection.unsent_bytes)} unread for {seconds} s)"


def yaml_text(settings: Mapping[str, Any]) -> str:
    """Return settings as YAML."""
    return yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True, width=110) if settings else "{}\n"
