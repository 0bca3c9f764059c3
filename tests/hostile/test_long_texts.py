"""Megabytes in any one text of any call: cheap to take, cut wherever it is shown, kept by nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest
import structlog

from proxy.wire.limits import PROPERTIES_PER_CALL_MAX
from pyddmq.codes import ResultCode
from tests.access.world import AccessWorld
from tests.hostile.long_texts import BYTES, FILLINGS, LongCall, long_calls
from tests.hostile.sim import HostileWorld, Raw
from tests.simulation.wire import producer_idl

DENIED = "access: {rules: [{principals: [someone], produce: [orders]}]}\n"
ALLOWED = "access: {rules: [{principals: [anonymous], produce: ['*'], consume: ['*'], transact: ['*'], view: ['*']}]}\n"
WORLDS: dict[str, Callable[[], HostileWorld]] = {
    "open": HostileWorld,
    "denied": lambda: AccessWorld(DENIED),
    "allowed": lambda: AccessWorld(ALLOWED),
}
CPU_SECONDS = 0.2
"""Of one call of 4.8 MB; decoding bytes that are not UTF-8 took five times as much."""
SHOWN_MAX = 8_000


class Sink(Raw):
    """A client that counts what it gets."""

    def __init__(self) -> None:
        pass

    received, lost = 0, False

    def data_received(self, data: bytes) -> None:
        self.received += len(data)


def call(world: HostileWorld, each: LongCall) -> tuple[int, float]:
    """Make a call over a connection of its own; returns the bytes of its reply, and what handling it cost."""
    client = Sink()
    port = {"consumer": 9713, "producer": 9613}[each.service]
    world.network.connect(client, ("127.0.0.1", port), host="127.0.0.1")
    world.run(0.01)
    server = world.node.consumer if each.service == "consumer" else world.node.producer
    [connection] = server.connections
    began = time.thread_time()
    connection.data_received(each.frame)
    took = time.thread_time() - began
    world.run(1.2)
    client.transport.abort()
    world.run(0.05)
    return client.received, took


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("filling", ["not UTF-8", "not printable"])
def test_long_text_is_cheap_and_is_cut_where_it_is_shown(
    world: str, filling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each text of each method: the loop is free again at once, replies and log lines stay short."""
    lines: list[dict[str, Any]] = []

    def keep(_: object, __: str, facts: MutableMapping[str, Any]) -> dict[str, Any]:
        lines.append(dict(facts))
        raise structlog.DropEvent

    here = WORLDS[world]()
    structlog.configure(processors=[keep])
    try:
        found = []
        for each in long_calls(FILLINGS[filling]):
            size, took = call(here, each)
            shown = max([len(repr(line)) for line in lines], default=0)
            lines.clear()
            if size > SHOWN_MAX or shown > SHOWN_MAX or took > CPU_SECONDS:
                found.append((each.method, each.path, size, shown, took))
    finally:
        structlog.reset_defaults()
    assert found == []


def test_long_names_are_not_kept_for_decisions() -> None:
    """What a connection remembers of decisions does not grow by the megabyte."""
    world = AccessWorld(ALLOWED)
    client = world.client("producer")
    connection = world.served(client)
    for each in long_calls(FILLINGS["ASCII"]):
        if each.service == "producer" and "topic" in each.path.lower() + "producergroup":
            connection.data_received(each.frame)
            world.run(0.1)
    rights = connection.rights
    assert rights is not None
    assert all(len(name) < 1_000 for _, name in rights._known)
    assert all(len(name) < 1_000 for name in rights.produces)
    assert connection.held_bytes < BYTES


def test_batch_of_very_many_properties_is_refused_before_it_costs_anything() -> None:
    """400 messages with 1,000 properties each: code 11 with the limit, and the largest allowed is cheap."""
    world = HostileWorld()

    def sent(count: int) -> tuple[Any, float]:
        client = world.connect("producer")
        each = {f"{number:x}": "v" for number in range(1000)}
        message = producer_idl.Message(
            topic="orders", body=b"x", key="", hashId=0, partitionId=-1, properties={**each, str(count): "v"}
        )
        frame = client.codec.call("sendBatchSync", 1, messages=[message] * count)
        connection = list(world.node.producer.connections)[-1]
        began = time.thread_time()
        connection.data_received(frame)
        took = time.thread_time() - began
        world.run(1.0)
        return client.replies[-1].value, took

    refused, took = sent(400)
    assert refused.code == ResultCode.FAIL_ILLEGAL_MSG
    assert f"more than {PROPERTIES_PER_CALL_MAX} properties" in refused.msg
    assert took < CPU_SECONDS
    taken, took = sent(PROPERTIES_PER_CALL_MAX // 1001)
    assert taken.code == ResultCode.OK
    assert took < CPU_SECONDS
    print(f"{took * 1000:.0f} ms")
