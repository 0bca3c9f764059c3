"""Who is counted: lines, addresses, principals, and how many are kept."""

from __future__ import annotations

from typing import Any

import pytest

from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from conf.sections.limits import LimitsConfig
from proxy.access.access import DENIED_WAY
from proxy.access.rights import Rights
from proxy.limits import limiter as limiters
from proxy.limits.limiter import HELD, REFUSED, Limiter
from proxy.limits.quota import LimitExceeded, Quota, unpark
from pyddmq.testing import ManualClock


class World:
    """A limiter, and what it counts."""

    def __init__(self, **config: Any) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.limiter = Limiter(
            config_of(**config),
            clock=self.clock,
            metrics=self.metrics,
            limited_log=RateLimitedLog(self.clock),
        )

    def quota(self, host: str = "10.0.0.1", principal: str = "", way: str = "network") -> Quota:
        """Let a connection in, whatever it may."""
        quota = self.limiter.enter(host, "consumer")
        self.limiter.identify(quota, Rights(principal, None, way=way) if principal else None, "consumer")
        return quota


def config_of(**config: Any) -> LimitsConfig:
    """A section."""
    return LimitsConfig.model_validate(config)


def test_nobody_is_limited_without_a_section() -> None:
    """Then no connection has a quota, and nothing is counted."""
    world = World()
    assert not world.limiter.active
    assert world.limiter.renew(None, "10.0.0.1", "consumer") is None
    assert world.limiter.refusal("10.0.0.1", "consumer", 0) is None


def test_first_line_that_has_a_client_counts() -> None:
    """Of each list, for each client by itself; no pattern matches anonymous."""
    world = World(
        principals=[
            {"principals": ["shop"], "connections": 1},
            {"principals": ["*"], "connections": 2},
            {"principals": ["anonymous"], "connections": 3},
        ],
        addresses=[
            {"networks": ["10.1.0.0/16", "fd00::/8"], "connections": 4},
            {"networks": ["10.0.0.0/8"], "connections": 5},
        ],
    )

    def most(host: str, principal: str, way: str = "network") -> tuple[int | None, int | None]:
        quota = world.quota(host, principal, way)
        found, there = quota.principal, quota.address
        return found.connections_max if found else None, there.connections_max if there else None

    assert most("10.1.0.1", "shop") == (1, 4)
    assert most("10.2.0.1", "billing") == (2, 5)
    assert most("192.168.0.1", "anonymous", "anonymous") == (3, None)
    assert most("fd00::1", "") == (None, 4)
    assert most("fe80::1%eth0", "audit", DENIED_WAY) == (None, None), "who failed to sign in is nobody"
    assert most("", "audit") == (2, None)


def test_ipv6_address_counts_by_its_64() -> None:
    """Whoever has one has 2 to the 64th."""
    world = World(addresses=[{"networks": ["::/0"], "connections": 2}])
    for host in ("2001:db8::1", "2001:db8::ffff:1"):
        assert world.limiter.refusal(host, "consumer", 9) is None
        world.quota(host)
    over = world.limiter.refusal("2001:db8:0:0:9::", "producer", 9)
    assert over is not None
    assert over.text == "the address 2001:db8::/64 is at its limit, 2 connections; retry after 1000 ms"
    assert world.limiter.refusal("2001:db8:0:1::1", "consumer", 9) is None


def test_connections_of_a_principal_are_those_that_ask_as_it() -> None:
    """One too many has no place until another one leaves."""
    world = World(principals=[{"principals": ["shop"], "connections": 1}])
    first, second = world.quota(principal="shop"), world.limiter.enter("10.0.0.2", "producer")
    rights = Rights("shop", None, way="token")
    over = world.limiter.identify(second, rights, "producer")
    assert over is not None
    assert over.limit == "connections"
    assert not second.meters
    assert not second.is_known
    world.limiter.leave(first, "consumer")
    assert world.limiter.identify(second, rights, "producer") is None
    assert [each.name for each in second.meters] == ["shop"]
    assert second.surplus_since is None
    assert world.limiter.identify(second, Rights("other", None, way="token"), "producer") is None
    assert not second.meters, "it signed in as somebody else"


def test_share_leaves_places_for_others() -> None:
    """One client alone may have half of what there is; the last places are for those who have fewest."""
    world = World(share=1)
    for taken in range(5):
        assert world.limiter.refusal("10.0.0.1", "consumer", 10 - taken) is None
        world.quota("10.0.0.1")
    over = world.limiter.refusal("10.0.0.1", "consumer", 5)
    assert over is not None
    assert over.limit == "share"
    assert world.limiter.refusal("10.0.0.1", "producer", 5) is None, "each port has places of its own"
    assert world.limiter.refusal("10.0.0.2", "consumer", 1) is None


def test_pulls_that_wait_are_limited_in_all_and_share_those_of_a_group() -> None:
    """What waits is counted where it was counted until it waits no more, whoever the connection is by then."""
    world = World(share=1, principals=[{"principals": ["shop"], "parkedPulls": 3}])
    quota = world.quota(principal="shop")
    counted = [quota.park(group) for group in ("a", "a", "b")]
    over = quota.full("b", 100)
    assert over is not None
    assert over.limit == "parkedPulls"
    limiters_of = [each.parked.total() for each in quota.meters]
    assert limiters_of == [3, 3]
    world.limiter.leave(quota, "consumer")
    unpark(counted[0], "a")
    assert [each.parked.total() for each in counted[0]] == [2, 2]
    other = world.quota("10.0.0.9", principal="billing")
    other.park("a")
    assert other.full("a", 2) is None
    over = other.full("a", 1)
    assert over is not None
    assert over.limit == "share"


def test_no_more_clients_are_kept_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those without a connection go, the one that left first; those with one stay."""
    monkeypatch.setattr(limiters, "KEPT_MAX", 3)
    world = World(addresses=[{"networks": ["0.0.0.0/0"], "requestsPerSecond": 1}])
    stays = world.quota("10.0.0.1")
    for last in range(2, 50):
        world.limiter.leave(world.quota(f"10.0.0.{last}"), "consumer")
    assert [each.name for each in world.limiter.meters()] == ["10.0.0.1", "10.0.0.47", "10.0.0.48", "10.0.0.49"]
    for last in range(100, 200):
        world.limiter.refusal(f"10.0.0.{last}", "consumer", 9)
    assert len(world.limiter.meters()) == 4
    assert stays.address is world.limiter.meters()[0]


def test_connecting_anew_brings_no_further_second() -> None:
    """A client that left is remembered with what it owes."""
    world = World(addresses=[{"networks": ["0.0.0.0/0"], "requestsPerSecond": 1}])
    for _ in range(3):
        quota = world.quota()
        quota.wait(world.clock.monotonic())
        quota.charge(0)
        world.limiter.leave(quota, "consumer")
    assert world.quota().wait(world.clock.monotonic())[0] == pytest.approx(3.0)


def test_another_section_counts_living_connections_by_its_lines() -> None:
    """Lines come, change and go; what was counted stays."""
    world = World(addresses=[{"networks": ["0.0.0.0/0"], "connections": 5}])
    quota: Quota | None = world.quota()
    world.limiter.configure(config_of(addresses=[{"networks": ["0.0.0.0/0"], "idleTimeout": 2000}]))
    quota = world.limiter.renew(quota, "10.0.0.1", "consumer")
    assert quota is not None
    assert quota.address is not None
    assert (quota.idle_seconds, quota.address.connections.total()) == (2.0, 1)
    world.limiter.configure(config_of())
    assert world.limiter.renew(quota, "10.0.0.1", "consumer") is None
    assert [each.connections.total() for each in world.limiter.meters()] == [0]


def test_what_is_held_and_refused_is_counted_without_names() -> None:
    """Series are bounded whoever the clients are; who they are is told by the view."""
    world = World(principals=[{"principals": ["*"], "requestsPerSecond": 1}])
    for name in ("a", "b"):
        meter = world.quota(principal=name).principal
        assert meter is not None
        world.limiter.held(meter, "requestsPerSecond")
        world.limiter.refused(LimitExceeded(meter, "requestsPerSecond", 5), 2 if name == "b" else 1)
    assert world.metrics.value(HELD, "principal", "requestsPerSecond") == 2
    assert world.metrics.value(REFUSED, "principal", "requestsPerSecond") == 3
    assert [(each.name, each.waited, each.refused) for each in world.limiter.held_now()] == [("b", 1, 2), ("a", 1, 1)]
