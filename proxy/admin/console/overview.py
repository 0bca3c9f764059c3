"""The first page: what needs attention, what the node does, and what changed lately."""

from __future__ import annotations

import re
from collections.abc import Sequence

from broker.views import View
from lag.rules.statuses import BY_NAME
from proxy.admin.console.buttons import Button, of_finding, page_of
from proxy.admin.console.calls import PageCall
from proxy.admin.console.rates import Moment
from proxy.operate.attention.judgement import LEVELS
from proxy.operate.lag_texts import behind, forecast_of_all
from proxy.operate.text import age, byte_size, printable
from proxy.operate.views.findings import Finding
from proxy.operate.views.lag import LagGroup, LagQueue
from proxy.operate.views.lag_history import EventView

FINDINGS_SHOWN = 30
GROUPS_SHOWN = 12
LATELY_SHOWN = 8
_COMMAND = re.compile(r" To (end it|continue): .*")


class FindingRow(View, frozen=True, kw_only=True):
    """A finding, with what can be done about it.

    Attributes:
        finding: The finding.
        buttons: What the viewer may do.
    """

    finding: Finding
    buttons: Sequence[Button]

    @property
    def page(self) -> tuple[str, str]:
        """Name and address of the page that shows more."""
        return page_of(self.finding)

    @property
    def text(self) -> str:
        """What is wrong; without the command at its end where a button has it."""
        return printable(_COMMAND.sub("", self.finding.text) if self.buttons else self.finding.text)


class GroupRow(View, frozen=True, kw_only=True):
    """A group in a list.

    Attributes:
        group: Its name.
        level: `OK`, `WARN`, `ERR` or `UNKNOWN`.
        status: The lag status, or the kind of a finding that is worse than it.
        unfinished: Messages behind; null: not known.
        behind: Age of the oldest unfinished message, in words.
        published: Messages per second that were stored in its topics lately; null: not known.
        finished: Messages per second that it finished lately; null: not known.
        forecast: Where the lag goes, in words.
        cause: Why, with figures; "" without one.
    """

    group: str
    level: str
    status: str
    unfinished: int | None
    behind: str
    published: float | None
    finished: float | None
    forecast: str
    cause: str


class Tile(View, frozen=True, kw_only=True):
    """One figure.

    Attributes:
        name: What it is.
        value: The figure, in words.
        note: What belongs to it; "" for nothing.
    """

    name: str
    value: str
    note: str = ""


class OverviewView(View, frozen=True, kw_only=True):
    """The node at a glance.

    Attributes:
        now_ms: Now, by the node's wall clock.
        judged_ms: When findings and levels were judged.
        level: The level of what the viewer may see.
        findings: What needs attention, the bad first.
        findings_total: How many there are.
        hour: The last hour of the node; empty for a viewer who may not see all.
        tiles: Figures of the node; likewise.
        groups: The groups that need most attention.
        groups_total: How many groups the viewer may see.
        lately: What happened lately, the newest first.
        open_ports: Whether there are no access rules and the ports listen on any address.
    """

    now_ms: int
    judged_ms: int
    level: str
    findings: Sequence[FindingRow]
    findings_total: int
    hour: Sequence[Moment]
    tiles: Sequence[Tile]
    groups: Sequence[GroupRow]
    groups_total: int
    lately: Sequence[EventView]
    open_ports: bool


async def overview(call: PageCall) -> OverviewView:
    """Return what the page shows."""
    groups = ranked(call)
    found = [each for each in call.judged.findings if sees(call, each)]
    levels = [each.level for each in groups] + [each.level for each in found]
    return OverviewView(
        now_ms=call.node.clock.wall_ms(),
        judged_ms=call.judged.now_ms,
        level=call.judged.level if call.sees_all else max(levels, key=LEVELS.index, default="OK"),
        findings=finding_rows(call, found),
        findings_total=len(found),
        hour=list(call.rates.hour) if call.sees_all else [],
        tiles=node_tiles(call) if call.sees_all else [],
        groups=group_rows(call, groups[:GROUPS_SHOWN]),
        groups_total=len(groups),
        lately=[each for each in call.node.events() if _happened_to(call, each)][:LATELY_SHOWN],
        open_ports=call.node.access == "open",
    )


def sees(call: PageCall, finding: Finding) -> bool:
    """Whether a finding is about what the viewer may see."""
    return call.sees_all if finding.group is None else call.may_view(finding.group)


def _happened_to(call: PageCall, event: EventView) -> bool:
    return call.sees_all if not event.group else call.may_view(event.group)


def finding_rows(call: PageCall, found: Sequence[Finding]) -> list[FindingRow]:
    """Return findings with their buttons."""
    return [FindingRow(finding=each, buttons=of_finding(call, each)) for each in found[:FINDINGS_SHOWN]]


def ranked(call: PageCall) -> list[LagGroup]:
    """Return the groups that the viewer may see, the worst first."""
    seen = [each for each in call.judged.groups if call.may_view(each.group)]
    return sorted(seen, key=lambda each: (-LEVELS.index(each.level), -(each.time_lag_ms or 0), each.group))


def group_rows(call: PageCall, groups: Sequence[LagGroup]) -> list[GroupRow]:
    """Return these groups as rows, in the same order."""
    queues: dict[str, list[LagQueue]] = {each.group: [] for each in groups}
    for queue in call.judged.queues:
        if queue.group in queues:
            queues[queue.group].append(queue)
    return [_row(call, each, queues[each.group]) for each in groups]


def _row(call: PageCall, group: LagGroup, queues: Sequence[LagQueue]) -> GroupRow:
    published, finished = call.rates.latest(group.group)
    late = max(queues, key=lambda each: each.time_lag_ms or each.time_lag_low_ms or 0, default=None)
    worst = queues[0] if queues else None
    is_status = group.level == BY_NAME[group.status].level.name
    return GroupRow(
        group=group.group,
        level=group.level,
        status=group.status if is_status else group.finding or group.status,
        unfinished=group.unfinished,
        behind="?" if late is None else behind(late),
        published=published,
        finished=finished,
        forecast=forecast_of_all(queues),
        cause="" if worst is None or worst.cause is None else f"{worst.cause.replace('_', ' ')}: {worst.evidence}",
    )


def node_tiles(call: PageCall) -> list[Tile]:
    """Return the figures of the node."""
    node = call.node
    store, memory = node.store(), node.memory()
    stored = "not open" if store is None else byte_size(store.used_bytes)
    return [
        Tile(name="Clients", value=f"{len(node.connections()):,}"),
        Tile(name="Stored", value=stored, note="" if store is None else f"{byte_size(store.free_bytes)} free"),
        Tile(name="Memory", value=byte_size(memory.held_bytes), note=f"of {byte_size(memory.max_bytes)}"),
        Tile(name="Loop delay", value=f"{node.loop_lag() * 1000:,.1f} ms", note="worst of 10 s"),
        Tile(name="Up", value=age(node.clock.monotonic() - node.started_monotonic), note=node.version),
    ]
