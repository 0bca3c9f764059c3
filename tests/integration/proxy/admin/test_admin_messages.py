"""GET /api/messages over real sockets, on a real store."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.runtime.metrics import Metrics
from broker.runtime.steps import StepsEnd, step
from broker.store import Store
from proxy.admin.server import AdminServer
from proxy.operate.lookups import messages as messages_module
from proxy.operate.lookups.masks import MASKED, MessageMasks
from pyddmq.testing import ManualClock, SimDisk
from tests.admin_node import NOW_MS, PlainNode
from tests.integration.store_tools import HOST, open_store

Get = Callable[..., Awaitable[tuple[int, dict[str, Any]]]]
BODIES = [b'{"id": 1}', b"\xff\x00", "ä".encode() * 2000, b""]


def filled() -> Store:
    """A store with four messages of different bodies, a second apart up to now, in two queues."""
    clock = ManualClock(NOW_MS - 4000)
    store = open_store(SimDisk(), clock=clock, segment_bytes=1 << 20)
    topic = store.create_topic("permits", 2)
    for number, body in enumerate(BODIES):
        clock.advance(1)
        block = encode_properties({"KEYS": "case-1", "TAGS": "open", "colour": "rot"})
        store.append([Put(topic, number % 2, body, block, b"open")], born_ms=NOW_MS, born_host=HOST)
        store.flush()
    return store


def run(
    scenario: Callable[[Get], Awaitable[None]], store: Store | None, masks: MessageMasks = messages_module.NO_MASKS
) -> None:
    """Let a scenario ask an admin port over a store."""

    async def serve() -> None:
        node = PlainNode()
        node.messages = store
        node.masks = masks
        server = AdminServer(node)
        await server.start("127.0.0.1", 0)
        host, port = server.address
        try:
            async with aiohttp.ClientSession(f"http://{host}:{port}") as session:

                async def get(headers: Any = None, **parameters: Any) -> tuple[int, dict[str, Any]]:
                    names = {name.rstrip("_"): str(value) for name, value in parameters.items()}
                    async with session.get("/api/messages", params=names, headers=headers) as response:
                        return response.status, await response.json()

                await scenario(get)
        finally:
            await server.stop()

    asyncio.run(serve())


def test_messages_are_found_by_every_name() -> None:
    """Key, unique key, both ids, offset, commit-log offset: the same document."""

    async def scenario(get: Get) -> None:
        status, answer = await get(topic="permits", queue=0, offset=0)
        [message] = answer["messages"]
        assert status == 200
        assert (message["topic"], message["queue"], message["offset"], message["key"]) == ("permits", 0, 0, "case-1")
        assert (message["body"], message["bodyEncoding"], message["bodyBytes"]) == ('{"id": 1}', "utf-8", 9)
        assert (message["storeMs"], message["bornHost"], message["tag"]) == (NOW_MS - 3000, "10.0.0.1:1234", "open")
        assert message["properties"]["colour"] == "rot"
        for asked in (
            {"id": message["id"]},
            {"id": message["uniqueKey"]},
            {"uniqKey": message["uniqueKey"]},
            {"physical": message["physical"]},
            {"topic": "permits", "key": message["uniqueKey"]},
        ):
            assert await get(**asked) == (200, answer)
        status, answer = await get(topic="permits", key="case-1", limit=3)
        assert [each["bodyBytes"] for each in answer["messages"]] == [0, 4000, 2]

    run(scenario, filled())


def test_large_bodies_are_cut_unless_asked_whole() -> None:
    """A cut body says so and ends with a whole character; other bytes come as base64."""

    async def scenario(get: Get) -> None:
        _, answer = await get(topic="permits")
        cut, whole = answer["messages"][2], (await get(topic="permits", body="whole"))[1]["messages"][2]
        assert (cut["bodyCut"], cut["body"], cut["bodyBytes"]) == (True, "ä" * 512, 4000)
        assert (whole["bodyCut"], whole["body"]) == (False, "ä" * 2000)
        assert base64.b64decode(answer["messages"][1]["body"]) == BODIES[1]
        assert answer["messages"][1]["bodyEncoding"] == "base64"
        _, answer = await get(topic="permits", body="none")
        assert [each["body"] for each in answer["messages"]] == ["", "", "", ""]

    run(scenario, filled())


def test_time_ranges_and_cursors_page_through_a_topic() -> None:
    """From inclusive, to exclusive, relative to the node's clock; the cursor goes on where a page ended."""

    async def scenario(get: Get) -> None:
        _, answer = await get(topic="permits", from_="2s ago", to="now")
        assert [each["storeMs"] for each in answer["messages"]] == [NOW_MS - 2000, NOW_MS - 1000]
        seen: list[int] = []
        answer = {"cursor": 0}
        while answer["cursor"] is not None:
            _, answer = await get(topic="permits", limit=1, cursor=answer["cursor"])
            seen += [each["storeMs"] - NOW_MS for each in answer["messages"]]
        assert seen == [-3000, -2000, -1000, 0]

    run(scenario, filled())


@pytest.mark.parametrize(
    ("asked", "status", "text"),
    [
        ({}, 400, "Pass a topic"),
        ({"topic": "nope"}, 404, "Topic 'nope' does not exist"),
        ({"topic": "permits", "colour": "red"}, 400, "unknown parameter 'colour'"),
        ({"topic": "permits", "from_": "2025-10-09T08:53:20"}, 400, "no time zone"),
        ({"topic": "permits", "from_": "soon"}, 400, "is not a valid time"),
        ({"topic": "permits", "from_": "now", "to": "1h ago"}, 400, "swap them"),
        ({"topic": "permits", "offset": 3}, 400, "pass the queue"),
        ({"topic": "permits", "queue": 0, "offset": 3}, 404, "no offset 3"),
        ({"topic": "permits", "queue": 9, "offset": 3}, 404, "no queue 9"),
        ({"topic": "permits", "limit": "-1"}, 400, "integer"),
        ({"topic": "permits", "body": "half"}, 400, "none, cut or whole"),
        ({"id": "xyz"}, 404, "neither as offsetMsgId nor as UNIQ_KEY"),
        ({"id": "AB" * 16}, 404, "neither as offsetMsgId nor as UNIQ_KEY"),
        ({"uniqKey": "nobody"}, 404, "no message has the unique key"),
        ({"key": "case-1"}, 400, "Pass a topic"),
    ],
)
def test_wrong_questions_get_a_sentence(asked: dict[str, Any], status: int, text: str) -> None:
    """Status and sentence for each way of asking for what cannot be or is not there."""

    async def scenario(get: Get) -> None:
        found, answer = await get(**asked)
        assert found == status
        assert text.lower() in answer["error"]["message"].lower()

    run(scenario, filled())


def test_messages_before_the_store_is_open_are_503() -> None:
    """A node that starts says so."""

    async def scenario(get: Get) -> None:
        status, answer = await get(topic="permits")
        assert (status, "store is opening" in answer["error"]["message"]) == (503, True)

    run(scenario, None)


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_pages_of_other_sites_see_no_messages(headers: dict[str, str]) -> None:
    """A name that was bound to loopback, or a foreign origin: 403 and not one message."""

    async def scenario(get: Get) -> None:
        status, answer = await get(topic="permits", headers=headers)
        assert (status, "messages" in answer) == (403, False)

    run(scenario, filled())


def test_loop_goes_on_while_a_search_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the steps of one long search, other callbacks of the loop get their turn."""
    turns = 0

    def tick(loop: asyncio.AbstractEventLoop) -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(tick, loop)

    seen: list[int] = []
    original = messages_module.MessageSearch.steps

    def counted(search: messages_module.MessageSearch) -> Any:
        steps = original(search)
        while not isinstance(made := step(steps), StepsEnd):
            seen.append(turns)
            yield made
        return made.result

    monkeypatch.setattr(messages_module.MessageSearch, "steps", counted)
    clock = ManualClock(NOW_MS)
    store = open_store(SimDisk(), clock=clock, segment_bytes=1 << 20, metrics=Metrics(), index_entries=50_000)
    topic = store.create_topic("permits", 1)
    for _ in range(40):
        store.append([Put(topic, 0, b"x", b"") for _ in range(100)], born_ms=0, born_host=HOST)
        store.flush()

    async def scenario(get: Get) -> None:
        asyncio.get_running_loop().call_soon(tick, asyncio.get_running_loop())
        status, _ = await get(topic="permits", key="nobody")
        assert status == 200

    run(scenario, store)
    assert len(seen) >= 4000 // 256
    assert all(later > earlier for earlier, later in pairwise(seen))


def test_masked_values_are_neither_shown_nor_found() -> None:
    """In bodies, properties and keys; names are shown."""

    async def scenario(get: Get) -> None:
        _, answer = await get(topic="permits", body="whole")
        first, *others = answer["messages"]
        assert (json.loads(first["body"]), first["key"]) == ({"id": MASKED}, MASKED)
        assert {each["body"] for each in others} == {MASKED}, "what is not JSON"
        assert first["properties"]["colour"] == MASKED
        assert first["masked"] == ["$.id", "KEYS", "colour"]
        for text in ("rot", "case-1", "ä"):
            assert (await get(topic="permits", text=text))[1]["messages"] == []
        assert len((await get(topic="permits", text="colour"))[1]["messages"]) == len(BODIES)
        status, answer = await get(topic="permits", key="case-1")
        assert (status, answer["error"]["message"].partition(";")[0]) == (400, "Keys of topic permits are masked")

    run(scenario, filled(), MessageMasks({"permits": ["$.id", "KEYS", "colour"]}))


def test_tail_begins_at_the_end_and_continues_with_what_is_stored_then() -> None:
    """`cursor=end` finds nothing and says where to continue; a topic that does not exist is named."""
    store = filled()

    async def scenario(get: Get) -> None:
        for more in ({}, {"text": "id"}, {"queue": 1}):
            status, answer = await get(topic="permits", cursor="end", **more)
            assert (status, answer["messages"], answer["cursor"]) == (200, [], store.index.log.visible_end), more
        store.append([Put(store.topics["permits"], 0, b"new id", b"", b"")], born_ms=NOW_MS, born_host=HOST)
        store.flush()
        for more in ({}, {"text": "id"}):
            _, after = await get(topic="permits", cursor=answer["cursor"], **more)
            assert [each["body"] for each in after["messages"]] == ["new id"]
        assert (await get(topic="none", cursor="end"))[0] == 404

    run(scenario, store)
