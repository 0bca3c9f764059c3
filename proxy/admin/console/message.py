"""Messages: found by id, key, offset, time or text; and one message with its body, properties and way."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from urllib.parse import urlencode

from aiohttp import web
from msgspec.structs import replace

from broker.format.numbers import whole_number
from broker.query import NotFound, QueryRefused, Searchable, at_physical
from broker.views import View
from proxy.admin.console.calls import PageCall
from proxy.operate.lookups.masks import members
from proxy.operate.lookups.message_way import MessageInGroup, WayStep, way, way_in_kafka
from proxy.operate.lookups.messages import MessageSearch
from proxy.operate.lookups.messages_in_kafka import ClusterUnavailable
from proxy.operate.views.messages import MessagesAnswer, MessageView

FIELDS = ("topic", "id", "key", "queue", "offset", "from", "to", "text")
PARAMETERS = (*FIELDS, "cursor", "format")
FORMATS = ("pretty", "text", "hex")
BODY_SHOWN = 64 * 1024
"""Characters of a body that the page shows; the API returns all of it."""
HEX_SHOWN = 4_096
_HEX_ROW = 16


class MessageDetail(View, frozen=True, kw_only=True):
    """One message.

    Attributes:
        message: The message.
        may_read: Whether the viewer may read its body.
        body: The body in the requested format; "" where the viewer may not read it.
        shown: `pretty`, `text` or `hex`: the format of `body`.
        shortened: Whether `body` is only the beginning.
        way: What happened to it, the oldest first.
        groups: What each group does with it.
    """

    message: MessageView
    may_read: bool
    body: str
    shown: str
    shortened: bool
    way: Sequence[WayStep]
    groups: Sequence[MessageInGroup]


class MessagesView(View, frozen=True, kw_only=True):
    """The form, and what was found.

    Attributes:
        now_ms: Now, by the node's wall clock.
        given: What the form has.
        asked: Whether anything is searched.
        problem: Why nothing can be shown; "" for none.
        one: The message, if exactly one was requested.
        found: Messages that the viewer may see, without one that is shown whole.
        more: The query that continues behind them; "": that was all.
        searching: Whether the log is looked through, so that `more` may find what is not found yet.
        share: Which part of the log was looked through, 0.0 to 1.0.
        first: Commit-log offset at which the search began.
        damaged: Records that cannot be read.
        may_search_text: Whether the viewer may search bodies of the topic.
    """

    now_ms: int
    given: Mapping[str, str]
    asked: bool = False
    problem: str = ""
    one: MessageDetail | None = None
    found: Sequence[MessageView] = ()
    more: str = ""
    searching: bool = False
    share: float = 1.0
    first: int = 0
    damaged: int = 0

    def format_query(self, name: str) -> str:
        """Return the query that shows the body in another format."""
        return urlencode({**self.given, "format": name})


async def message(call: PageCall) -> MessagesView:
    """Return what the page shows. Raises HTTPForbidden."""
    given = {name: value for name in FIELDS if (value := call.query.get(name, "").strip())}
    empty = MessagesView(now_ms=call.node.clock.wall_ms(), given=given)
    topic = given.get("topic")
    if topic is not None and not call.may_view(topic):
        raise web.HTTPForbidden(text=f"Topic {topic!r} needs the right to view it.")
    if "text" in given and topic is not None and not call.may_read_bodies(topic):
        raise web.HTTPForbidden(text=f"A search in bodies of topic {topic!r} needs the right to read them.")
    if not given:
        return empty
    if not {"topic", "id"} & given.keys():
        return replace(empty, asked=True, problem="Pass a topic, or an id.")
    store, cluster = call.node.searchable(), call.node.in_kafka.cluster_of(topic or "")
    if store is None and cluster is None:
        return replace(empty, asked=True, problem="The store is opening; try again when /readyz reports ready.")
    is_one = "id" in given or ("offset" in given and "text" not in given)
    asked = {**given, "body": "whole" if is_one else "cut"}
    if "cursor" in call.query:
        asked["cursor"] = call.query["cursor"]
    try:
        answer = await call.node.messages_in_kafka(asked)
        if answer is None:
            assert store is not None, "it is open where the topic is not in Kafka"
            search = MessageSearch(store, asked, now_ms=empty.now_ms, tracing=call.node.tracing, masks=call.node.masks)
            answer = await call.search(search.steps())
        seen = [_as_allowed(call, each) for each in answer.messages if call.may_view(each.topic)]
        one = await _detail(call, store, seen[0]) if is_one and len(seen) == 1 else None
    except NotFound as error:
        elsewhere = None if topic else call.node.in_kafka.other_messages()
        return replace(empty, asked=True, problem=elsewhere or f"Not found: {error}.")
    except QueryRefused as error:
        return replace(empty, asked=True, problem=f"The search is not valid: {error}.")
    except ClusterUnavailable as error:
        return replace(empty, asked=True, problem=f"{error}.")
    is_search = "text" in given or (cluster is not None and bool({"id", "key"} & given.keys()))
    view = replace(empty, asked=True, found=seen, damaged=answer.damaged, searching=is_search)
    if one is not None:
        return replace(view, one=one, found=())
    return view if answer.cursor is None else _continued(view, call, answer, answer.cursor)


def _as_allowed(call: PageCall, found: MessageView) -> MessageView:
    """Return a message without its body where the viewer may not read it."""
    return found if call.may_read_bodies(found.topic) else replace(found, body="", body_encoding="utf-8")


def _continued(view: MessagesView, call: PageCall, answer: MessagesAnswer, cursor: int | str) -> MessagesView:
    query = {**view.given, "cursor": str(cursor)}
    if isinstance(cursor, str):
        return replace(view, more=urlencode(query), share=answer.share)
    # No number is given at first, and where the search begins at the end of the log.
    given = whole_number(call.query.get("cursor"))
    begun = call.node.log_begin if given is None else given
    share = (cursor - begun) / max(1, answer.log_end - begun)
    return replace(view, more=urlencode(query), share=share, first=begun)


async def _detail(call: PageCall, store: Searchable | None, found: MessageView) -> MessageDetail:
    """Return all of a message. Raises NotFound: it was deleted since it was found."""
    topic = found.properties.get("REAL_TOPIC", found.topic)
    groups = call.node.in_groups(topic=found.topic, queue=found.queue, offset=found.offset)
    seen = [each for each in groups if call.may_view(each.group)]
    if found.cluster:
        steps = way_in_kafka(found, seen)
    else:
        assert store is not None, "the message was found in it"
        steps = await call.search(way(store, at_physical(store, found.physical), seen))
    may_read = call.may_read_bodies(found.topic)
    wanted = call.query.get("format", "pretty")
    shown, body = _body_of(found, wanted if wanted in FORMATS else "pretty") if may_read else ("text", "")
    return MessageDetail(
        message=replace(found, body=""),
        may_read=may_read,
        body=body[:BODY_SHOWN],
        shown=shown,
        shortened=len(body) > BODY_SHOWN or (shown == "hex" and found.body_bytes > HEX_SHOWN),
        way=[each for each in steps if not each.topic or call.may_view(each.topic) or each.topic == topic],
        groups=seen,
    )


def _body_of(found: MessageView, wanted: str) -> tuple[str, str]:
    """Return the format that a body is shown in, and the body."""
    is_text = found.body_encoding == "utf-8"
    if wanted == "hex" or not is_text:
        raw = found.body.encode() if is_text else base64.b64decode(found.body)
        return "hex", hex_dump(raw[:HEX_SHOWN])
    if wanted == "pretty" and len(found.body) <= BODY_SHOWN:
        try:
            content = json.loads(found.body, parse_float=_exact, object_pairs_hook=members)
            written = json.dumps(content, indent=2, ensure_ascii=False)
            written.encode()  # A half of a surrogate pair, which JSON can have, cannot be sent.
            return "pretty", written
        except (ValueError, ArithmeticError, RecursionError):
            return "text", found.body
    return "text", found.body


def _exact(text: str) -> float:
    """Return a number of JSON. Raises ValueError, ArithmeticError: it would be written as another one."""
    number = float(text)
    if Decimal(text) != Decimal(repr(number)):
        raise ValueError(text)
    return number


def hex_dump(raw: bytes) -> str:
    """Write bytes as lines of an offset, 16 bytes in hex, and their ASCII characters."""
    rows = []
    for start in range(0, len(raw), _HEX_ROW):
        part = raw[start : start + _HEX_ROW]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        rows.append(f"{start:06x}  {part.hex(' '):<47}  {text}")
    return "\n".join(rows)
