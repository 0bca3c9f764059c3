"""Principals x methods x resources, each asked over the wire, before and after a reload, against a model of their own.

The model is written here anew, by fnmatch over the same lines: what the product compiles is not asked.
"""

from __future__ import annotations

import fnmatch
import re

import pytest

from proxy.services.access.methods import RIGHTS
from proxy.wire.generic.tables import methods
from tests.access.world import CONSUMER_METHODS, DENIAL, AccessWorld, Client, arguments_of, shape

PRINCIPALS = [f"p{at}" for at in range(11)] + ["anonymous"]
RESOURCES = (
    "orders",
    "payments",
    "billing",
    "audit",
    "low",
    "nowhere",
    "orders-eu",
    "team-a",
    "Orders",
    "x.y",
    "*",
    "",
)
ACTION = {
    **dict.fromkeys(("pull", "submit", "fetch", "ack"), ("consume",)),
    "getConsumeStats": ("consume", "view"),
    **dict.fromkeys(("sendSync", "sendAsync", "sendBatchSync", "sendDelaySync"), ("produce",)),
    **dict.fromkeys(("sendHalfSync", "endTransaction", "fetchChecks"), ("transact",)),
}

Lines = list[tuple[list[str], dict[str, list[str]]]]

BEFORE: Lines = [
    (["p0"], {"produce": ["*"], "consume": ["*"], "transact": ["*"]}),
    (["p1"], {"produce": ["orders"], "consume": ["billing"]}),
    (["p2", "p3"], {"produce": ["orders*"], "transact": ["team-*", "orders"]}),
    (["p4"], {"consume": ["*i*"], "view": ["audit", "low"]}),
    (["p*"], {"view": ["nowhere"]}),
    (["anonymous"], {"produce": ["payments"], "consume": ["audit"]}),
    (["p1*"], {"produce": ["x.y"], "consume": ["x?y", "low"]}),
    (["p5"], {"operate": ["*"], "readBodies": ["*"], "view": ["*"]}),
    (["p6"], {"consume": ["low", "orders"], "produce": ["low"]}),
]
AFTER: Lines = [
    (["p0"], {"produce": ["payments"], "consume": ["low"]}),
    (["p1", "p2"], {"produce": ["*s"], "consume": ["a*t", "b*"], "transact": ["*"]}),
    (["p7", "*9"], {"consume": ["*"], "transact": ["team-a"]}),
    (["*"], {"view": ["billing"]}),
    (["p3"], {"produce": ["orders"], "transact": ["orders"]}),
]


def yaml(lines: Lines) -> str:
    """Write the section."""
    networks = ", ".join(f"{{cidr: 10.0.{at}.0/24, principal: {name}}}" for at, name in enumerate(PRINCIPALS[:-1]))
    rules = []
    for principals, rights in lines:
        given = ", ".join(f"{key}: {[*values]!r}" for key, values in rights.items())
        rules.append(f"    - {{principals: {principals!r}, {given}}}\n")
    return f"access:\n  networks: [{networks}]\n  rules:\n{''.join(rules)}"


def may(lines: Lines, principal: str, action: str, resource: str) -> bool:
    """Decide, by the model: a star is any run of characters, and `anonymous` is matched by no pattern."""

    def has(patterns: list[str], name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, each.replace("?", "[?]")) for each in patterns)

    return any(
        has([each for each in principals if principal != "anonymous" or each == principal], principal)
        and has(rights.get(action, []), resource)
        for principals, rights in lines
    )


def expected(lines: Lines, principal: str, method: str, resource: str) -> bool:
    """Whether a call goes on; a half needs its topic too."""
    allowed = any(may(lines, principal, action, resource) for action in ACTION[method])
    return allowed and (method != "sendHalfSync" or may(lines, principal, "produce", "orders"))


def ask(world: AccessWorld, clients: dict[tuple[str, str], Client], lines: Lines) -> int:
    """Ask every cell; returns how many there were."""
    cells = 0
    for principal in PRINCIPALS:
        for method in ACTION:
            client = clients[principal, "consumer" if method in CONSUMER_METHODS else "producer"]
            for resource in RESOURCES:
                before = world.denied()
                reply = client.call(method, **arguments_of(method, resource))
                was_denied = world.denied() > before
                cell = (principal, method, resource, shape(reply))
                assert was_denied != expected(lines, principal, method, resource), cell
                if was_denied:
                    assert shape(reply) == DENIAL[method], cell
                elif method not in ("ack", "submit"):
                    assert shape(reply) != DENIAL[method] or method == "fetchChecks", cell
                cells += 1
    return cells


def test_every_cell_is_as_the_rules_say_before_and_after_a_reload() -> None:
    """Thousands of calls: each is denied as its method is, or goes on, by the rules in force; on open connections."""
    world = AccessWorld(yaml(BEFORE))
    clients = {
        (name, service): world.client(service, f"10.0.{at}.1")
        for at, name in enumerate(PRINCIPALS)
        for service in ("consumer", "producer")
    }
    cells = ask(world, clients, BEFORE)
    assert world.reload(yaml(AFTER)).accepted
    cells += ask(world, clients, AFTER)
    assert cells == 2 * len(PRINCIPALS) * len(ACTION) * len(RESOURCES) > 3_000


def test_each_method_of_the_interface_definitions_has_its_right() -> None:
    """A method that is added fails here until its right is in the table, and in the matrix."""
    assert set(methods()) == set(RIGHTS) == {*ACTION, "authenticate"}
    assert {name for name, rights in RIGHTS.items() if not rights} == {"authenticate"}
    assert all(tuple(map(str, RIGHTS[name]))[: len(actions)] == actions for name, actions in ACTION.items())


@pytest.mark.parametrize("method", DENIAL)
def test_denial_tells_nothing_about_what_exists(method: str) -> None:
    """Whether there is such a topic or group, a denial is the same but for the client's own word, and takes as long."""
    world = AccessWorld("access: {rules: []}\n")
    client = world.client("consumer" if method in CONSUMER_METHODS else "producer")
    seen = set()
    for resource in ("orders", "billing", "low", "nowhere", "CamelCase"):
        began = world.loop.time()
        reply = client.call(method, **arguments_of(method, resource))
        text = re.sub(rf"\b{resource}\b", "?", str(reply.value if reply.error is None else reply.error))
        seen.add((text, round(world.loop.time() - began, 2)))
    assert len(seen) == 1
