"""Dead letters on the admin port: groups that have some, a group's figures, and its dead letters page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from broker.query import QueryRefused
from broker.retry.letters import Wanted
from broker.retry.redrive import Redrives
from broker.store import Store
from proxy.operate.dead_letters import Figures, LetterPage, describe, overview
from proxy.operate.moments import parse_moment

Document = dict[str, Any]

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
PARAMETERS = ("group", "figures", "id", "topic", "reason", "key", "from", "until", "cursor", "limit")


async def document(store: Store, redrives: Redrives, given: Mapping[str, str], *, now_ms: int) -> Document:
    """Return what a request asks for, giving way after each bounded piece of work.

    Raises:
        QueryRefused: A parameter makes no sense.
        NotFound: The group never had a dead letter.
    """
    unknown = sorted(set(given) - set(PARAMETERS))
    if unknown:
        raise QueryRefused(f"there is no parameter {unknown[0]!r}; use {', '.join(PARAMETERS)}")
    for _ in redrives.opening():
        await asyncio.sleep(0)
    group = given.get("group")
    if group is None:
        return {"nowMs": now_ms, **overview(store)}
    if given.get("figures") == "true":
        figures = Figures(store, redrives, group)
        for _ in figures.steps():
            await asyncio.sleep(0)
        return {"nowMs": now_ms, **figures.document()}
    page = LetterPage(store, group, _wanted(given, now_ms), cursor=given.get("cursor"), limit=_limit(given))
    found = []
    for letter in page.found():
        if letter is None:
            await asyncio.sleep(0)
        else:
            found.append(describe(store, redrives, letter))
    return {"nowMs": now_ms, "group": group, "lookedAt": page.looked_at, "cursor": page.cursor, "deadLetters": found}


def _wanted(given: Mapping[str, str], now_ms: int) -> Wanted:
    moments: dict[str, int | None] = {}
    for name in ("from", "until"):
        try:
            moments[name] = parse_moment(given[name], now_ms) if name in given else None
        except ValueError as error:
            raise QueryRefused(f"{name}: {error}") from error
    return Wanted(
        id=given.get("id"),
        topic=given.get("topic"),
        reason=given.get("reason"),
        key=given.get("key"),
        from_ms=moments["from"],
        until_ms=moments["until"],
    )


def _limit(given: Mapping[str, str]) -> int:
    text = given.get("limit", str(LIMIT_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text)):
        raise QueryRefused(f"limit is {text!r}; it must be 1 to {LIMIT_MAX}")
    return min(int(text), LIMIT_MAX)
