"""What belongs to the principal that first used it: a producer's numbers, a transaction, a delayed message.

Others are refused as if it had never been, before and after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proxy.access.access import DENIED
from pyddmq.testing import ManualClock, SimDisk
from tests.access.world import AccessWorld, Client, delay, message, pull
from tests.insides import opened_of
from tests.simulation.wire import producer_idl
from upstream.tools.backup import Backup, restore

RULES = """
access:
  networks:
    - {cidr: 10.0.1.0/24, principal: first}
    - {cidr: 10.0.2.0/24, principal: second}
  rules:
    - {principals: [first, second], produce: [orders, payments], consume: [billing], transact: [deals]}
"""
FIRST, SECOND = "10.0.1.1", "10.0.2.1"
NAME = "FE" + "0" * 18
UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"
CANCEL, COMMIT = 2, 8
CANCELLED, UNKNOWN = 1, 3

Restart = Callable[[AccessWorld], AccessWorld]
RESTARTS = pytest.mark.parametrize(
    "restart", [lambda world: world, lambda world: world.again(RULES)], ids=["running", "restarted"]
)


def key(number: int, name: str = NAME) -> str:
    """Return the number of a message of a deduplicating producer."""
    return f"{name}{number:012X}"


def producers(world: AccessWorld) -> tuple[Client, Client]:
    """Connect both."""
    return world.client("producer", FIRST), world.client("producer", SECOND)


def send(client: Client, number: int, name: str = NAME) -> int:
    """Send a numbered message; returns the code."""
    code: int = client.call("sendSync", message=message("orders", uniqKey=key(number, name)), timeout=1000).value.code
    return code


@RESTARTS
def test_numbers_of_a_producer_are_its_principals(restart: Restart) -> None:
    """Nobody else sends under its name, by whichever call; under another name everybody does."""
    world = AccessWorld(RULES)
    first, _ = producers(world)
    assert send(first, 0) == 0
    world = restart(world)
    first, second = producers(world)
    assert send(second, 1) == 48
    numbered = message("orders", uniqKey=key(1))
    assert second.call("sendBatchSync", messages=[numbered]).value.code == 48
    assert second.call("sendHalfSync", message=numbered, producerGroup="deals", timeout=1000).value.code == 48
    delayed = delay("orders", uniqKey=key(1), timestamp=soon(world))
    assert second.call("sendDelaySync", delayMessage=delayed, timeout=1000).value.code == 48
    assert world.denied() == 4
    assert world.node.runtime.metrics.value(DENIED, "sendSync", "owner") == 1
    assert send(second, 0, "FE1" + "0" * 17) == 0
    assert send(first, 1) == 0
    # A repeat is answered to whose it is alone: its receipt says where the message is.
    assert send(second, 0) == 48


def test_names_are_their_principals_after_a_restore() -> None:
    """A backup of a running node says whose they are, also where they are known by the log alone."""
    world = AccessWorld(RULES)
    first, _ = producers(world)
    assert send(first, 0) == 0
    data = world.node.in_force.config.node.data
    Backup(data, "/copy", source=world.disk, disk=world.disk, clock=ManualClock()).make()
    world.node.kill()
    disk = SimDisk()
    for path, content in world.disk.contents().items():
        if path.startswith("/copy/"):
            disk.make_folder(path.rpartition("/")[0])
            disk.open(path, create=True).write(0, [content])
    restore("/copy", data, disk=disk, clock=ManualClock())
    world = AccessWorld(RULES, disk=disk)
    first, second = producers(world)
    assert send(second, 1) == 48
    assert send(first, 1) == 0


def test_what_is_no_number_is_refused_as_such_and_belongs_to_nobody() -> None:
    """Junk in the field makes no entry: code 11, as without rules."""
    world = AccessWorld(RULES)
    first, second = producers(world)
    for client in (first, second):
        call = client.call("sendSync", message=message("orders", uniqKey="x\x01" * 16), timeout=1000)
        assert call.value.code == 11
    access = world.node.parts.access
    assert access is not None
    assert access.owners is not None
    assert access.owners.of(b"x\x01" * 10) is None


def soon(world: AccessWorld) -> int:
    """Return a moment that a delayed message may have, seconds since the epoch."""
    return world.node.parts.seams.clock.wall_ms() // 1000 + 3600


def half(client: Client) -> Any:
    """Send a half."""
    reply = client.call("sendHalfSync", message=message("orders"), producerGroup="deals", timeout=1000).value
    assert reply.code == 0
    return reply


def end(client: Client, handle: str, *, group: str = "deals") -> tuple[int, str]:
    """Commit; returns code and text."""
    decision = producer_idl.EndTransaction(producerGroup=group, handle=handle, state=COMMIT)
    reply = client.call("endTransaction", decision=decision).value
    return reply.code, reply.msg


def checks(client: Client, answers: Any = None) -> list[Any]:
    """Fetch checks."""
    request = producer_idl.CheckRequest(producerGroup="deals", maxLingerTime=20, answers=answers)
    found: list[Any] = client.call("fetchChecks", request=request).value
    return found


@RESTARTS
def test_transaction_is_unknown_to_other_principals(restart: Restart) -> None:
    """Its handle, stolen, decides nothing for another one, though that may decide as the same group."""
    world = AccessWorld(RULES)
    first, _ = producers(world)
    handle = half(first).handle
    world = restart(world)
    first, second = producers(world)
    code, text = end(second, handle)
    unknown = handle.replace(handle.split("-")[2], "0" * 32)
    assert (code, text) == end(second, unknown)
    assert code == 41
    assert end(first, handle)[0] == 0
    # Nor what became of it.
    assert end(second, handle) == (code, text)
    assert end(first, handle)[0] == 0


@RESTARTS
def test_checks_go_to_whose_the_half_is(restart: Restart) -> None:
    """A check has the whole message: another principal of the group gets none, and its answers count for nothing."""
    world = AccessWorld(RULES)
    first, _ = producers(world)
    handle = half(first).handle
    world = restart(world)
    first, second = producers(world)
    world.run(20)
    answer = producer_idl.EndTransaction(producerGroup="deals", handle=handle, state=COMMIT, fromCheck=True)
    assert checks(second, [answer]) == []
    [check] = checks(first)
    assert check.handle == handle
    assert opened_of(world.node).store.topics["orders"].queues[0].max_offset == 0
    mine = half(second).handle
    world.run(20)
    assert [each.handle for each in checks(second)] == [mine]


def add(client: Client, world: AccessWorld, **fields: Any) -> str:
    """Add a delayed message; returns its id."""
    asked = delay("orders", timestamp=soon(world), **fields)
    reply = client.call("sendDelaySync", delayMessage=asked, timeout=1000).value
    assert reply.code == 0
    found: str = reply.uniqDelayMsgId
    return found


def cancel(client: Client, delay_id: str) -> int:
    """Cancel; returns the outcome."""
    asked = producer_idl.DelayMessage(topic="orders", body=b"x", tags="", action=CANCEL, uniqDelayMsgId=delay_id)
    reply = client.call("sendDelaySync", delayMessage=asked, timeout=1000).value
    assert reply.code == 0
    outcome: int = reply.cancelOutcome
    return outcome


@RESTARTS
@pytest.mark.parametrize("loop", [False, True])
def test_delayed_message_is_cancelled_by_whose_it_is(restart: Restart, loop: bool) -> None:
    """To another principal its id is unknown, as one that never was."""
    world = AccessWorld(RULES)
    first, _ = producers(world)
    fields = {"dmsgtype": 3, "interval": 60, "times": 3, "expire": soon(world) + 9999} if loop else {}
    delay_id = add(first, world, uuid=UUID, **fields)
    world = restart(world)
    first, second = producers(world)
    assert cancel(second, delay_id) == UNKNOWN
    assert cancel(first, delay_id) == CANCELLED


def test_same_id_of_two_principals_is_two_messages() -> None:
    """An add that another principal repeats is its own: it neither swallows the other nor is answered for it."""
    world = AccessWorld(RULES)
    first, second = producers(world)
    moment = soon(world)
    ids = set()
    for client in (first, second):
        asked = delay("orders", uuid=UUID, timestamp=moment)
        ids.add(client.call("sendDelaySync", delayMessage=asked, timeout=1000).value.uniqDelayMsgId)
    assert len(ids) == 1
    [delay_id] = ids
    assert cancel(second, delay_id) == CANCELLED
    world.run(3700)
    assert opened_of(world.node).store.topics["orders"].queues[0].max_offset == 1
    assert cancel(first, delay_id) != CANCELLED


def test_owner_is_not_shown_to_consumers() -> None:
    """The property that holds it is the broker's own."""
    world = AccessWorld(RULES)
    first, _ = producers(world)
    assert end(first, half(first).handle)[0] == 0
    add(first, world, uuid=UUID)
    world.run(3700)
    puller = world.client("consumer", FIRST)
    shown = []
    for _ in range(2):
        shown += puller.call("pull", request=pull("billing", linger_ms=500)).value.messages
    assert len(shown) == 2
    assert all(not [name for name in each.properties or {} if name.startswith("__")] for each in shown)
