"""Changing requests of the admin port over a real socket: who may, what their body must be, what they leave behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from broker.errors import StoreError
from broker.views import View
from proxy.access.rules import Permission
from proxy.admin.routes import REFUSED
from proxy.admin.server import AdminServer
from proxy.cli import admin_client
from proxy.cli.errors import CliError
from proxy.operate.changes.desk import CHANGES, AdminToken, Change, ChangeBody, ChangeRefused
from tests.admin_node import PlainNode

Ask = Callable[..., Awaitable[tuple[int, Any]]]


class Paint(ChangeBody, frozen=True):
    """Body of the change of these tests."""

    wall_name: str
    coats: int = 1


class Painted(View, frozen=True, kw_only=True):
    """Result of the changes of these tests."""

    painted: str


class Painter:
    """Makes the changes `paint` and `strip`, and remembers what they did."""

    def __init__(self) -> None:
        self.done: list[Paint] = []
        self.at_once = 0

    def changes(self) -> list[Change]:
        of_wall = partial(Change, action=Permission.OPERATE, on=lambda body: (body.wall_name,))
        return [
            of_wall(name="paint", path="/api/walls/paint", body=Paint, run=self.paint),
            of_wall(name="strip", path="/api/walls", method="DELETE", body=Paint, run=self.paint),
        ]

    async def paint(self, body: Paint) -> Painted:
        self.at_once += 1
        assert self.at_once == 1, "changes run one at a time"
        await asyncio.sleep(0)
        self.at_once -= 1
        if body.coats < 0:
            raise ChangeRefused(409, "A wall has no fewer coats than none; say 0 or more.")
        if body.coats > 9:
            raise StoreError("the disk broke")
        self.done.append(body)
        return Painted(painted=body.wall_name)


def serve(painter: Painter, scenario: Callable[[Ask], Awaitable[None]], token: AdminToken | None = None) -> PlainNode:
    """Run a scenario against an admin port with the painter's changes; returns the node behind it."""
    node = PlainNode()

    async def run() -> None:
        server = AdminServer(node, changes=painter.changes(), token=token)
        await server.start("127.0.0.1", 0)
        host, port = server.address
        try:
            async with aiohttp.ClientSession(f"http://{host}:{port}") as session:

                async def ask(path: str, document: object = None, method: str = "POST", **more: Any) -> Any:
                    if document is not None:
                        more["json"] = document
                    async with session.request(method, path, **more) as response:
                        return response.status, json.loads(await response.text())

                await scenario(ask)
        finally:
            await server.stop()

    asyncio.run(run())
    return node


def test_change_is_run_counted_and_logged_with_who_asked() -> None:
    """200 with the function's document; counter and log say what was done, by whom, with which body."""
    painter = Painter()

    async def scenario(ask: Ask) -> None:
        assert await ask("/api/walls/paint", {"wallName": "north", "coats": 2}) == (200, {"painted": "north"})
        assert (await ask("/api/walls", {"wallName": "south"}, "DELETE"))[0] == 200

    with capture_logs() as logs:
        node = serve(painter, scenario)
    assert [body.wall_name for body in painter.done] == ["north", "south"]
    assert node.metrics.value(CHANGES, "paint", "done") == 1
    assert node.metrics.value(CHANGES, "strip", "done") == 1
    line = next(each for each in logs if each["event"] == "admin_change")
    assert (line["change"], line["who"], line["outcome"]) == ("paint", "127.0.0.1", "done")
    assert line["asked"] == {"wallName": "north", "coats": 2}
    assert line["result"] == {"painted": "north"}


@pytest.mark.parametrize(
    ("request_", "status", "sentence"),
    [
        ({"data": b'{"wallName": "n"}'}, 415, "Content-Type: application/json"),
        ({"data": {"wallName": "n"}}, 415, "Content-Type: application/json"),
        ({"json": {"wallName": 7}}, 400, "Expected `str`, got `int`"),
        ({"json": {"wallName": "n", "coat": 1}}, 400, "unknown field `coat`"),
        ({"json": {}}, 400, "missing required field `wallName`"),
        ({"data": b"{", "headers": {"Content-Type": "application/json"}}, 400, "not valid JSON"),
        ({"json": {"wallName": "n", "coats": -1}}, 409, "say 0 or more"),
        ({"json": {"wallName": "n", "coats": 10}}, 503, "could not be made durable: the disk broke"),
        ({"json": {"wallName": "n"}, "headers": {"Origin": "https://elsewhere.example"}}, 403, "are refused"),
        ({"json": {"wallName": "n"}, "headers": {"Sec-Fetch-Site": "cross-site"}}, 403, "another site"),
        ({"json": {"wallName": "n"}, "headers": {"Host": "elsewhere.example:9813"}}, 403, "use the node's address"),
    ],
)
def test_change_that_may_not_be_made_says_why_and_does_nothing(
    request_: dict[str, Any], status: int, sentence: str
) -> None:
    """Every refusal is a status and a sentence, is counted and logged, and leaves everything as it was."""
    painter = Painter()

    async def scenario(ask: Ask) -> None:
        got, document = await ask("/api/walls/paint", **request_)
        assert got == status, document
        assert document["error"]["status"] == status
        assert sentence in document["error"]["message"]

    with capture_logs() as logs:
        node = serve(painter, scenario)
    assert painter.done == []
    assert node.metrics.value(CHANGES) == 1
    assert node.metrics.value(CHANGES, "paint", "done") == 0
    assert node.metrics.value(REFUSED, str(status)) == 1
    [line] = [each for each in logs if each["event"] == "admin_change"]
    assert line["outcome"] == ("failed" if status == 503 else "refused")
    assert line["reason"]


def test_changes_need_the_token_and_reading_needs_none() -> None:
    """With a token configured every change without it is a 401, a reload too; the token may be changed on the way."""
    painter = Painter()
    tokens = ["secret"]
    node_token = AdminToken(lambda: tokens[-1])

    async def scenario(ask: Ask) -> None:
        body = {"wallName": "n"}
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}):
            status, document = await ask("/api/walls/paint", body, headers=headers)
            assert status == 401
            assert "Authorization: Bearer" in document["error"]["message"]
        assert (await ask("/api/reload"))[0] == 401
        assert (await ask("/api/stats", method="GET"))[0] == 200
        assert (await ask("/api/walls/paint", body, headers={"Authorization": "Bearer secret"}))[0] == 200
        tokens.append("new")
        assert (await ask("/api/walls/paint", body, headers={"Authorization": "Bearer secret"}))[0] == 401
        tokens.append("")
        assert (await ask("/api/walls/paint", body, headers={"Authorization": "Bearer "}))[0] == 503

    with capture_logs() as logs:
        node = serve(painter, scenario, node_token)
    assert node.reloads == 0
    assert len(painter.done) == 1
    assert "secret" not in str(logs)


def test_command_line_sends_changes_with_the_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """`post` and `delete` bring JSON and the environment's token; a refusal becomes its sentence."""
    painter = Painter()
    token_file = tmp_path / "token"
    token_file.write_text("from-file\n")
    monkeypatch.setenv("PYDDMQ_ADMIN_TOKEN_FILE", str(token_file))

    async def paint(address: str, wall: dict[str, object]) -> Painted:
        return await asyncio.to_thread(lambda: admin_client.post(address, "/api/walls/paint", wall, Painted))

    async def run() -> None:
        server = AdminServer(PlainNode(), changes=painter.changes(), token=AdminToken(lambda: "from-file"))
        await server.start("127.0.0.1", 0)
        host, port = server.address
        address = f"{host}:{port}"
        try:
            answer = await paint(address, {"wallName": "é"})
            assert answer == Painted(painted="é")
            await asyncio.to_thread(lambda: admin_client.delete(address, "/api/walls", {"wallName": "s"}, Painted))
            with pytest.raises(CliError, match="the node refused: A wall has no fewer coats"):
                await paint(address, {"wallName": "n", "coats": -2})
            monkeypatch.setenv("PYDDMQ_ADMIN_TOKEN", "wrong")
            with pytest.raises(CliError, match="need its token"):
                await paint(address, {"wallName": "n"})
        finally:
            await server.stop()

    asyncio.run(run())
    assert [body.wall_name for body in painter.done] == ["é", "s"]
