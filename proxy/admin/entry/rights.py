"""Which right each route of the admin port needs. A port with a route that is not in here does not start.

Reading needs a right on what the request names; on `*`, which is all, where it names nothing, or something of which it
is only known afterwards whose it is. Changes say theirs themselves (`proxy.operate.changes.desk.Change`). Where there
are no rules, reading is open, but for what needs `readBodies` or `administer`: that needs `node.adminTokenFile`'s
token, where there is one, as changes do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from aiohttp import web

from proxy.access.rules import EVERYTHING, NODE, Permission
from proxy.operate.changes.desk import Change

PROBES = frozenset(("/livez", "/healthz", "/readyz"))
"""Paths answered to any client, under any name."""


class Need(NamedTuple):
    """What a route needs.

    Attributes:
        action: The right; None: any client.
        on: Returns the topics and groups that it is needed on.
        text: These, in the words of the documentation.
    """

    action: Permission | None
    on: Callable[[web.Request], Sequence[str]]
    text: str


def _everything(_: web.Request) -> Sequence[str]:
    return (EVERYTHING,)


def _node(_: web.Request) -> Sequence[str]:
    return (NODE,)


def _named(name: str) -> Callable[[web.Request], Sequence[str]]:
    return lambda request: (request.query.get(name, EVERYTHING),)


def _of_messages(request: web.Request) -> Sequence[str]:
    # An id may be that of a message of any topic, not only of the one named beside it.
    query = request.query
    return (query["topic"],) if "topic" in query and not {"id", "physical"} & query.keys() else (EVERYTHING,)


NOBODY = Need(None, lambda _: (), "")
OWN = Need(Permission.VIEW, lambda _: (), "any; it shows what the caller may view")
ALL = Need(Permission.VIEW, _everything, "`*`")
GROUP = Need(Permission.VIEW, _named("group"), "the group, without one `*`")
TOPIC = Need(Permission.VIEW, _named("topic"), "the topic, without one `*`")
MESSAGES = Need(Permission.VIEW, _of_messages, "the topic; by `id`, `physical` or without a topic `*`")
BODIES = MESSAGES._replace(action=Permission.READ_BODIES)
ADMINISTER = Need(Permission.ADMINISTER, _node, "the node")

READING: Mapping[str, Need] = MappingProxyType(
    {
        **dict.fromkeys(sorted(PROBES), NOBODY),
        "/sign-in": NOBODY,
        "/static/{name}": NOBODY,
        "/metrics": ALL,
        "/api/audit": ADMINISTER,
        "/api/topics": TOPIC,
        "/api/groups": GROUP,
        "/api/groups/stuck": GROUP,
        "/api/offsets": GROUP,
        "/api/lag": GROUP,
        "/api/lag/objectives": GROUP,
        "/api/attention": ALL,
        "/api/limits": ALL,
        "/api/losses": ALL,
        "/api/stats": ALL,
        "/api/nodes": ALL,
        # Their counts are of all topics, whatever is listed.
        "/api/delays": ALL,
        "/api/transactions": ALL,
        "/api/timers": ALL,
        "/api/timers/show": ALL,
        # With `body=none`; else `BODIES`.
        "/api/messages": MESSAGES,
        "/api/dead-letters": GROUP,
        # With `bodies=true`, `readBodies` on their topic, too.
        "/api/dead-letters/download": GROUP,
    }
)
"""By path, of GET and HEAD; those of the console's pages are beside them (`proxy.admin.console.menu`)."""

WITHOUT_RIGHT: Mapping[str, str] = MappingProxyType(
    {"/sign-in": "it authenticates the client", "/sign-out": "it ends only the client's own session"}
)
"""What else is posted, and why it needs no right."""


def need_of(request: web.Request, reading: Mapping[str, Need]) -> Need:
    """Return what a request for reading needs, by the paths of `reading`; of one that no route has, nothing."""
    resource = request.match_info.route.resource
    if resource is None:
        return NOBODY
    if resource.canonical == "/api/messages" and (request.query.get("body") != "none" or "text" in request.query):
        return BODIES
    return reading[resource.canonical]


def check_routes(router: web.UrlDispatcher, changes: Sequence[Change], reading: Mapping[str, Need]) -> None:
    """Assert that each route has its right."""
    posted = {(change.method, change.path) for change in changes} | {("POST", path) for path in WITHOUT_RIGHT}
    for route in router.routes():
        path = "" if route.resource is None else route.resource.canonical
        known = path in reading if route.method in ("GET", "HEAD") else (route.method, path) in posted
        assert known, f"no right is listed for {route.method} {path}: proxy/admin/entry/rights.py"
