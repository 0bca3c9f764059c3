"""Pages of the console whose subject is deleted while they are made."""

from __future__ import annotations

import asyncio
from asyncio import Lock
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from aiohttp import web

from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.retention import RetentionLimits
from broker.store import Store
from proxy.admin.console.templating import environment
from proxy.operate.changes.topics import DeletionBody, topic_changes
from pyddmq.testing import ManualClock, SimDisk
from tests.admin_node import PlainNode
from tests.console_page import call_of, page_at
from tests.insides import opened_of
from tests.integration.proxy.node.test_kafka_node import World
from tests.integration.store_tools import HOST, open_store


def shown(world: World, path: str, query: dict[str, str], meanwhile: Callable[[], None]) -> str:
    """What a page shows for which something happens while another search runs."""
    page, searching = page_at(path), Lock()
    world.loop.run(world.loop.create_task(searching.acquire()).done, seconds=60)
    call = replace(call_of(world.view, query), searching=searching)
    task = world.loop.create_task(cast(Any, page.view(call)))
    world.loop.run(lambda: False, seconds=1)
    meanwhile()
    searching.release()
    world.loop.run(task.done, seconds=60)
    return environment().get_template(page.template).render(view=task.result())


def delete(world: World, topic: str) -> None:
    """Delete a topic as an operator does."""
    [change] = [each for each in topic_changes(world.node) if each.method == "DELETE"]
    task = world.loop.create_task(cast(Any, change.run(DeletionBody(topic=topic, confirm=topic))))
    world.loop.run(task.done, seconds=60)
    assert task.result().deleted


def append(store: Store, topic: str, body: bytes, **properties: str) -> None:
    """Store a message."""
    found = store.topics.get(topic) or store.create_topic(topic, 1)
    store.append([Put(found, 0, body, encode_properties(properties))], born_ms=0, born_host=HOST)
    store.flush()


def test_page_of_a_topic_that_is_deleted_meanwhile_says_so() -> None:
    """As that of one that was deleted before."""
    world = World()
    world.run(1)
    append(opened_of(world.node).store, "spare", b"x")
    with pytest.raises(web.HTTPNotFound) as refused:
        shown(world, "/topic", {"topic": "spare"}, lambda: delete(world, "spare"))
    assert refused.value.text == "Topic 'spare' does not exist; /topics lists all topics."


def test_page_of_a_message_that_retention_deletes_meanwhile_says_so() -> None:
    """Its body was read, and takes its time to be shown; its way is not found any more."""
    clock, node = ManualClock(), PlainNode()
    store = open_store(SimDisk(), clock=clock, segment_bytes=1 << 20)
    for _ in range(3):
        append(store, "permits", b"x" * 700_000, UNIQ_KEY="one")
    clock.advance(11)
    store.checkpoint()
    store.retention.limits = RetentionLimits(log_bytes=1 << 20)
    node.messages = store

    async def scenario() -> Any:
        call = call_of(node, {"topic": "permits", "queue": "0", "offset": "0"})
        making = asyncio.ensure_future(page_at("/message").view(call))
        await asyncio.sleep(0)
        assert store.retention.step()
        return await making

    assert "offset 0" in asyncio.run(scenario()).problem
