"""Dead letters: the groups that have some, and those of one group by reason, with a redrive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from msgspec.structs import replace

from broker.query import NotFound, QueryRefused
from broker.queues.topics import DEAD_LETTER_PREFIX
from broker.retry.redrive import Redrives
from broker.store import Store
from broker.views import View
from proxy.admin.console.calls import PageCall
from proxy.operate.attention.kinds import command
from proxy.operate.lookups import dead_letters as lookup
from proxy.operate.lookups.messages_in_kafka import ClusterUnavailable
from proxy.operate.moments import parse_moment
from proxy.operate.views.dead_letters import (
    DeadLetterFigures,
    DeadLetterGroup,
    DeadLetterGroupsAnswer,
    DeadLettersAnswer,
    DeadLetterView,
    LettersInKafka,
)
from upstream.kafka.broker import DEAD_LETTER_SUFFIX

FILTERS = ("topic", "reason", "action", "key", "id", "from", "until")
PARAMETERS = ("group", *FILTERS, "cursor")
FIGURES_MAX = 50_000
"""Dead letters of a group that are counted by reason; of more the page shows the list alone."""
FIGURES_SCANS = 4
"""Likewise in Kafka: scans of 16 MiB."""
FIGURES_SECONDS = 10.0
GROUPS_SHOWN = 200


class DeadLettersView(View, frozen=True, kw_only=True):
    """The groups with dead letters, or the dead letters of one group.

    Attributes:
        now_ms: Now, by the node's wall clock.
        group: The group; "" for the list of groups.
        given: What the filter has.
        problem: Why nothing can be shown; "" for none.
        groups: Groups that the viewer may see, those with most dead letters first.
        groups_total: How many there are.
        in_kafka: Groups over Kafka.
        figures: Counts by topic, reason and action; null without them.
        letters: A page of the dead letters, the oldest first.
        more: The query of the next page; "" after the last one.
        redrive: Body of a redrive of what the filter matches; null where the viewer may not redrive.
        command: The command that does the same.
        letter_topic: Topic of the dead letters.
        may_read: Whether the viewer may read their bodies.
    """

    now_ms: int
    group: str = ""
    given: Mapping[str, str] = {}
    problem: str = ""
    groups: Sequence[DeadLetterGroup] = ()
    groups_total: int = 0
    in_kafka: Sequence[LettersInKafka] = ()
    figures: DeadLetterFigures | None = None
    letters: Sequence[DeadLetterView] = ()
    more: str = ""
    redrive: Mapping[str, Any] | None = None
    command: str = ""
    letter_topic: str = ""
    may_read: bool = False

    def narrowed(self, **more: str) -> str:
        """Return the query that filters by something else."""
        return urlencode({"group": self.group, **{name: value for name, value in more.items() if value}})


async def dead_letters(call: PageCall) -> DeadLettersView:
    """Return what the page shows. Raises HTTPForbidden."""
    node, group = call.node, call.query.get("group", "")
    view = DeadLettersView(now_ms=node.clock.wall_ms(), group=group)
    if group and not call.may_view(group):
        raise web.HTTPForbidden(text=f"Group {group!r} needs the right to view it.")
    opened, cluster = node.dead_letters(), node.in_kafka.cluster_of_letters(group)
    if opened is None:
        return replace(view, problem="The store is opening; try again when /readyz reports ready.")
    if not group:
        return await _groups(call, opened, view)
    given = {name: value for name in FILTERS if (value := call.query.get(name, "").strip())}
    view = replace(view, given=given)
    asked = {"group": group, **given, **({"cursor": call.query["cursor"]} if "cursor" in call.query else {})}
    topic = DEAD_LETTER_PREFIX + group if cluster is None else group + DEAD_LETTER_SUFFIX
    answer: View | None
    try:
        if cluster is not None:
            answer = await node.letters_in_kafka(asked)
        else:
            async with call.searching:
                answer = await lookup.search(*opened, asked, now_ms=view.now_ms)
        figures = await _figures(call, group)
    except NotFound as error:
        return replace(view, problem=f"Not found: {error}.")
    except QueryRefused as error:
        return replace(view, problem=f"The filter is not valid: {error}.")
    except ClusterUnavailable as error:
        return replace(view, problem=f"{error}.")
    assert isinstance(answer, DeadLettersAnswer), "a group was requested"
    return replace(
        view,
        figures=figures,
        letters=answer.dead_letters,
        more="" if answer.cursor is None else urlencode({"group": group, **given, "cursor": answer.cursor}),
        redrive=_redrive(group, given, view.now_ms) if call.may_operate(group) else None,
        command=_command(group, given),
        letter_topic=topic,
        may_read=call.may_read_bodies(topic),
    )


async def _groups(call: PageCall, opened: tuple[Store, Redrives], view: DeadLettersView) -> DeadLettersView:
    async with call.searching:
        answer = await lookup.search(*opened, {}, now_ms=view.now_ms)
    assert isinstance(answer, DeadLetterGroupsAnswer), "no group was requested"
    seen = sorted(
        (each for each in answer.groups if call.may_view(each.group)), key=lambda each: (-each.dead_letters, each.group)
    )
    in_kafka = [each for each in call.node.in_kafka.all_letters() if call.may_view(each.group)]
    return replace(view, groups=seen[:GROUPS_SHOWN], groups_total=len(seen), in_kafka=in_kafka)


async def _figures(call: PageCall, group: str) -> DeadLetterFigures | None:
    """Return counts by reason, of the last seconds; None where there are too many dead letters to count."""

    async def count() -> DeadLetterFigures | None:
        if call.node.in_kafka.cluster_of_letters(group) is not None:
            given = {"group": group, "figures": "true"}
            found = await call.node.letters_in_kafka(given, scans_max=FIGURES_SCANS)
            assert not isinstance(found, DeadLettersAnswer), "figures were requested"
            return found
        opened = call.node.dead_letters()
        if opened is None:
            return None
        topic = opened[0].topics[DEAD_LETTER_PREFIX + group]
        if sum(each.max_offset - each.min_offset for each in topic.queues) > FIGURES_MAX:
            return None
        return await call.search(lookup.figures(*opened, group, now_ms=call.node.clock.wall_ms()))

    return await call.kept(("dead letters", group), FIGURES_SECONDS, count)


def _redrive(group: str, given: Mapping[str, str], now_ms: int) -> Mapping[str, Any]:
    """Return the body of a redrive (`proxy.operate.changes.dead_letters`); the filter was found to be valid."""
    moments = {f"{name}Ms": parse_moment(given[name], now_ms) for name in ("from", "until") if name in given}
    return {"group": group, **{name: given[name] for name in FILTERS[:5] if name in given}, **moments}


def _command(group: str, given: Mapping[str, str]) -> str:
    options = [word for name, value in given.items() for word in (f"--{name}", value)] or ["--all"]
    return command("dlq", "redrive", group, *options)
