"""Each route of the admin port by each right: asked over real sockets, from the list that the port itself has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conf.sections.access import AccessRule
from conf.sections.admin import AdminConfig
from proxy.access.access import DENIED
from proxy.access.rules import Permission
from proxy.admin.console.menu import PAGES
from proxy.admin.entry.rights import BODIES as BODIES_NEED
from proxy.admin.entry.rights import OWN, READING, WITHOUT_RIGHT
from proxy.operate.changes.dead_letters import dead_letter_changes
from proxy.operate.changes.delays import delay_changes
from proxy.operate.changes.desk import Change
from proxy.operate.changes.groups import group_changes
from proxy.operate.changes.node import node_changes
from proxy.operate.changes.offsets import offset_changes
from proxy.operate.changes.publish import publish_changes
from proxy.operate.changes.timers import timer_changes
from proxy.operate.changes.topics import topic_changes
from proxy.operate.changes.transactions import transaction_changes
from tests.access.admin_world import HOME, AdminWorld, routes_of

ROOT = Path(__file__).resolve().parents[2]
NODE: Any = None
"""What changes are made on: they are not run here."""
CHANGES = tuple(node_changes(NODE))
assert len(CHANGES) == sum(
    len(each(NODE))
    for each in (
        dead_letter_changes,
        delay_changes,
        group_changes,
        offset_changes,
        publish_changes,
        timer_changes,
        topic_changes,
        transaction_changes,
    )
)
HEAD = {"group": "billing", "topic": "orders", "queue": 0, "offset": 1}
BODIES: dict[str, dict[str, Any]] = {
    "pause": {"group": "billing"},
    "resume": {"group": "billing"},
    "retry_message": HEAD,
    "skip_message": HEAD,
    "dead_letter_message": HEAD,
    "redrive_dead_letters": {"group": "billing"},
    "reset_offsets": {"group": "billing", "topic": "orders", "to": "latest"},
    "cancel_delays": {"messages": [{"id": "x", "topic": "billing"}]},
    "cancel_timers": {"timers": [{"id": "x", "topic": "billing"}]},
    "reschedule_timer": {"id": "x", "deliverAtMs": 1_800_000_000_000, "topic": "billing"},
    "publish_message": {"topic": "billing", "body": "x"},
    "create_topic": {"topic": "billing", "queues": 1},
    "alter_topic": {"topic": "billing", "queues": 2},
    "delete_topic": {"topic": "billing", "confirm": "billing"},
    "decide_transaction": {"id": "x", "state": "commit"},
    "resume_transaction": {"id": "x"},
    "pause_timers": {"stage": "all"},
    "resume_timers": {"stage": "all"},
    "reload": {},
}
NARROW = frozenset(
    {"pause", "resume", "retry_message", "skip_message", "dead_letter_message", "redrive_dead_letters"}
    | {"reset_offsets", "cancel_delays", "cancel_timers", "reschedule_timer"}
)
"""Changes of one name, which who may operate that name alone may make."""
ALL_READING = {**READING, **{each.path: each.need for each in PAGES}}
HOLDERS = {
    Permission.VIEW: "viewer",
    Permission.OPERATE: "operator",
    Permission.READ_BODIES: "reader",
    Permission.ADMINISTER: "admin",
    Permission.PRODUCE: "producer",
}
PEOPLE = ("viewer", "operator", "reader", "admin", "producer", "stranger")


def is_denied(status: int) -> bool:
    """Whether an answer says that somebody may not."""
    return status in (401, 403)


def test_every_route_is_denied_without_its_right_and_answered_with_it() -> None:
    """By nobody, by each who has another right, and by who has it: reading, changing, metrics."""
    world = AdminWorld(changes=CHANGES)
    asked = []

    async def scenario() -> None:
        for method, canonical in routes_of(world.server):
            path = canonical
            if method in ("GET", "HEAD"):
                need = ALL_READING[canonical].action
                if ALL_READING[canonical] is OWN:
                    # Anyone whom a rule names; it shows what that rule lets them view.
                    for person in PEOPLE:
                        answer = await world.ask(path, by=person)
                        assert is_denied(answer.status) == (person == "stranger"), (path, person)
                    continue
                path = {"/group": "/group?group=permits-audit", "/static/{name}": "/static/console.css"}.get(
                    canonical, canonical
                )
                if canonical == "/api/messages":
                    path, need = f"{path}?topic=permits&body=none", Permission.VIEW
                more: dict[str, Any] = {}
            elif canonical in WITHOUT_RIGHT:
                continue
            else:
                [change] = [each for each in (*CHANGES, RELOAD) if (each.method, each.path) == (method, canonical)]
                need, more = change.action, {"json": BODIES[change.name]}
            for person in PEOPLE:
                answer = await world.ask(path, method=method, by=person, **more)
                may = need is None or person == HOLDERS[need]
                assert is_denied(answer.status) != may, (method, path, person, answer.status)
                asked.append(answer)
            answer = await world.ask(path, method=method, **more)
            assert is_denied(answer.status) == (need is not None), (method, path, answer.status)

    world.run(scenario)
    assert len(asked) > 300
    assert len(world.done) == len(CHANGES)
    assert world.node.reloads == 1


RELOAD = Change(
    name="reload",
    path="/api/reload",
    action=Permission.ADMINISTER,
    on=lambda _: ("node",),
    run=lambda _: None,  # type: ignore[arg-type, return-value]
)


def test_bodies_need_the_right_to_read_them() -> None:
    """On the topic that is named; by an id, which may be of any topic, on all."""
    world = AdminWorld()

    async def scenario() -> None:
        for more in ("", "&body=cut", "&body=whole"):
            path = f"/api/messages?topic=permits{more}"
            assert (await world.ask(path, by="viewer")).status == 403
            assert (await world.ask(path, by="reader")).status == 200
            narrow = await world.ask(path, by="narrow")
            assert narrow.status == 200
            assert json.loads(narrow.text)["messages"]
        [first, *_] = json.loads((await world.ask("/api/messages?topic=permits", by="reader")).text)["messages"]
        for one in (f"id={first['id']}", f"physical={first['physical']}", f"id={first['id']}&body=none"):
            assert (await world.ask(f"/api/messages?topic=permits&{one}", by="narrow")).status == 403, one
        assert (await world.ask(f"/api/messages?id={first['id']}", by="reader")).status == 200
        assert (await world.ask("/api/messages?topic=permits&body=none", by="viewer")).status == 200

    world.run(scenario)


def test_body_is_shown_as_text_that_no_browser_runs() -> None:
    """JSON, said to be so, that nothing may frame, keep or take for a page."""
    world = AdminWorld()

    async def scenario() -> None:
        answer = await world.ask("/api/messages?topic=permits", by="reader")
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy

    world.run(scenario)


def test_who_may_see_one_name_sees_that_and_no_other() -> None:
    """A whole list is for who may view all; nothing about the node or other groups stands in the answer for one."""
    world = AdminWorld(changes=CHANGES)
    world.node.troubles_view = type(world.node.troubles_view)(kafka={"secret-group": "no route"})

    async def scenario() -> None:
        for path in (
            "/clients",
            "/node",
            "/audit",
            "/api/groups",
            "/api/topics",
            "/api/stats",
            "/metrics",
            "/api/groups?group=orders-billing",
        ):
            assert (await world.ask(path, by="narrow")).status == 403, path
        for path in (
            "/group?group=permits-audit",
            "/api/groups?group=permits-audit",
            "/api/groups/stuck?group=permits-audit",
        ):
            answer = await world.ask(path, by="narrow")
            assert answer.status == 200, path
            assert "secret-group" not in answer.text
            assert "secret-group" in (await world.ask(path, by="viewer")).text
        tiles = ("Clients</span>", "Loop delay", " free</span>", "Published</span>")
        narrow = (await world.ask("/", by="narrow")).text
        whole = (await world.ask("/", by="viewer")).text
        assert ("secret-group" in narrow, "secret-group" in whole) == (False, True)
        assert [tile for tile in tiles if tile in narrow] == []
        assert [tile for tile in tiles if tile in whole] == list(tiles)
        assert (await world.ask("/api/topics?topic=permits", by="narrow")).status == 200
        for change in CHANGES:
            status = (await world.ask(change.path, method=change.method, by="narrow", json=BODIES[change.name])).status
            assert (status == 200) == (change.name in NARROW), change.name
        # Another topic is another right, and none named may be any.
        for path, body in (
            ("/api/dead-letters/redrive", {"group": "billing", "to": "orders"}),
            ("/api/timers/cancel", {"timers": [{"id": "x", "topic": "billing"}, {"id": "y"}]}),
            ("/api/timers/cancel", {"timers": [{"id": "x", "topic": ""}]}),
            ("/api/delays/cancel", {"messages": [{"id": "x", "topic": "billing"}, {"id": "y", "topic": "orders"}]}),
            ("/api/timers/reschedule", {"id": "x", "deliverAtMs": 1_800_000_000_000, "topic": ""}),
            ("/api/groups/pause", {"group": "*"}),
        ):
            assert (await world.ask(path, method="POST", by="narrow", json=body)).status == 403, body

    world.run(scenario)


def test_parameter_that_is_given_twice_is_refused() -> None:
    """So that what is looked at is what is answered."""
    world = AdminWorld()

    async def scenario() -> None:
        answer = await world.ask("/api/groups?group=permits-audit&group=orders-billing", by="narrow")
        assert (answer.status, answer.error) == (400, "A parameter is repeated; pass each parameter once.")

    world.run(scenario)


def test_body_of_a_node_with_a_token_is_not_had_by_a_second_parameter() -> None:
    """Without rules, too, what is looked at is what is answered."""
    world = AdminWorld(rules=None, token="secret")

    async def scenario() -> None:
        path = "/api/messages?topic=permits&queue=0&offset=0"
        assert (await world.ask(f"{path}&body=whole")).status == 401
        assert (await world.ask(f"{path}&body=none")).status == 200
        answer = await world.ask(f"{path}&body=none&body=whole")
        assert (answer.status, answer.error) == (400, "A parameter is repeated; pass each parameter once.")
        assert (await world.ask(f"{path}&body=whole&body=none")).status == 400

    world.run(scenario)


def test_denial_tells_nothing_of_what_exists() -> None:
    """The same answer for a group that is there and for one that is not, for reading and for changing."""
    world = AdminWorld(changes=CHANGES)

    async def scenario() -> None:
        for path in ("/api/groups?group={}", "/api/lag?group={}"):
            there, none = [await world.ask(path.format(name), by="stranger") for name in ("permits-audit", "nope")]
            assert there.status == none.status == 403
            assert there.error.replace("permits-audit", "nope") == none.error
        body = {"group": "permits-audit"}, {"group": "nope"}
        there, none = [await world.ask("/api/groups/pause", method="POST", by="stranger", json=each) for each in body]
        assert there.error.replace("permits-audit", "nope") == none.error

    world.run(scenario)


def test_denials_are_counted_told_and_audited_with_who_and_from_where() -> None:
    """A kind is one line a minute, in the log and in the trail."""
    world = AdminWorld(changes=CHANGES)

    async def scenario() -> None:
        for _ in range(5):
            await world.ask("/api/groups", by="stranger")
        await world.ask("/api/groups/pause", method="POST", by="viewer", json={"group": "billing"})
        await world.ask("/api/groups", headers={"Authorization": "Bearer wrong"})

    world.run(scenario)
    assert world.node.metrics.value(DENIED, "GET /api/groups", "right") == 5
    assert world.node.metrics.value(DENIED, "GET /api/groups", "proof") == 1
    assert world.reported() == [
        ("stranger", "GET /api/groups", "denied"),
        ("viewer", "POST /api/groups/pause", "denied"),
        ("", "GET /api/groups", "denied"),
    ]
    entries = {(each.principal, each.why): each for each in world.audit.recent(10)[0]}
    assert entries["stranger", "right"].resource == "*"
    assert entries["viewer", "right"].resource == "billing"
    assert {each.address for each in entries.values()} == {"127.0.0.1"}


@pytest.mark.parametrize(
    "given",
    ["Bearer wrong", "Bearer ", "Basic YTpi", "wrong", "Bearer pyddmq_0000000000000000_" + "0" * 64, "Bearer é"],
)
def test_token_that_proves_nothing_is_never_followed_by_the_network(given: str) -> None:
    """Who brings one and has it wrong is nobody, whatever his address would be."""
    world = AdminWorld(rules=(AccessRule(principals=["home"], view=["*"]),), networks=(HOME,))

    async def scenario() -> None:
        assert (await world.ask("/api/groups")).status == 200
        assert (await world.ask("/api/groups", headers={"Authorization": given})).status == 401

    world.run(scenario)


def test_probes_are_open_and_say_no_more_than_whether() -> None:
    """Under any name and by anybody; names and reasons are for who may see them."""
    world = AdminWorld()
    world.node.state, world.node.reasons = "failed", ("/srv/data/commitlog: it broke.",)

    async def scenario() -> None:
        for path in ("/livez", "/healthz"):
            assert (await world.ask(path, headers={"Host": "evil.example"})).status == 200
        for path in ("/readyz", "/readyz?verbose"):
            for headers in ({"Host": "evil.example"}, {}, {"Authorization": "Bearer wrong"}):
                answer = await world.ask(path, headers=headers)
                assert (answer.status, answer.text) == (503, "not ready: failed\n")
            assert "it broke" in (await world.ask(path, by="viewer")).text

    world.run(scenario)
    assert world.reported() == []


def test_host_and_origin_are_looked_at_on_every_route_but_probes() -> None:
    """Metrics too, and with a token that is right; names of `admin.hosts` are the node's own."""
    world = AdminWorld(changes=CHANGES, hosts=("node-1.example.com",))

    async def scenario() -> None:
        for method, path in routes_of(world.server):
            if path in ("/livez", "/healthz", "/readyz"):
                continue
            more: dict[str, Any] = {} if method in ("GET", "HEAD") else {"json": {}}
            for headers in (
                {"Host": "evil.example"},
                {"Origin": "http://evil.example"},
                {"Origin": "null"},
                {"Sec-Fetch-Site": "cross-site"},
                {"Sec-Fetch-Site": "same-site"},
            ):
                answer = await world.ask(path, method=method, by="all", headers=headers, **more)
                assert answer.status == 403, (method, path, headers, answer.status)
            own = {"Host": f"node-1.example.com:{world.port}", "Origin": f"http://node-1.example.com:{world.port}"}
            assert (await world.ask(path, method=method, by="all", headers=own, **more)).status != 403, (method, path)

    world.run(scenario)


def test_requests_that_no_route_has_make_one_kind_of_denial() -> None:
    """Whatever methods and paths somebody makes up: nothing is kept of them."""
    world = AdminWorld()

    async def scenario() -> None:
        for number, method in enumerate(("GET", "PUT", "PATCH", "PROPFIND", "SEARCH", "LOCK", "M-SEARCH")):
            for path in (f"/made-up-{number}", f"/api/{number}"):
                assert (await world.ask(path, method=method, headers={"Host": "evil.example"})).status == 403

    world.run(scenario)
    kinds = {labels for spec, labels, value in world.node.metrics if spec.name == DENIED and value}
    assert kinds == {("?", "site")}
    assert world.reported() == [("", "?", "denied")]


def test_metrics_are_answered_by_a_token_that_may_view() -> None:
    """As a scraper asks; and without rules to anybody under any name, as before."""
    world, open_world = AdminWorld(), AdminWorld(rules=None)

    async def scenario() -> None:
        for path in ("/metrics", "/api/lag"):
            assert (await world.ask(path)).status == 401
            assert (await world.ask(path, by="stranger")).status == 403
            assert (await world.ask(path, by="viewer")).status in (200, 404)

    async def without() -> None:
        assert (await open_world.ask("/metrics", headers={"Host": "node-1.internal"})).status == 200

    world.run(scenario)
    open_world.run(without)


def test_without_rules_the_one_token_guards_changes_bodies_and_the_trail() -> None:
    """Reading the rest is open, as before; there is nobody to sign in."""
    world = AdminWorld(rules=None, token="secret", changes=CHANGES)
    right = {"Authorization": "Bearer secret"}

    async def scenario() -> None:
        assert (await world.ask("/api/groups")).status == 200
        assert (await world.ask("/", headers={"Accept": "text/html"})).status == 200
        for path in ("/api/messages?topic=permits", "/audit", "/api/audit"):
            assert (await world.ask(path)).status == 401
            assert (await world.ask(path, headers=right)).status == 200
        body = {"group": "billing"}
        assert (await world.ask("/api/groups/pause", method="POST", json=body)).status == 401
        assert (await world.ask("/api/groups/pause", method="POST", json=body, headers=right)).status == 200
        assert (await world.ask("/sign-in")).status == 404
        assert (await world.ask("/sign-in", method="POST", data={"token": "secret"})).status == 404

    world.run(scenario)
    assert [each for each in world.reported() if each[2] != "denied"] == [("", "pause", "asked"), ("", "pause", "done")]
    assert world.audit.recent(1)[0][0].way == "adminToken"


def test_port_with_a_route_without_a_right_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever adds a route says who may ask it."""
    without = {path: need for path, need in READING.items() if path != "/api/stats"}
    monkeypatch.setattr("proxy.admin.routes.READING", without)

    async def scenario() -> None:
        raise AssertionError("it has started")

    with pytest.raises(AssertionError, match=r"no right is listed for .* /api/stats"):
        AdminWorld().run(scenario)


def test_documented_table_says_the_same() -> None:
    """docs/admin.md lists each route with its right, and no other."""
    text = (ROOT / "docs" / "admin.md").read_text(encoding="utf-8").partition("\n## Rights")[2].partition("\n## ")[0]
    found = {
        (method, path): re.findall(r"`(\w+)`", right)
        for path, method, right in re.findall(r"^\| `([^`]+)` \| (GET|POST|DELETE) \| ([^|]+) \|", text, re.MULTILINE)
    }
    messages = found.pop(("GET", "/api/messages"))
    assert (messages[:2], BODIES_NEED.action) == (["readBodies", "view"], Permission.READ_BODIES)
    expected = {("GET", path): [] if need.action is None else [str(need.action)] for path, need in ALL_READING.items()}
    del expected["GET", "/api/messages"]
    expected |= {(each.method, each.path): [str(each.action)] for each in (*CHANGES, RELOAD)}
    expected |= {("POST", path): [] for path in WITHOUT_RIGHT}
    assert found == expected


def test_names_of_the_port_come_and_go_with_a_reload() -> None:
    """What the section says now is asked for each request."""
    world = AdminWorld()

    async def scenario() -> None:
        named = {"Host": "node-1.example.com"}
        assert (await world.ask("/api/stats", by="all", headers=named)).status == 403
        world.settings = AdminConfig(hosts=["node-1.example.com"])
        assert (await world.ask("/api/stats", by="all", headers=named)).status == 200
        world.settings = AdminConfig()
        assert (await world.ask("/api/stats", by="all", headers=named)).status == 403

    world.run(scenario)
