"""The admin port of a simulated node, by HTTP over the simulated network, and `pyddmq` commands that use it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any, NamedTuple
from unittest import mock

import aiohttp
import typer.main
from aiohttp import web

from actions.http.connection_options import HttpWish
from broker.runtime.seams import SystemClock
from conf.sections.admin import AdminConfig
from proxy.admin.console.rates import SecondRates
from proxy.admin.console.shell import Console
from proxy.admin.entry.gate import AdminGate
from proxy.admin.routes import Routes
from proxy.cli import app
from proxy.operate.changes.desk import AdminToken
from proxy.operate.changes.node import node_changes
from tests.fakes.http import SimConnector
from tests.simulation.ward import Ward

HOST, PORT = "127.0.0.1", 9813
_build, _made = functools.cache(app.build), functools.cache(typer.main.get_command)


async def _here(work: Callable[..., Any], *args: Any) -> Any:
    """Do what goes to a thread, as virtual time has none."""
    return work(*args)


class Done(NamedTuple):
    """What a command did: its exit code, and what it printed."""

    code: int
    out: str
    err: str


class Answer(NamedTuple):
    """An answer of the admin port, as `http.client` has it."""

    status: int
    body: bytes

    def read(self) -> bytes:
        """Return the body."""
        return self.body


class AdminPort:
    """The admin port of the node that a ward runs; after a restart it is opened anew.

    Args:
        ward: The ward.
    """

    def __init__(self, ward: Ward) -> None:
        self._ward = ward
        self._view: Any = None
        self._close: Any = None

    def get(self, path: str, *, method: str = "GET", body: bytes | None = None) -> Answer:
        """Request a path."""
        if self._view is not self._ward.view:
            self._await(self._open())
        answer: Answer = self._await(self._request(method, path, body))
        return answer

    def text(self, path: str) -> str:
        """Return an answer as text."""
        return self.get(path).body.decode()

    def json(self, path: str) -> Any:
        """Return an answer as JSON values."""
        return json.loads(self.get(path).body)

    def command(self, *words: str) -> Done:
        """Run `pyddmq` with these words; it finds this port, and the node's time."""
        out, err = io.StringIO(), io.StringIO()
        with self._led_here(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = app.run(words)
        return Done(code, out.getvalue(), err.getvalue())

    @contextlib.contextmanager
    def _led_here(self) -> Iterator[None]:
        """Lead connections of `http.client` to this port, and clocks of commands to the node's."""
        port, ward = self, self._ward

        class Connection(HTTPConnection):
            def connect(self) -> None:
                pass

            def request(self, method: str, url: str, body: Any = None, *_: Any, **__: Any) -> None:
                self.answer = port.get(url, method=method, body=body)

            def getresponse(self) -> Any:
                return self.answer

        def wall_ms(_: SystemClock) -> int:
            return ward.world.clock.wall_ms()

        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch("http.client.HTTPConnection", Connection))
            stack.enter_context(mock.patch.object(app, "build", _build))
            stack.enter_context(mock.patch("typer.main.get_command", _made))
            stack.enter_context(mock.patch.object(SystemClock, "wall_ms", wall_ms))
            yield

    def _await(self, running: Any) -> Any:
        world = self._ward.world
        # What the node logs meanwhile is nothing that the command prints.
        with mock.patch("asyncio.to_thread", _here), contextlib.redirect_stdout(sys.__stderr__):
            task = world.loop.create_task(running)
            assert world.run(until=task.done, seconds=20), "the admin port did not answer"
        return task.result()

    async def _open(self) -> None:
        ward, view = self._ward, self._ward.view
        if self._close is not None:
            await self._close()
        settings = AdminConfig()
        gate = AdminGate(
            view,
            HOST,
            AdminToken(lambda: None),
            access=None,
            audit=None,
            settings=lambda: settings,
            random_bytes=bytes,
        )
        console = Console(
            view,
            SecondRates(view, asyncio.get_running_loop()),
            audit=None,
            settings=lambda: settings,
            random_bytes=bytes,
            token=AdminToken(lambda: None),
            keep_seconds=0,
        )
        routes = Routes(view, gate, None, loop_name="virtual", console=console)
        runner = web.AppRunner(routes.application(node_changes(ward.node)), access_log=None, handle_signals=False)
        await runner.setup()
        assert runner.server is not None
        listener = await ward.world.network.listen(runner.server, HOST, PORT, backlog=64)

        async def close() -> None:
            listener.close()
            await runner.cleanup()

        self._view, self._close = view, close

    async def _request(self, method: str, path: str, body: bytes | None) -> Answer:
        connector = SimConnector(self._ward.world.network, HttpWish(connections_max=1))
        async with aiohttp.ClientSession(connector=connector) as session:
            headers = {"Content-Type": "application/json"} if body else {}
            async with session.request(method, f"http://{HOST}:{PORT}{path}", data=body, headers=headers) as answer:
                return Answer(answer.status, await answer.read())
