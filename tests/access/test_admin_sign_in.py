"""Signing in to the admin port with a browser: the page, the cookie, what a session may, and how it ends."""

from __future__ import annotations

import re
from http.cookies import SimpleCookie
from typing import Any

import pytest

from conf.sections.access import AccessRule
from proxy.access.sessions import IDLE_SECONDS
from proxy.admin.entry import gate
from proxy.admin.entry.gate import BURST, SECONDS_EACH
from proxy.admin.entry.sign_in import SIGN_INS
from tests.access.admin_world import HOME, AdminWorld, Answer
from tests.access.test_admin_gate import CHANGES
from tests.admin_node import NOW_MS

HTML = {"Accept": "text/html"}


async def post(world: AdminWorld, token: str | None, **headers: str) -> Answer:
    """Send the form of the sign-in page."""
    data = {} if token is None else {"token": token}
    return await world.ask("/sign-in", method="POST", data=data, headers={**world.origin(), **headers})


def test_browser_without_a_session_is_led_to_the_page_and_gets_one_by_a_token() -> None:
    """The page is a form that needs no script; a token makes a cookie, by which pages and answers come."""
    world = AdminWorld()

    async def scenario() -> None:
        first = await world.ask("/", headers=HTML)
        assert (first.status, first.headers["Location"]) == (303, "/sign-in")
        page = await world.ask("/sign-in", headers=HTML)
        assert page.status == 200
        assert '<form class="card" method="post" action="/sign-in">' in page.text
        assert "<script" not in page.text
        assert "form-action 'self'" in page.headers["Content-Security-Policy"]
        cookie = await world.sign_in("all")
        shown = await world.ask("/", headers=HTML, cookie=cookie)
        assert shown.status == 200
        assert ">all</b>" in shown.text
        assert "Sign out" in shown.text
        assert (await world.ask("/api/groups", cookie=cookie)).status == 200

    world.run(scenario)
    assert world.reported() == [("", "GET /", "denied"), ("all", "sign_in", "done")] or world.reported()[-1] == (
        "all",
        "sign_in",
        "done",
    )
    assert world.node.metrics.value(SIGN_INS, "done") == 1


def test_cookie_is_read_by_no_script_and_sent_by_no_other_site() -> None:
    """HttpOnly, SameSite=Strict, of this port, without an end of its own; the token stands nowhere in the answer."""
    world = AdminWorld()

    async def scenario() -> None:
        token = world.token("viewer")
        answer = await post(world, token)
        cookies = SimpleCookie(answer.headers["Set-Cookie"])
        [(name, morsel)] = cookies.items()
        assert name == f"pyddmq-{world.port}"
        assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "Strict", "/")
        assert (morsel["secure"], morsel["max-age"], morsel["domain"]) == ("", "", "")
        assert re.fullmatch(r"[0-9a-f]{64}", morsel.value)
        assert token[24:] not in answer.text + str(answer.headers)
        assert token[24:] not in str(world.disk.contents())

    world.run(scenario)


@pytest.mark.parametrize("token", [None, "", "wrong", "pyddmq_0000000000000000_" + "0" * 64, "é\x00", "x" * 20_000])
def test_token_that_is_none_makes_no_session(token: str | None) -> None:
    """The page again, with a sentence that is the same for all, and a denial in the trail."""
    world = AdminWorld()

    async def scenario() -> None:
        answer = await post(world, token)
        assert answer.status == 401
        assert "The token is missing, wrong or expired" in answer.text
        assert "Set-Cookie" not in answer.headers

    world.run(scenario)
    assert world.reported() == [("", "POST /sign-in", "denied")]


def test_form_of_another_site_signs_nobody_in() -> None:
    """Nor out: neither with its origin, nor with one that is kept back; and no other kind of body is a form."""
    world = AdminWorld()

    async def scenario() -> None:
        token = world.token("viewer")
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            for path in ("/sign-in", "/sign-out"):
                answer = await world.ask(path, method="POST", data={"token": token}, headers=headers)
                assert answer.status == 403
                assert "Set-Cookie" not in answer.headers
        assert (await world.ask("/sign-in", method="POST", json={"token": token})).status == 401

    world.run(scenario)


def test_session_ends_at_the_next_request_when_its_token_is_revoked() -> None:
    """The browser is led to the page, and is told to forget its cookie."""
    world = AdminWorld()

    async def scenario() -> None:
        cookie = await world.sign_in("viewer")
        world.revoke("viewer")
        answer = await world.ask("/", headers=HTML, cookie=cookie)
        assert (answer.status, answer.headers["Location"]) == (303, "/sign-in")
        assert "Max-Age=0" in answer.headers["Set-Cookie"]
        assert (await world.ask("/api/groups", cookie=cookie)).status == 401

    world.run(scenario)


def test_session_ends_when_its_token_expires() -> None:
    """To the millisecond."""
    world = AdminWorld()

    async def scenario() -> None:
        world.token("viewer", expires_ms=NOW_MS + 60_000)
        cookie = await world.sign_in("viewer")
        world.clock.advance(59.9)
        assert (await world.ask("/api/groups", cookie=cookie)).status == 200
        world.clock.advance(0.1)
        assert (await world.ask("/api/groups", cookie=cookie)).status == 401

    world.run(scenario)


def test_page_that_loads_itself_again_keeps_no_session_alive() -> None:
    """Half an hour after the viewer did something it is over, however often the fragment was requested meanwhile."""
    world = AdminWorld()

    async def scenario() -> None:
        cookie = await world.sign_in("viewer")
        shown = await world.ask("/", headers=HTML, cookie=cookie)
        found = re.search(r'hx-get="([^"]+)"', shown.text)
        assert found is not None
        for _ in range(10):
            world.clock.advance(IDLE_SECONDS / 12)
            assert (await world.ask(found[1], headers=HTML, cookie=cookie)).status == 200
        world.clock.advance(IDLE_SECONDS / 6)
        assert (await world.ask(found[1], cookie=cookie)).status == 401

    world.run(scenario)


def test_signing_out_ends_the_session() -> None:
    """For whoever has the cookie, and again is no error."""
    world = AdminWorld()

    async def scenario() -> None:
        cookie = await world.sign_in("viewer")
        for _ in range(2):
            answer = await world.ask("/sign-out", method="POST", cookie=cookie, headers=world.origin())
            assert (answer.status, answer.headers["Location"]) == (303, "/sign-in")
            assert "Max-Age=0" in answer.headers["Set-Cookie"]
        assert (await world.ask("/api/groups", cookie=cookie)).status == 401

    world.run(scenario)
    assert world.reported() == [("viewer", "sign_in", "done"), ("viewer", "sign_out", "done")]


def test_signing_in_again_ends_the_session_before() -> None:
    """A cookie that somebody planted, or had seen, is none afterwards."""
    world = AdminWorld()

    async def scenario() -> None:
        before = await world.sign_in("viewer")
        answer = await world.ask(
            "/sign-in", method="POST", data={"token": world.token("admin")}, headers=world.origin(), cookie=before
        )
        assert answer.status == 303
        assert answer.cookies[f"pyddmq-{world.port}"].value != before
        assert (await world.ask("/api/groups", cookie=before)).status == 401

    world.run(scenario)


def test_session_that_is_over_is_never_followed_by_the_network() -> None:
    """Who was somebody does not go on as whom his address would make of him."""
    world = AdminWorld(rules=(AccessRule(principals=["home", "viewer"], view=["*"]),), networks=(HOME,))

    async def scenario() -> None:
        assert (await world.ask("/api/groups")).status == 200
        assert (await world.ask("/api/groups", cookie="0" * 64)).status == 401

    world.run(scenario)


def test_change_by_a_session_needs_the_origin_that_browsers_send() -> None:
    """One of this port; by a token in the header, which no page can add, none is needed."""
    world = AdminWorld(changes=CHANGES)

    async def scenario() -> None:
        cookie = await world.sign_in("operator")
        body: dict[str, Any] = {"json": {"group": "billing"}, "method": "POST"}
        assert (await world.ask("/api/groups/pause", cookie=cookie, **body)).status == 403
        evil = {"Origin": "http://evil.example"}
        assert (await world.ask("/api/groups/pause", cookie=cookie, headers=evil, **body)).status == 403
        assert world.done == []
        assert (await world.ask("/api/groups/pause", cookie=cookie, headers=world.origin(), **body)).status == 200
        assert (await world.ask("/api/groups/pause", by="operator", **body)).status == 200

    world.run(scenario)
    assert len(world.done) == 2


def test_tries_of_an_address_are_limited_and_it_is_told_when_to_come_again() -> None:
    """Right tokens too, beyond the bound; who brings one with each request is not held up."""
    world = AdminWorld()

    async def scenario() -> None:
        for _ in range(BURST):
            assert (await post(world, "wrong")).status == 401
        answer = await post(world, world.token("viewer"))
        assert (answer.status, answer.headers["Retry-After"]) == (429, str(int(SECONDS_EACH) + 1))
        assert "try again in 7 s" in answer.text
        assert (await world.ask("/api/groups", by="viewer")).status == 200
        world.clock.advance(SECONDS_EACH)
        assert (await post(world, world.token("viewer"))).status == 303

    world.run(scenario)
    assert world.node.metrics.value(SIGN_INS, "limited") == 1


def test_over_a_network_without_tls_nobody_signs_in_and_no_token_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence says what to do; whom the network knows goes on as that."""
    network = HOME.model_copy(update={"cidr": "192.0.2.0/24"})
    world = AdminWorld(rules=(AccessRule(principals=["home"], view=["permits*"]),), networks=(network,))
    monkeypatch.setattr(gate, "address_of", lambda _: "192.0.2.7")

    async def scenario() -> None:
        for answer in (await post(world, world.token("all")), await world.ask("/sign-in")):
            assert answer.status == 403
            assert "Sign-in is off on this port" in answer.text
            assert "<form" not in answer.text
        assert (await world.ask("/api/groups", by="all")).error == (
            "A token is accepted only over TLS or from loopback addresses; use https."
        )
        assert (await world.ask("/api/topics?topic=permits")).status == 200
        refused = await world.ask("/node", headers=HTML)
        assert refused.status == 403
        assert "/sign-in" not in refused.text

    world.run(scenario)
    assert world.node.metrics.value(SIGN_INS, "off") == 1
