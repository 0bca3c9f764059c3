"""Topics: the list, and one topic with its newest messages, queues, groups, retention, and a form to publish."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import suppress

from aiohttp import web
from msgspec.structs import replace

from broker.errors import StoreError
from broker.format.numbers import whole_number
from broker.query import NotFound, Searchable
from broker.queues.topics import is_system
from broker.views import QueueRange, View
from proxy.access.rules import Permission
from proxy.admin.console.calls import PageCall
from proxy.node.kafka_letters import is_mark
from proxy.operate.attention.judgement import LEVELS
from proxy.operate.lookups.messages import LIMIT_MAX, MessageSearch
from proxy.operate.lookups.messages_in_kafka import ClusterUnavailable, kafka_errors, tail_cursor
from proxy.operate.views.messages import MessageView
from proxy.operate.views.topics import TopicInKafka, TopicRetention, TopicView
from upstream.kafka.link import TopicScan
from upstream.kafka.subscriptions import is_expression

PAGE_ROWS = 100
QUEUES_SHOWN = 200
NEWEST = 20
"""Messages that the page shows of a topic."""
KAFKA_SECONDS = 2.0
"""How long the page waits for Kafka."""


class TopicsView(View, frozen=True, kw_only=True):
    """The list of topics.

    Attributes:
        q: Part of the name that is looked for; "" for all.
        page: Number of the page, from 1.
        pages: Number of pages.
        total: Topics that fit.
        rows: Those of the page: topics of users first, by name.
        in_kafka: Topics of the configuration that are in Kafka and fit.
    """

    q: str
    page: int
    pages: int
    total: int
    rows: Sequence[TopicView]
    in_kafka: Sequence[TopicInKafka]


class TopicGroupRow(View, frozen=True, kw_only=True):
    """A group on the topic.

    Attributes:
        group: Its name.
        level: Level of its worst queue.
        status: Status of its worst queue.
        unfinished: Messages of the topic that it has not finished; null: not known.
    """

    group: str
    level: str
    status: str
    unfinished: int | None


class TopicPageView(View, frozen=True, kw_only=True):
    """One topic.

    Attributes:
        now_ms: Now, by the node's wall clock.
        topic: Its figures.
        queues_total: How many queues it has.
        groups: Groups that read it and that the viewer may see, the worst first.
        retention: What is kept of it; null where that is not known.
        may_publish: Whether the page offers the form to publish.
        may_read: Whether the viewer may read bodies.
        newest: The newest messages, the oldest first.
        end: Where a request for newer messages begins.
        text: What the newest messages contain; "" for any.
        problem: Why Kafka's part of the page is missing; "" for nothing.
    """

    now_ms: int
    topic: TopicView
    queues_total: int
    groups: Sequence[TopicGroupRow]
    retention: TopicRetention | None
    may_publish: bool
    may_read: bool
    newest: Sequence[MessageView]
    end: int | str
    text: str
    problem: str


async def topics(call: PageCall) -> TopicsView:
    """Return the list of topics."""
    wanted = call.query.get("q", "").strip()
    part = wanted.lower()
    found = [name for name in call.node.topic_names() if part in name.lower() and call.may_view(name)]
    found.sort(key=lambda name: (is_system(name), name))
    pages = max(1, -(-len(found) // PAGE_ROWS))
    page = min(max(1, whole_number(call.query.get("page", "1"), 6) or 1), pages)
    shown = found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    rows = [view for name in shown if (view := call.node.topic(name)) is not None]
    in_kafka = [
        each for each in call.node.topics_in_kafka() if part in each.topic.lower() and call.may_view(each.topic)
    ]
    return TopicsView(q=wanted, page=page, pages=pages, total=len(found), rows=rows, in_kafka=in_kafka[:PAGE_ROWS])


async def topic(call: PageCall) -> TopicPageView:
    """Return what the page of a topic shows. Raises HTTPNotFound."""
    name, text = call.query.get("topic", ""), call.query.get("text", "").strip()
    may_read = call.may_read_bodies(name)
    cluster = None if is_expression(name) else call.node.in_kafka.cluster_of(name)
    view, store = call.node.topic(name), call.node.searchable()
    end: int | str = ""
    newest: list[MessageView] = []
    problem = ""
    if cluster is not None:
        view = TopicView(topic=name, system=False, kind=f"in Kafka cluster {cluster}", queues=[])
        try:
            async with asyncio.timeout(KAFKA_SECONDS):
                view = replace(view, queues=await _partitions(call, cluster, name))
                newest = [] if text else await _newest_in_kafka(call, view, may_read=may_read)
                end = tail_cursor({each.queue: each.max for each in view.queues})
        except (NotFound, ClusterUnavailable) as error:
            problem = f"{error}."
        except TimeoutError:
            problem = f"Kafka cluster {cluster} has not responded within {KAFKA_SECONDS:g} s."
    elif view is not None and store is not None:
        end = store.index.log.visible_end
        with suppress(NotFound):
            newest = [] if text else await call.search(_newest(call, store, view, may_read=may_read))
        # It may have been deleted since.
        view = call.node.topic(name)
    if view is None or (cluster is None and store is None):
        raise web.HTTPNotFound(text=f"Topic {name!r} does not exist; /topics lists all topics.")
    is_of_broker = view.system or call.node.in_kafka.has_letters(name)
    return TopicPageView(
        now_ms=call.node.clock.wall_ms(),
        topic=TopicView(
            topic=name,
            system=view.system,
            kind=view.kind,
            message_type=view.message_type,
            queues=view.queues[:QUEUES_SHOWN],
        ),
        queues_total=len(view.queues),
        groups=_groups(call, name),
        retention=None if cluster else _retention(call, name),
        may_publish=not is_of_broker and call.may(Permission.PRODUCE, name),
        may_read=may_read,
        newest=newest,
        end=end,
        text=text if may_read else "",
        problem=problem,
    )


def _newest(
    call: PageCall, store: Searchable, view: TopicView, *, may_read: bool
) -> Generator[None, None, list[MessageView]]:
    """Read the newest messages of each queue; returns the newest of all."""
    found: list[MessageView] = []
    for queue in view.queues[:QUEUES_SHOWN]:
        given = {
            "topic": view.topic,
            "queue": str(queue.queue),
            "offset": str(max(queue.min, queue.max - NEWEST)),
            "limit": str(NEWEST),
            "body": "cut" if may_read else "none",
        }
        answer = yield from MessageSearch(store, given, now_ms=call.node.clock.wall_ms(), masks=call.node.masks).steps()
        found += answer.messages
    return sorted(found, key=lambda each: each.physical)[-NEWEST:]


async def _partitions(call: PageCall, cluster: str, name: str) -> list[QueueRange]:
    """Return the partitions of a topic in Kafka. Raises NotFound, ClusterUnavailable."""
    with kafka_errors(cluster):
        found = await call.node.scan(cluster, TopicScan(name, is_mark, bytes_max=0))
    return [QueueRange(queue=each, min=low, max=end) for each, (low, end) in sorted(found.bounds.items())]


async def _newest_in_kafka(call: PageCall, view: TopicView, *, may_read: bool) -> list[MessageView]:
    """Read the newest messages of each partition; returns the newest of all."""
    begins = {each.queue: max(each.min, each.max - NEWEST) for each in view.queues}
    if not begins:
        return []
    given = {
        "topic": view.topic,
        "cursor": tail_cursor(begins),
        "limit": str(LIMIT_MAX),
        "body": "cut" if may_read else "none",
    }
    answer = await call.node.messages_in_kafka(given)
    assert answer is not None, "the topic has a cluster"
    return sorted(answer.messages, key=lambda each: each.store_ms)[-NEWEST:]


def _groups(call: PageCall, name: str) -> list[TopicGroupRow]:
    # Those whose partitions are not known yet have no queue that could be judged.
    rows = {
        group: TopicGroupRow(group=group, level="UNKNOWN", status="UNKNOWN", unfinished=None)
        for group in call.node.in_kafka.readers(name)
        if call.may_view(group)
    }
    judged = set[str]()
    for queue in call.judged.queues:
        if queue.topic != name or not call.may_view(queue.group):
            continue
        known = rows.get(queue.group) if queue.group in judged else None
        judged.add(queue.group)
        is_worse = known is None or LEVELS.index(queue.level) > LEVELS.index(known.level)
        unfinished = queue.unfinished
        if known is not None:
            both_known = known.unfinished is not None and unfinished is not None
            unfinished = (known.unfinished or 0) + (unfinished or 0) if both_known else None
        rows[queue.group] = TopicGroupRow(
            group=queue.group,
            level=queue.level if is_worse or known is None else known.level,
            status=queue.status if is_worse or known is None else known.status,
            unfinished=unfinished,
        )
    return sorted(rows.values(), key=lambda each: (-LEVELS.index(each.level), each.group))


def _retention(call: PageCall, name: str) -> TopicRetention | None:
    try:
        return call.node.topic_retention(name)
    except (OSError, StoreError):
        return None
