"""What a denial does and what it does not: waits, bounds, chains, what is told."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import structlog

from proxy.access.access import OPEN
from proxy.services.access import denials
from tests.access.world import AccessWorld, message, pull, result
from tests.hostile.sim import HostileWorld
from tests.insides import opened_of
from tests.simulation.wire import consumer_idl, producer_idl

RULES = """
access:
  networks:
    - {cidr: 10.0.1.0/24, principal: shop}
    - {cidr: 10.0.2.0/24, principal: billing}
  rules:
    - {principals: [shop], produce: [orders]}
    - {principals: [billing], consume: [billing]}
"""
SHOP, BILLING, STRANGER = "10.0.1.1", "10.0.2.1", "10.9.9.9"


def chain(*results: Any) -> Any:
    """Return results as one chain."""
    for each, following in itertools.pairwise(results):
        each.nextResult = following
    return results[0]


def out(world: AccessWorld, count: int = 3) -> Any:
    """Publish, and have `billing` take it; returns its connection, with so many messages out."""
    sender = world.client("producer", SHOP)
    assert sender.call("sendBatchSync", messages=[message("orders") for _ in range(count)]).value.code == 0
    client = world.client("consumer", BILLING)
    reply = client.call("pull", request=pull("billing"))
    assert len(reply.value.messages) == count
    return client


@pytest.mark.parametrize("method", ["pull", "fetch", "fetchChecks"])
def test_denied_call_waits_for_its_linger_and_a_second_at_most(method: str) -> None:
    """Whoever comes again at once is held as long as it would wait for messages, so that it does not spin."""
    world = AccessWorld(RULES)
    client = world.client("producer" if method == "fetchChecks" else "consumer", STRANGER)
    for linger_ms, waited in ((0, 0.02), (300, 0.3), (30_000, 1.0)):
        began = world.loop.time()
        if method == "pull":
            client.call(method, request=pull("billing", linger_ms=linger_ms))
        elif method == "fetch":
            request = consumer_idl.FetchRequest(consumerId="c", groupId="low", cluster="", maxLingerTime=linger_ms)
            client.call(method, request=request)
        else:
            client.call(method, request=producer_idl.CheckRequest(producerGroup="g", maxLingerTime=linger_ms))
        assert world.loop.time() - began == pytest.approx(waited, abs=0.02)


def test_denied_calls_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound they are answered at once; those that are gone count no more."""
    monkeypatch.setattr(denials, "HELD_MAX", 3)
    world = AccessWorld(RULES)
    client = world.client("consumer", STRANGER)
    for _ in range(3):
        client.send("pull", request=pull("billing", linger_ms=1000))
    other = world.client("consumer", STRANGER)
    began = world.loop.time()
    assert other.call("pull", request=pull("billing", linger_ms=1000)).error.code == 8
    assert world.loop.time() - began < 0.1
    assert world.node.runtime.metrics.value(denials.HELD) == 3
    client.transport.abort()
    world.run(0.1)
    assert world.node.runtime.metrics.value(denials.HELD) == 0
    began = world.loop.time()
    other.call("pull", request=pull("billing", linger_ms=1000))
    assert world.loop.time() - began > 0.9


def test_results_of_a_denied_pull_are_not_taken() -> None:
    """Who may not pull for a group may not finish its messages either, by whatever rides on the pull."""
    world = AccessWorld(RULES)
    client = out(world)
    stranger = world.client("consumer", SHOP)
    stranger.call("pull", request=pull("audit", results=result("billing")))
    stranger.call("pull", request=pull("billing", results=result("billing")))
    assert stranger.call("submit", result=result("billing")).value is False
    # The message is still out with whom it was given to, whose answer counts.
    assert client.call("submit", result=result("billing")).value is True


def test_member_of_a_chain_without_the_right_is_dropped_and_the_others_count() -> None:
    """Each result counts by its own group, whatever the group of the head or of the pull (W4, D13)."""
    world = AccessWorld(RULES)
    client = out(world)
    mixed = chain(result("audit"), result("billing", offset=0), result("nowhere"), result("billing", offset=1))
    assert client.call("submit", result=mixed).value is True
    assert world.denied() == 2
    reply = client.call("pull", request=pull("billing", results=chain(result("audit"), result("billing", offset=2))))
    assert reply.error is None
    assert world.denied() == 3
    group = world.node.in_force.groups["billing"].stats()
    assert group.in_flight_total == 0


def test_denied_results_of_one_call_are_noted_together() -> None:
    """Thousands of them, of groups that are made up, would be as many notes in one step of the loop."""
    with structlog.testing.capture_logs() as lines:
        world = AccessWorld(RULES.replace("[orders]", "[orders], transact: [g]"))
        client = world.client("consumer", STRANGER)
        assert client.call("submit", result=chain(*(result(f"g{number}") for number in range(20)))).value is False
        sender = world.client("producer", SHOP)
        answers = [producer_idl.EndTransaction(producerGroup=f"p{number}", handle="h", state=8) for number in range(5)]
        sender.call("fetchChecks", request=producer_idl.CheckRequest(producerGroup="g", answers=answers))
    assert [line["count"] for line in lines if line["event"] == "access_denied"] == [20, 5]
    assert world.denied() == 25


def test_head_of_a_chain_lends_its_right_to_nobody() -> None:
    """With DDMQ the group of the head stands for all (W4): here the others are asked for theirs."""
    world = AccessWorld(RULES.replace("consume: [billing]", "consume: [audit]"))
    sender = world.client("producer", SHOP)
    assert sender.call("sendSync", message=message("orders"), timeout=1000).value.code == 0
    client = world.client("consumer", BILLING)
    assert client.call("submit", result=chain(result("audit", offset=10**9), result("billing"))).value is False
    assert world.denied() == 1


def test_denials_are_told_once_a_minute_with_principal_and_address() -> None:
    """A client in a loop is one line a minute, with how often."""
    with structlog.testing.capture_logs() as lines:
        world = AccessWorld(RULES)
        client = world.client("producer", BILLING)
        for _ in range(20):
            client.call("sendSync", message=message("orders"), timeout=1000)
        world.run(120)
    reported = [line for line in lines if line["event"] == "access_denied"]
    assert [line["count"] for line in reported] == [1, 19]
    assert reported[0]["principal"] == "billing"
    assert reported[0]["client"].startswith("10.0.2.1:")
    assert (reported[0]["method"], reported[0]["resource"], reported[0]["reason"]) == ("sendSync", "orders", "right")
    assert world.denied() == 20


def test_denials_of_each_principal_have_lines_of_their_own() -> None:
    """Who is denied a little stands beside who is denied a million times, in the log and in the audit trail."""
    with structlog.testing.capture_logs() as lines:
        world = AccessWorld(RULES)
        for host, count in ((BILLING, 20), (STRANGER, 3)):
            client = world.client("producer", host)
            for _ in range(count):
                client.call("sendSync", message=message("orders"), timeout=1000)
        world.run(61)
    reported = [line for line in lines if line["event"] == "access_denied"]
    counted = [("anonymous", 1), ("anonymous", 2), ("billing", 1), ("billing", 19)]
    assert sorted((line["principal"], line["count"]) for line in reported) == counted
    entries, _ = world.node.parts.audit.recent(10)
    assert sorted((each.principal, each.count) for each in entries) == counted


def test_batch_with_one_topic_without_the_right_stores_nothing() -> None:
    """A batch is all or nothing, by its rights too."""
    world = AccessWorld(RULES)
    client = world.client("producer", SHOP)
    reply = client.call("sendBatchSync", messages=[message("orders"), message("payments")])
    assert reply.value.code == 13
    assert all(queue.max_offset == 0 for queue in opened_of(world.node).store.topics["orders"].queues)


def test_without_rules_nothing_is_asked() -> None:
    """A node without the section serves everybody, and its connections have no rights to look at."""
    world = AccessWorld("")
    client = world.client("producer", STRANGER)
    assert client.call("sendSync", message=message("orders"), timeout=1000).value.code == 0
    assert world.served(client).rights is None
    assert client.call("authenticate", token="whatever").value.name == "anonymous"


def test_denials_of_calls_stand_in_the_audit_trail() -> None:
    """One line a minute for each kind, with who and from where, in a file of the store that a restart reads."""
    world = AccessWorld(RULES)
    client = world.client("producer", STRANGER)
    for _ in range(5):
        assert client.call("sendSync", message=message("orders"), timeout=1000).value.code == 13
    assert world.client("consumer", SHOP).call("pull", request=pull("billing")).error.code == 8
    world.run(61)
    entries, total = world.node.parts.audit.recent(10)
    found = sorted((each.what, each.principal, each.resource, each.count) for each in entries)
    assert found == [
        ("pull", "shop", "billing", 1),
        ("sendSync", "anonymous", "orders", 1),
        ("sendSync", "anonymous", "orders", 4),
    ]
    assert {each.address.partition(":")[0] for each in entries} == {STRANGER, SHOP}
    again = world.again(RULES)
    assert again.node.parts.audit.recent(10)[1] == total


def test_open_ports_are_named_by_a_gauge() -> None:
    """1 where the word holds; rules take its place, and the loopback needs none."""
    opened = "node: {access: open, host: 0.0.0.0, producerPort: 9613, consumerPort: 9713}\n"
    assert HostileWorld(opened).node.runtime.metrics.value(OPEN) == 1
    assert HostileWorld(opened + RULES).node.runtime.metrics.value(OPEN) == 0
    assert HostileWorld().node.runtime.metrics.value(OPEN) == 0
