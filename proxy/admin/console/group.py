"""The page of a group, with what is stuck and what an operator can do about it, and the list of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web
from msgspec.structs import replace

from broker.format.numbers import whole_number
from broker.runtime.async_steps import run_async
from broker.views import View
from lag.history.course import PARTS
from proxy.admin.console.buttons import Button, heads, pause, reset, resume
from proxy.admin.console.calls import PageCall
from proxy.admin.console.overview import FindingRow, GroupRow, finding_rows, group_rows, ranked
from proxy.operate.answers import groups_of, latencies
from proxy.operate.lag_texts import behind, forecast
from proxy.operate.moments import parse_duration
from proxy.operate.push_texts import state_text, throttled_text
from proxy.operate.views.lag import LagQueue
from proxy.operate.views.lag_history import LagCourse
from proxy.operate.views.node import LatencyView
from upstream.views import (
    FetcherView,
    GroupView,
    PushView,
    StuckMessage,
    SubscriptionView,
    TargetView,
    holder_text,
    running_text,
    whereabouts,
)

SPANS: Mapping[str, int] = {name: parse_duration(name) for name in ("10m", "1h", "24h", "30d")}
"""By name, in ms. The first is from memory, the others are from the lag journal."""
KEPT_SECONDS_MAX = 300.0
"""A span from the journal is read again after one part of its chart, and after this time at the latest."""
COURSE_SECONDS = 0.05
"""A page waits for the journal so long."""
ROWS_MAX = 200
STUCK_MAX = 50
HELD_MAX = 2_000
PAGE_ROWS = 200


class GroupsView(View, frozen=True, kw_only=True):
    """The list of groups.

    Attributes:
        q: Part of the name that is looked for; "" for all.
        page: Number of the page, from 1.
        pages: Number of pages.
        total: Groups that fit.
        rows: Those of the page, the worst first.
    """

    q: str
    page: int
    pages: int
    total: int
    rows: Sequence[GroupRow]


class SubscriptionRow(View, frozen=True, kw_only=True):
    """A topic of the group.

    Attributes:
        topic: Its figures.
        state: Its state in words.
        buttons: What the viewer may do.
        settings: Settings in force, by their names.
    """

    topic: SubscriptionView
    state: str
    buttons: Sequence[Button]
    settings: Mapping[str, Any]


class QueueOfGroup(View, frozen=True, kw_only=True):
    """A queue, judged.

    Attributes:
        queue: The judgement.
        behind: Age of the oldest unfinished message, in words.
        forecast: Where its lag goes, in words.
    """

    queue: LagQueue
    behind: str
    forecast: str


class StuckRow(View, frozen=True, kw_only=True):
    """A stuck message.

    Attributes:
        message: The message.
        place: Which client holds it, or where it waits, in words.
        buttons: What the viewer may do.
    """

    message: StuckMessage
    place: str
    buttons: Sequence[Button]


class HeldRow(View, frozen=True, kw_only=True):
    """Messages of one topic in flight with one client.

    Attributes:
        holder: The client.
        topic: The topic.
        count: How many.
        since_ms: Since when the client has the oldest.
        oldest: Queue and offset of the oldest.
    """

    holder: str
    topic: str
    count: int
    since_ms: int
    oldest: str


class PushRow(View, frozen=True, kw_only=True):
    """A URL that messages of the group are pushed to.

    Attributes:
        topic: The topic.
        url: Its figures.
        state: Its state in words.
        out: Requests in flight to all URLs of the topic.
        throttled: What holds messages back, in words.
    """

    topic: str
    url: TargetView
    state: str
    out: int
    throttled: str


class GroupPageView(View, frozen=True, kw_only=True):
    """One group.

    Attributes:
        now_ms: Now, by the node's wall clock.
        row: Its figures.
        findings: What needs attention.
        span: The span of the charts.
        spans: Spans that can be chosen.
        course: What the charts show; null while the journal is read.
        buttons: What the viewer may do with the group.
        subscriptions: By topic.
        stuck: Stuck messages, the longest stuck first.
        stuck_total: How many there are.
        queues: The worst first.
        queues_total: How many there are.
        held: Messages in flight by client, the longest held first.
        held_total: Messages in flight.
        fetchers: Clients of a low-level group.
        pushes: URLs that its actions push to.
        latencies: Latencies of the last two minutes.
        in_flight: Messages in flight with clients.
        waiting: Messages that wait for their key.
        retrying: Messages that wait for their next attempt.
        settings: Settings of the group in force, by their names.
    """

    now_ms: int
    row: GroupRow
    findings: Sequence[FindingRow]
    span: str
    spans: Sequence[str]
    course: LagCourse | None
    buttons: Sequence[Button]
    subscriptions: Sequence[SubscriptionRow]
    stuck: Sequence[StuckRow]
    stuck_total: int
    queues: Sequence[QueueOfGroup]
    queues_total: int
    held: Sequence[HeldRow]
    held_total: int
    fetchers: Sequence[FetcherView]
    pushes: Sequence[PushRow]
    latencies: Sequence[LatencyView]
    in_flight: int
    waiting: int
    retrying: int
    settings: Mapping[str, Any]

    @property
    def charts(self) -> Sequence[Mapping[str, Any]]:
        """The two charts, as `static/console.js` draws them."""
        course = self.course
        if course is None:
            return ()
        frame = {
            "since": course.since_ms,
            "width": course.width_ms,
            "events": [{"at": each.at_ms, "name": each.event} for each in course.events],
        }
        lag = {"name": "behind", "tone": "lag", "values": course.lag, "fill": True}
        published = {"name": "in, /s", "tone": "in", "values": course.published}
        finished = {"name": "finished, /s", "tone": "out", "values": course.finished}
        return ({**frame, "series": [lag]}, {**frame, "series": [published, finished]})


async def groups(call: PageCall) -> GroupsView:
    """Return the list of groups."""
    wanted = call.query.get("q", "").strip()
    found = [each for each in ranked(call) if wanted.lower() in each.group.lower()]
    pages = max(1, -(-len(found) // PAGE_ROWS))
    page = min(max(1, whole_number(call.query.get("page", "1"), 6) or 1), pages)
    rows = group_rows(call, found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS])
    return GroupsView(q=wanted, page=page, pages=pages, total=len(found), rows=rows)


async def group(call: PageCall) -> GroupPageView:
    """Return what the page of a group shows. Raises HTTPNotFound."""
    name = call.query.get("group", "")
    found = groups_of(call.node, HELD_MAX, name)
    if not found:
        raise web.HTTPNotFound(text=f"Group {name!r} does not exist; /groups lists all groups.")
    view = found[0]
    rows = group_rows(call, [each for each in call.judged.groups if each.group == name])
    about = [each for each in call.judged.about(name) if each.group == name or call.sees_all]
    queues = [each for each in call.judged.queues if each.group == name]
    messages, stuck_total = call.node.stuck(group=name, count_max=STUCK_MAX) or ([], 0)
    held, span = _held(view), call.query.get("span", "10m")
    settings = call.node.settings_of_group(name)
    return GroupPageView(
        now_ms=call.node.clock.wall_ms(),
        row=rows[0] if rows else _unjudged(name),
        findings=finding_rows(call, about),
        span=span if span in SPANS else "10m",
        spans=list(SPANS),
        course=await _course(call, name, span),
        buttons=_buttons(call, view),
        subscriptions=[_subscription(call, view, each, settings) for each in view.topics],
        stuck=[_stuck(call, each) for each in messages],
        stuck_total=stuck_total,
        queues=[QueueOfGroup(queue=each, behind=behind(each), forecast=forecast(each)) for each in queues[:ROWS_MAX]],
        queues_total=len(queues),
        held=held[:ROWS_MAX],
        held_total=view.in_flight_total,
        fetchers=view.fetchers,
        pushes=[row for each in view.topics if each.push is not None for row in _pushes(each.topic, each.push)],
        latencies=latencies(call.node.metrics, group=name),
        in_flight=sum(each.in_flight for each in view.topics),
        waiting=sum(each.waiting for each in view.topics),
        retrying=sum(each.retrying for each in view.topics),
        settings={key: value for key, value in settings.items() if key not in ("group", "topics")},
    )


async def _course(call: PageCall, name: str, span: str) -> LagCourse | None:
    span_ms = SPANS.get(span, 0)
    if span_ms <= SPANS["10m"]:
        course = call.rates.of_group(name)
        events = [each for each in reversed(call.node.events()) if each.at_ms >= course.since_ms]
    else:
        seconds = min(span_ms / 1000 / PARTS, KEPT_SECONDS_MAX)
        steps = call.node.course(group=name, span_ms=span_ms)
        try:
            # The reading continues: the next refresh shows it.
            reading = call.kept(("course", name, span), seconds, lambda: run_async(steps))
            course = await asyncio.wait_for(reading, COURSE_SECONDS)
        except TimeoutError:
            return None
        events = list(course.events)
    # An event of the node, such as a reload, may name other groups.
    seen = [each for each in events if each.group == name or (not each.group and call.sees_all)]
    return replace(course, events=seen)


def _unjudged(name: str) -> GroupRow:
    """Return the row of a group that was not judged yet."""
    return GroupRow(
        group=name,
        level="UNKNOWN",
        status="UNKNOWN",
        unfinished=None,
        behind="?",
        published=None,
        finished=None,
        forecast="",
        cause="",
    )


def _buttons(call: PageCall, view: GroupView) -> list[Button]:
    if not call.may_operate(view.group):
        return []
    paused = [each.paused_since_ms is not None for each in view.topics]
    return [*([] if all(paused) else [pause(view.group)]), *([resume(view.group)] if any(paused) else [])]


def _subscription(
    call: PageCall, view: GroupView, topic: SubscriptionView, settings: Mapping[str, Any]
) -> SubscriptionRow:
    buttons: list[Button] = []
    if call.may_operate(view.group):
        is_paused = topic.paused_since_ms is not None
        buttons = [(resume if is_paused else pause)(view.group, topic.topic), *reset(view.group, topic.topic)]
    own: Mapping[str, Any] = next((each for each in settings.get("topics", ()) if each.get("topic") == topic.topic), {})
    return SubscriptionRow(
        topic=topic,
        state=running_text(topic),
        buttons=buttons,
        settings={key: value for key, value in own.items() if key != "topic"},
    )


def _stuck(call: PageCall, message: StuckMessage) -> StuckRow:
    may = call.may_operate(message.group)
    return StuckRow(
        message=message,
        place=holder_text(message.holder, message.holder_client) if message.holder else whereabouts(message.state),
        buttons=heads(message.group, message.topic, message.queue, message.offset, held=message.holder is not None)
        if may
        else [],
    )


def _held(view: GroupView) -> list[HeldRow]:
    rows: dict[tuple[str, str], HeldRow] = {}
    for each in view.in_flight:
        holder = holder_text(each.holder, each.holder_client)
        known = rows.get((holder, each.topic))
        oldest = f"{each.qid}, offset {each.offset}"
        if known is None or each.since_ms < known.since_ms:
            count = 0 if known is None else known.count
            known = HeldRow(holder=holder, topic=each.topic, count=count, since_ms=each.since_ms, oldest=oldest)
        rows[holder, each.topic] = replace(known, count=known.count + 1)
    return sorted(rows.values(), key=lambda each: each.since_ms)


def _pushes(topic: str, push: PushView) -> list[PushRow]:
    return [
        PushRow(topic=topic, url=each, state=state_text(each), out=push.out, throttled=throttled_text(push))
        for each in push.urls
    ]
