"""The console of a node with very many groups, topics and viewers: bounded pages, and nothing computed for each."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from broker.runtime.steps import StepsEnd, step
from conf.loader import loads
from conf.sections.access import AccessRule
from conf.sections.admin import AdminConfig
from proxy.admin.console import node as pages_of_node
from proxy.admin.console import shell
from proxy.admin.console.group import PAGE_ROWS
from proxy.admin.console.menu import PAGES
from proxy.admin.console.node import CONNECTIONS_AT_ONCE, ROWS_MAX
from proxy.admin.console.rates import SecondRates
from proxy.admin.console.shell import JUDGED_SECONDS, JUDGING_SHARE, KEEP_SECONDS, STALE_SECONDS, Console
from proxy.operate.attention.judgement import Judgement, LagQueues, joining, judgement
from proxy.operate.changes.desk import AdminToken
from proxy.operate.live_node import LiveNode
from proxy.operate.lookups.settings import settings_of, settings_of_group
from proxy.operate.views.node import ConnectionView
from pyddmq.testing import ManualClock, ManualScheduler
from tests.access.admin_world import AdminWorld
from tests.admin_node import NOW_MS, busy_node
from tests.console_page import call_of, fragment
from tests.lag_answers import lag_queue

LIVE = [each for each in PAGES if each.live]
COST_SECONDS = 0.5


def test_groups_are_shown_by_pages_the_worst_first() -> None:
    """A page has its number of rows and a link to the next; the filter is applied on the server."""
    node = busy_node()
    names = [f"group-{number:03}" for number in range(2 * PAGE_ROWS + 50)]
    worst = lag_queue(group="group-449", topic="t", queue=0, status="STOP", level="ERR")
    node.lag_view = LagQueues(now_ms=NOW_MS, groups=names, queues=[worst])
    first, last = fragment(node, "/groups"), fragment(node, "/groups", page="3")
    assert first.count("<tr>") == PAGE_ROWS + 1
    assert first.index("group-449") < first.index("group-000")
    assert ("page=2" in first, "page=4" in last) == (True, False)
    assert "group-448" in last
    assert fragment(node, "/groups", q="group-44").count("<tr>") == 11
    assert fragment(node, "/groups", page="99").count("<tr>") == last.count("<tr>")


@pytest.mark.parametrize("path", [each.path for each in LIVE])
def test_live_page_is_made_once_for_viewers_with_the_same_rights(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For two principals of one rule, and again for one of another rule."""
    rules = (
        AccessRule(principals=["one", "two"], view=["*"], administer=True),
        AccessRule(principals=["other"], view=["*"], administer=True, operate=["*"]),
    )
    world = AdminWorld(rules=rules)
    made: list[str] = []
    make = Console._made

    async def counted(console: Console, page: Any, *rest: Any, **more: Any) -> Any:
        made.append(page.path)
        return await make(console, page, *rest, **more)

    monkeypatch.setattr(Console, "_made", counted)
    address = f"{path}?group=permits-audit" if path == "/group" else path

    async def scenario() -> None:
        for person in ("one", "two", "other"):
            world.token(person)
        for person, count in (("one", 1), ("two", 1), ("one", 1), ("other", 2)):
            assert (await world.ask(address, by=person)).status == 200
            assert len(made) == count, person
        world.clock.advance(KEEP_SECONDS)
        await world.ask(address, by="two")
        assert len(made) == 3

    world.run(scenario)


class JudgedConsole:
    """A console whose node takes `COST_SECONDS` to judge.

    Attributes:
        clock: The node's.
        made: The judgements.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cost_seconds: float) -> None:
        self.clock, node = ManualClock(NOW_MS), busy_node()
        self.made: list[Judgement] = []
        node.clock = self.clock

        def judging(node: LiveNode, *, leisurely: bool) -> Generator[None, None, Judgement]:
            self.clock.advance(cost_seconds)
            yield
            self.made.append(judgement(LagQueues(now_ms=self.clock.wall_ms())))
            object.__setattr__(node, "last_judgement", (self.clock.monotonic(), self.made[-1]))
            return self.made[-1]

        monkeypatch.setattr(shell, "judging", judging)
        self._console = Console(
            node,
            SecondRates(node, ManualScheduler(self.clock)),
            audit=None,
            settings=AdminConfig,
            random_bytes=bytes,
            token=AdminToken(lambda: None),
        )

    async def judged(self) -> int:
        """Return which judgement a page is made of, from 1."""
        return self.made.index(await self._console._judged()) + 1


def test_expensive_judgement_is_made_beside_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page gets the last one at once; the next begins when judging has rested, and a very old one is waited for."""
    console = JudgedConsole(monkeypatch, COST_SECONDS)

    async def scenario() -> None:
        assert await console.judged() == 1
        console.clock.advance(JUDGED_SECONDS)
        assert (await console.judged(), len(console.made)) == (1, 1)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(console.made) == 1, "judging rests"
        console.clock.advance(COST_SECONDS / JUDGING_SHARE)
        assert await console.judged() == 1
        for _ in range(5):
            await asyncio.sleep(0)
        assert await console.judged() == 2
        console.clock.advance(STALE_SECONDS)
        assert await console.judged() == 3

    asyncio.run(scenario())


def test_cheap_judgement_is_made_anew_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a page shows at once what a button changed."""
    console = JudgedConsole(monkeypatch, 0.001)

    async def scenario() -> None:
        for expected in (1, 2, 3):
            console.clock.advance(JUDGED_SECONDS)
            assert await console.judged() == expected

    asyncio.run(scenario())


def test_page_waits_for_no_judgement_of_unknown_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page of a node that judges itself shows the last judgement."""
    console = JudgedConsole(monkeypatch, 0.001)
    ends = asyncio.Event()

    def endless(node: LiveNode, *, leisurely: bool) -> Generator[None, None, Judgement]:
        while not ends.is_set():
            yield
        return console.made[-1]

    async def scenario() -> None:
        await console.judged()
        console.clock.advance(2 * JUDGED_SECONDS)
        monkeypatch.setattr(shell, "judging", endless)
        assert await asyncio.wait_for(console.judged(), 20) == 1
        ends.set()
        await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_page_of_a_group_does_not_wait_for_a_long_journal() -> None:
    """It says so; however long one reading takes, no second one begins, and a later refresh shows the charts."""
    world = AdminWorld(rules=None)
    begun: list[str] = []
    ends = asyncio.Event()
    course = world.node.course

    def long(*, group: str, span_ms: int) -> Generator[None, None, Any]:
        begun.append(group)
        while not ends.is_set():
            yield
        return (yield from course(group=group, span_ms=span_ms))

    world.node.course = long  # type: ignore[method-assign]

    async def scenario() -> None:
        for _ in range(3):
            answer = await world.ask("/group?group=permits-audit&span=1h")
            assert ("The journal is being read" in answer.text, "<rate-chart" in answer.text) == (True, False)
            world.clock.advance(60)
        assert len(begun) == 1
        ends.set()
        await asyncio.sleep(0.05)
        ends.clear()
        world.clock.advance(KEEP_SECONDS)
        assert "<rate-chart" in (await world.ask("/group?group=permits-audit&span=1h")).text

    world.run(scenario)


def test_many_queues_are_joined_with_findings_in_steps() -> None:
    """The loop has turns meanwhile, also where each queue is a finding of its own."""
    queues = [lag_queue(group=f"g{n % 500}", topic=f"t{n}", queue=0, status="STOP", level="ERR") for n in range(5_000)]
    steps = joining(LagQueues(now_ms=NOW_MS, queues=queues))
    turns = 0
    while not isinstance(made := step(steps), StepsEnd):
        turns += 1
    assert turns > 80
    assert (len(made.result.findings), len(made.result.groups)) == (5_000, 500)


def test_configuration_of_many_topics_is_shown_in_part() -> None:
    """The first of them; the settings of a group are had without the others."""
    lines = "".join(f"  t{number}: {{queues: 2}}\n" for number in range(500))
    config = loads(f"topics:\n{lines}groups:\n  - group: g\n    topics: [{{topic: t0, timeout: 70000}}]\n").config
    shown = settings_of(config, each_max=100)
    assert (len(shown["topics"]), list(shown["groups"])) == (100, ["g"])
    assert settings_of_group(config, "g") == settings_of(config)["groups"]["g"]
    assert settings_of_group(config, "nobody") == {}


def test_clients_are_looked_at_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of 10,000 connections has the first rows, and never takes the loop for all of them."""
    node, count = busy_node(), 10_000
    connections = [
        ConnectionView(address=f"10.0.0.1:{number}", service="consumer", since_ms=number, requests=0, state="idle")
        for number in range(count)
    ]
    monkeypatch.setattr(node, "connections", lambda: connections)
    looked: list[str] = []

    def text(address: str, client: str | None) -> str:
        looked.append(address)
        return address

    monkeypatch.setattr(pages_of_node, "holder_text", text)

    async def most_at_once(wanted: str, total: int) -> int:
        page, most = asyncio.ensure_future(pages_of_node.clients(call_of(node, {"q": wanted}))), 0
        while not page.done():
            looked.clear()
            await asyncio.sleep(0)
            most = max(most, len(looked))
        view = page.result()
        assert (view.connections_total, len(view.connections)) == (total, ROWS_MAX)
        assert view.connections[0].client == ("10.0.0.1:1" if wanted else "10.0.0.1:0")
        return most

    assert asyncio.run(most_at_once("", count)) <= CONNECTIONS_AT_ONCE
    assert asyncio.run(most_at_once("1:1", 1_111)) <= CONNECTIONS_AT_ONCE
