"""What a client above a limit of its own is answered, over the wire, method by method; in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from conf.loader import loads
from proxy.node.reload import Reloader
from proxy.operate.attention.findings import judged
from proxy.operate.live_node import LiveNode
from pyddmq.testing import SimDisk
from tests.access.world import (
    CONSUMER_METHODS,
    AccessWorld,
    Client,
    arguments_of,
    delay,
    fetch,
    message,
    pull,
    result,
    shape,
)
from tests.insides import opened_of
from tests.simulation.wire import Reply, consumer_idl, producer_idl

ACCESS = """
access:
  networks: [{cidr: 10.1.0.0/16, principal: shop}, {cidr: 10.2.0.0/16, principal: audit}]
  rules: [{principals: [shop, audit], produce: ["*"], consume: ["*"], transact: ["*"]}]
"""
SHOP, AUDIT = "10.1.0.7", "10.2.0.7"


def limited(**limits: Any) -> str:
    """The sections of a node that limits the principal `shop`."""
    given = ", ".join(f"{key}: {value}" for key, value in limits.items())
    return f"{ACCESS}limits: {{principals: [{{principals: [shop], {given}}}]}}\n"


def port_of(method: str) -> str:
    """Which port has a method."""
    return "consumer" if method in CONSUMER_METHODS else "producer"


def stats(client: Client) -> Reply:
    """Ask something that waits for nothing."""
    return client.call("getConsumeStats", request=consumer_idl.ConsumeStatsRequest(group="billing"))


def send(client: Client, topic: str = "orders", **fields: Any) -> Any:
    """Send one message; the result."""
    return client.call("sendSync", message=message(topic, **fields), timeout=50).value


def spend(world: AccessWorld, service: str = "consumer") -> None:
    """Take more than a second's worth at one call a second: each call over a connection of its own."""
    for _ in range(3):
        client = world.client(service, SHOP)
        if service == "consumer":
            stats(client)
        else:
            send(client)
        client.transport.abort()


REFUSED = {
    "pull": "exception 9",
    "getConsumeStats": "exception 9",
    "fetch": "code 9",
    "fetchChecks": "list",
    "sendSync": "code 15",
    "sendAsync": "code 15",
    "sendBatchSync": "code 15",
    "sendDelaySync": "code 15",
    "sendHalfSync": "code 15",
    "submit": "True",
    "ack": "True",
    "endTransaction": "code 41",
}
"""What each method is answered above a rate; the last three as ever."""
RESOURCES = {"pull": "billing", "submit": "billing", "getConsumeStats": "billing", "fetch": "low", "ack": "low"}


@pytest.mark.parametrize("method", REFUSED)
def test_each_method_above_a_rate_has_its_answer(method: str) -> None:
    """Each in its own form; what brings results is taken; another client notices nothing."""
    world = AccessWorld(limited(requestsPerSecond=1))
    if method == "submit":
        send(world.client("producer", AUDIT))
        world.client("consumer", AUDIT).call("pull", request=pull("billing"))
    if method == "ack":
        world.client("consumer", AUDIT).call("fetch", request=fetch("low"))
    spend(world, port_of(method))
    arguments = arguments_of(method, RESOURCES.get(method, "orders"))
    if method == "submit":
        arguments = {"result": result("billing")}
    before = world.loop.time()
    reply = world.client(port_of(method), SHOP).call(method, **arguments)
    assert shape(reply) == REFUSED[method]
    assert world.loop.time() - before < 0.1, "it is its next call that waits"
    if method not in ("submit", "ack", "endTransaction", "fetchChecks", "fetch"):
        answer = reply.error or reply.value
        assert 0 < answer.retryAfterMs <= 3000
        text = getattr(answer, "message", None) or answer.msg
        assert text == f"shop is above its limit of 1 requests a second; retry after {answer.retryAfterMs} ms"
    other = world.client(port_of(method), AUDIT).call(method, **arguments)
    assert shape(other) != REFUSED[method] or method in ("submit", "ack", "endTransaction", "fetchChecks")
    if method == "submit":
        assert opened_of(world.node).progress.trackers["billing", "orders", 0].watermark == 1


def test_results_of_a_pull_above_its_rate_are_taken_and_it_is_answered_empty() -> None:
    """An exception would have some libraries throw them away, and the others send them again and again (F7)."""
    world = AccessWorld(limited(requestsPerSecond=1))
    send(world.client("producer", AUDIT))
    client = world.client("consumer", SHOP)
    got = client.call("pull", request=pull("billing")).value
    assert [each.offset for each in got.messages] == [0]
    spend(world)
    reply = client.call("pull", request=pull("billing", results=result("billing")))
    assert reply.error is None
    assert not reply.value.messages
    assert opened_of(world.node).progress.trackers["billing", "orders", 0].watermark == 1
    world.run(3.0)
    assert client.call("pull", request=pull("billing")).error is None, "its own second has come"


def test_long_chain_of_results_is_taken_above_a_rate_too() -> None:
    """Those that are worked off in steps."""
    world = AccessWorld(limited(requestsPerSecond=1))
    producer = world.client("producer", AUDIT)
    for _ in range(3):
        send(producer)
    client = world.client("consumer", SHOP)
    client.call("pull", request=pull("billing"))
    spend(world)
    context = consumer_idl.Context(groupId="billing", topic="orders", qid="pyddmq_broker-0_0")
    offsets = [*range(3), *range(10**9, 10**9 + 20_000)]
    chain = consumer_idl.ConsumeResult(context=context, successOffsets=offsets, failOffsets=[])
    assert client.call("pull", request=pull("billing", results=chain)).error is None
    assert opened_of(world.node).progress.trackers["billing", "orders", 0].watermark == 3


@pytest.mark.parametrize("connections", [1, 10])
def test_rate_is_kept_however_many_connections_there_are(connections: int) -> None:
    """A client that asks as fast as it is answered gets its rate, and its first second at once."""
    world = AccessWorld(limited(requestsPerSecond=20))
    clients = [world.client("consumer", SHOP) for _ in range(connections)]
    served = 0

    def go_on(client: Client, seen: int) -> int:
        return len(client.replies) - seen

    counts = [0] * connections
    until = world.loop.time() + 10
    for client in clients:
        client.send("getConsumeStats", request=consumer_idl.ConsumeStatsRequest(group="billing"))
    while world.loop.time() < until:
        world.loop.run(
            lambda: any(go_on(each, counts[at]) for at, each in enumerate(clients)), seconds=until - world.loop.time()
        )
        for at, client in enumerate(clients):
            if go_on(client, counts[at]):
                counts[at] = len(client.replies)
                served += client.replies[-1].error is None
                client.send("getConsumeStats", request=consumer_idl.ConsumeStatsRequest(group="billing"))
    assert 200 <= served <= 20 * 10 + 20 + connections
    asked = sum(counts)
    assert asked <= served + 11 * connections, "who is refused comes once a second at most"


def test_bytes_count_in_both_directions() -> None:
    """Whole frames as they arrive, and replies as they leave."""
    world = AccessWorld(limited(bytesInPerSecond=4096))
    client = world.client("producer", SHOP)
    assert send(client, key="k" * 200).code == 0
    big = producer_idl.Message(topic="orders", body=b"x" * 20_000, hashId=0, partitionId=-1)
    assert client.call("sendSync", message=big, timeout=50).value.code == 0, "no frame is stuck for its size"
    refused = send(client)
    assert refused.code == 15
    assert 3000 < refused.retryAfterMs < 5000
    assert "4,096 bytes in a second" in refused.msg
    world.run(refused.retryAfterMs / 1000)
    assert send(client).code == 0
    world = AccessWorld(limited(bytesInPerSecond=4_000_000))
    client = world.client("producer", SHOP)
    endless = producer_idl.Message(topic="orders", body=b"x" * 20_000_000, hashId=0, partitionId=-1)
    assert client.call("sendSync", message=endless, timeout=50).value.code == 11
    assert send(client).retryAfterMs > 3000, "what was too long to be kept has come all the same"
    world = AccessWorld(limited(bytesOutPerSecond=4096))
    world.client("producer", AUDIT).call("sendSync", message=big, timeout=50)
    client = world.client("consumer", SHOP)
    assert len(client.call("pull", request=pull("billing")).value.messages) == 1
    refused_pull = client.call("pull", request=pull("billing")).error
    assert refused_pull.code == 9
    assert 3000 < refused_pull.retryAfterMs < 5000


def test_connection_without_a_place_is_told_so_and_closed() -> None:
    """Its calls are answered as above a rate for a second; a place that becomes free is its own."""
    world = AccessWorld(limited(connections=2))
    first, second = world.client("consumer", SHOP), world.client("producer", SHOP)
    assert stats(first).error is None
    assert send(second).code == 0
    third = world.client("producer", SHOP)
    refused = send(third)
    assert (refused.code, refused.msg) == (15, "shop is at its limit, 2 connections; retry after 1000 ms")
    first.transport.abort()
    assert send(third).code == 0
    fourth = world.client("consumer", SHOP)
    assert stats(fourth).error.code == 9
    world.run(3.0)
    assert fourth.lost
    assert not third.lost
    assert send(world.client("producer", AUDIT)).code == 0


def test_address_has_so_many_connections() -> None:
    """Over both ports; one more is closed before it asked anything; an idle one makes room."""
    world = AccessWorld(
        "limits: {addresses: [{networks: [10.1.0.0/16], connections: 2}]}\n", node={"idleTimeout": 5000}
    )
    clients = [world.client("consumer", SHOP), world.client("producer", SHOP)]
    assert world.client("consumer", SHOP).lost
    assert not world.client("consumer", "10.1.0.8").lost
    world.run(7.0)
    assert not world.client("consumer", SHOP).lost, "the first of them was idle for long"
    assert clients[0].lost


def test_share_of_a_port_and_of_waiting_pulls() -> None:
    """One client cannot take all places: half of those that there are, and others find some."""
    world = AccessWorld(f"{ACCESS}limits: {{share: 1}}\n", node={"maxConnections": 8, "maxParkedPulls": 4})
    clients = [world.client("consumer", SHOP) for _ in range(8)]
    assert sum(not each.lost for each in clients) == 4
    for each in clients[:4]:
        each.send("pull", request=pull("billing", linger_ms=10_000))
        world.run(0.1)
    assert [len(each.replies) for each in clients[:4]] == [0, 0, 1, 1]
    assert clients[3].replies[0].error.code == 9
    other = world.client("consumer", AUDIT)
    other.send("pull", request=pull("billing", linger_ms=5_000))
    world.run(0.5)
    assert not other.replies
    assert not other.lost


@pytest.mark.parametrize("method", ["pull", "fetch", "fetchChecks"])
def test_waiting_pulls_of_a_client_are_so_many(method: str) -> None:
    """One more is answered at once, and its connection rests; what waits no more makes room."""
    world = AccessWorld(limited(parkedPulls=2))
    asked = {
        "pull": {"request": pull("billing", linger_ms=5_000)},
        "fetch": {"request": fetch("low", linger_ms=5_000)},
        "fetchChecks": {"request": producer_idl.CheckRequest(producerGroup="team", maxLingerTime=5_000)},
    }[method]
    clients = [world.client(port_of(method), SHOP) for _ in range(3)]
    for each in clients:
        each.send(method, **asked)
        world.run(0.1)
    assert [len(each.replies) for each in clients] == [0, 0, 1]
    assert shape(clients[2].replies[0]) == REFUSED[method]
    clients[0].transport.abort()
    world.run(1.0)
    clients[2].send(method, **asked)
    world.run(0.5)
    assert len(clients[2].replies) == 1
    world.run(6.0)
    assert [len(each.replies) for each in clients] == [0, 1, 2]
    assert not any(meter.parked for meter in world.node.parts.limiter.meters())


def test_pending_timers_are_so_many_until_they_are_due_or_cancelled() -> None:
    """Delays by level and by moment, batches and DDMQ's; the refusal says when the first of them is due."""
    world = AccessWorld(limited(pendingTimers=3))
    client = world.client("producer", SHOP)
    assert send(client, delayMs=5_000).code == 0
    assert send(client, delayLevel=1).code == 0
    now_s = world.node.parts.seams.clock.wall_ms() // 1000
    uuid = "00000000-0000-0000-0000-000000000001"
    added = client.call(
        "sendDelaySync", delayMessage=delay("orders", timestamp=now_s + 60, uuid=uuid), timeout=50
    ).value
    assert added.code == 0
    refused = send(client, delayMs=5_000)
    assert refused.code == 15
    assert 0 < refused.retryAfterMs <= 1000
    assert "at its limit, 3 pending timed messages" in refused.msg
    assert send(client).code == 0, "what does not wait is not counted"
    batch = client.call("sendBatchSync", messages=[message("orders"), message("orders", delayMs=9)]).value
    assert batch.code == 15
    world.run(refused.retryAfterMs / 1000 + 0.1)
    assert send(client, delayMs=100_000).code == 0, "the level's second has passed"
    assert send(client, delayMs=100_000).code == 15
    cancel = delay("orders", action=2, uniqDelayMsgId=added.uniqDelayMsgId)
    ended = client.call("sendDelaySync", delayMessage=cancel, timeout=50).value
    assert (ended.code, ended.cancelOutcome) == (0, 1)
    again = client.call("sendDelaySync", delayMessage=cancel, timeout=50).value
    assert (again.code, again.cancelOutcome) == (0, 1)
    assert send(client, delayMs=100_000).code == 0
    assert send(client, delayMs=100_000).code == 15, "a message that is cancelled twice makes room for one"
    assert send(world.client("producer", AUDIT), delayMs=100_000).code == 0


def half(client: Client) -> Any:
    """Send a half; the result."""
    return client.call("sendHalfSync", message=message("orders"), producerGroup="team", timeout=50).value


def decide(client: Client, handle: str, state: int) -> int:
    """Decide one; the code."""
    decision = producer_idl.EndTransaction(producerGroup="team", handle=handle, state=state)
    code: int = client.call("endTransaction", decision=decision).value.code
    return code


def test_open_transactions_are_so_many_also_after_a_restart() -> None:
    """The store knows whose the halves are; a decision of either kind makes room."""
    disk = SimDisk()
    world = AccessWorld(limited(openTransactions=2), disk=disk)
    client = world.client("producer", SHOP)
    first, second = half(client), half(client)
    assert (first.code, second.code) == (0, 0)
    refused = half(client)
    assert (refused.code, refused.retryAfterMs) == (15, 1000)
    assert "at its limit, 2 undecided transactions" in refused.msg
    assert half(world.client("producer", AUDIT)).code == 0
    world = world.again(limited(openTransactions=2))
    world.run(5.0)
    client = world.client("producer", SHOP)
    assert half(client).code == 15, "they are counted from the store"
    assert decide(client, first.handle, 8) == 0
    assert half(client).code == 0
    assert half(client).code == 15
    assert decide(client, second.handle, 12) == 0
    assert half(client).code == 0


def test_halves_of_one_turn_are_not_more_than_the_limit() -> None:
    """Those whose answer is on its way count."""
    world = AccessWorld(limited(openTransactions=2))
    client = world.client("producer", SHOP)
    for _ in range(5):
        client.send("sendHalfSync", message=message("orders"), producerGroup="team", timeout=50)
    world.run(1.0)
    assert [each.value.code for each in client.replies] == [0, 0, 15, 15, 15]


def test_reload_holds_for_living_connections() -> None:
    """Limits come, change and go; whoever waits goes on waiting."""
    world = AccessWorld(ACCESS)
    client, waiting = world.client("producer", SHOP), world.client("consumer", SHOP)
    waiting.send("pull", request=pull("billing", linger_ms=20_000))
    world.run(0.1)
    assert world.served(client).quota is None, "nobody is limited, and no call is looked at"
    assert world.reload(limited(requestsPerSecond=1)).accepted
    assert [send(client).code for _ in range(3)] == [0, 15, 15]
    assert world.reload(limited(requestsPerSecond=1000)).accepted
    assert [send(client).code for _ in range(3)] == [0, 0, 0]
    assert world.reload(ACCESS).accepted
    assert world.served(client).quota is None
    assert [send(client).code for _ in range(3)] == [0, 0, 0]
    assert not waiting.lost


def test_idle_connection_of_a_client_is_closed() -> None:
    """Whether its place is needed or not; one that waits is not idle."""
    world = AccessWorld(limited(idleTimeout=2000))
    idle, busy, other = (world.client("consumer", host) for host in (SHOP, SHOP, AUDIT))
    for each in (idle, busy, other):
        stats(each)
    busy.send("pull", request=pull("billing", linger_ms=10_000))
    world.run(5.0)
    assert (idle.lost, busy.lost, other.lost) == (True, False, False)


def test_who_signs_in_is_limited_by_who_it_is_then() -> None:
    """A connection is counted for its principal from its next call on; authenticate itself is never refused."""
    world = AccessWorld(limited(requestsPerSecond=1, connections=1))
    stats(world.client("consumer", SHOP))
    client = world.client("consumer", SHOP)
    for _ in range(3):
        reply = client.call("authenticate", token="pyddmq_none")
        assert reply.error is not None
        assert reply.error.code == 8
        client = world.client("consumer", SHOP)


def test_client_at_its_limit_is_told_of_everywhere() -> None:
    """A finding, a view, a counter and a line of the log, with its name; series have none."""
    world = AccessWorld(limited(requestsPerSecond=1))
    client = world.client("producer", SHOP)
    for _ in range(3):
        send(client)
    live = LiveNode(world.node, Reloader(world.node, lambda: loads("node: {}")))
    [finding] = [each for each in judged(live).findings if each.finding == "client_limited"]
    assert finding.text.startswith("The principal shop is at its limit since ")
    assert "1 requests a second (requestsPerSecond); 0 calls delayed, 2 refused." in finding.text
    answer = live.limits(limit=10, name=None)
    assert answer is not None
    [seen] = answer.clients
    assert (seen.client, seen.told_by, seen.connections, [each.refused for each in seen.held]) == (
        "shop",
        "principal",
        1,
        [2],
    )
    assert live.limits(limit=10, name="nobody") is None
    assert world.node.runtime.metrics.value("pyddmq_limits_refused_total", "principal", "requestsPerSecond") == 2


def test_frames_that_lie_unread_of_a_client_that_has_gone_are_not_stored() -> None:
    """A library that timed out sends again over another connection: what it gave up must not be stored as well."""
    world = AccessWorld(limited(requestsPerSecond=1))
    client = world.client("producer", SHOP)
    send(client)
    client.send("sendSync", message=message("orders"), timeout=50)
    client.send("sendSync", message=message("orders"), timeout=50)
    client.transport.abort()
    world.run(5.0)
    stored = opened_of(world.node).store.topics["orders"].queues[0].max_offset
    assert stored == 1


def test_frames_behind_wait_while_a_connection_rests() -> None:
    """A client that sends without waiting for answers is read no faster: nothing of it is handled meanwhile."""
    world = AccessWorld(limited(requestsPerSecond=1))
    client = world.client("producer", SHOP)
    for _ in range(10):
        client.send("sendSync", message=message("orders"), timeout=50)
    world.run(0.03)
    assert [each.value.code for each in client.replies] == [0, 15]
    world.run(0.1)
    assert 2 < len(client.replies) <= 5


def test_memory_is_taken_back_from_who_holds_most_in_all() -> None:
    """Many connections that hold a little each are one client's; who holds more over one is not closed for them."""
    for share, lost in ((1, (True, False)), (None, (False, True))):
        world = AccessWorld(ACCESS + (f"limits: {{share: {share}}}\n" if share else ""))
        big = world.client("producer", AUDIT)
        many = [world.client("producer", SHOP) for _ in range(10)]
        for client, size in [(big, 2_000_000), *((each, 1_000_000) for each in many)]:
            client.transport.write((3_000_000).to_bytes(4, "big") + bytes(size))
        world.run(2.0)
        used = world.node.parts.memory.budget.used
        assert used > 11_000_000
        world.node.parts.memory._sheds_at = 1 << 60  # What an address holds above its share was given up before.
        world.node.parts.memory.budget.configure(used * 8 // 7 - 1000)
        world.node.parts.memory.relieve()
        world.run(0.1)
        assert big.lost == lost[1]
        assert (sum(each.lost for each in many) >= 3) == lost[0]
