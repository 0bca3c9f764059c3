"""Rules that change while clients are there, rules that cannot change, and rules while the node starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from actions.registry import Registry
from broker.runtime.steps import run_now
from conf.loader import loads
from conf.sections.access_files import AccessUnreadable
from proxy.node.node import Node
from proxy.node.parts import Seams
from proxy.node.reload import Reloader
from pyddmq.testing import VirtualClock
from tests.access.world import (
    CONSUMER_METHODS,
    DENIAL,
    NODE,
    TOPICS,
    AccessWorld,
    arguments_of,
    message,
    pull,
    result,
    shape,
    token_file,
)
from tests.insides import opened_of

NETWORK = "networks: [{cidr: 10.0.1.0/24, principal: shop}, {cidr: 10.0.2.0/24, principal: billing}]"
RULES = f"""
access:
  {NETWORK}
  rules:
    - {{principals: [shop], produce: [orders]}}
    - {{principals: [billing], consume: [billing]}}
"""
SHOP, BILLING = "10.0.1.1", "10.0.2.1"


def rules(*lines: str) -> str:
    """Write a section of these rules."""
    return f"access:\n  {NETWORK}\n  rules: [{', '.join(lines)}]\n"


def test_waiting_pull_loses_its_right_by_a_reload() -> None:
    """It is answered empty at once, and gets no message that comes later; its client asks again and is denied."""
    world = AccessWorld(RULES)
    client, sender = world.client("consumer", BILLING), world.client("producer", SHOP)
    client.send("pull", request=pull("billing", linger_ms=30_000))
    client.send("pull", request=pull("billing", linger_ms=30_000))
    world.run(1)
    assert world.reload(rules("{principals: [shop], produce: [orders]}")).accepted
    world.run(0.1)
    assert [reply.value.messages for reply in client.replies] == [[], []]
    assert sender.call("sendSync", message=message("orders"), timeout=1000).value.code == 0
    assert client.call("pull", request=pull("billing")).error.code == 8


def test_reload_gives_and_takes_rights_of_open_connections() -> None:
    """The next call is decided by the rules in force, whatever was decided before."""
    world = AccessWorld(RULES)
    client = world.client("producer", SHOP)
    ask = {"message": message("payments"), "timeout": 1000}
    assert client.call("sendSync", **ask).value.code == 13
    assert world.reload(rules("{principals: [shop], produce: [payments]}")).changes == (
        "access.rules: changes at once",
    )
    assert client.call("sendSync", **ask).value.code == 0
    assert client.call("sendSync", message=message("orders"), timeout=1000).value.code == 13


def test_reload_neither_takes_access_away_nor_brings_it() -> None:
    """Everybody might do everything at once, or nobody anything: both take a restart, and a sentence says so."""
    world = AccessWorld(RULES)
    [problem] = world.reload("").problems
    assert problem.startswith("access: cannot be removed while the node runs")
    assert world.client("producer", BILLING).call("sendSync", **arguments_of("sendSync", "orders")).value.code == 13
    [problem] = AccessWorld("").reload(RULES).problems
    assert problem.startswith("access: cannot be added while the node runs")


def test_reload_that_breaks_access_is_refused(tmp_path: Path) -> None:
    """Tokens that cannot be read change nothing: the rules stay as they are."""
    world = AccessWorld(RULES)
    missing = f"{tmp_path}/none.json"
    outcome = world.reload(RULES.replace("  rules:", f"  tokens: {missing}\n  rules:"))
    assert not outcome.accepted
    assert outcome.problems[0].startswith(f"access.tokens: {missing} cannot be read (No such file or directory)")
    assert world.client("producer", SHOP).call("sendSync", **arguments_of("sendSync", "orders")).value.code == 0


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"tokens": 1}', b'{"tokens": [{"id": "x"}]}'])
def test_unreadable_tokens_end_the_start(tmp_path: Path, content: bytes | None) -> None:
    """A node whose rules cannot be whole does not begin with some of them."""
    file = tmp_path / "tokens.json"
    if content is not None:
        file.write_bytes(content)
    config = loads(f"access: {{tokens: {file}, rules: []}}").config
    world = AccessWorld(RULES)
    with pytest.raises(AccessUnreadable, match=str(file)):
        Node(config, seams=world.node.parts.seams, registry=Registry())


def test_reload_takes_a_token_file_and_the_connections_of_its_tokens(tmp_path: Path) -> None:
    """Another file is another set of tokens: connections by those that are not in it end."""
    file, tokens = token_file(tmp_path, {"shop": 1 << 50})
    with_tokens = RULES.replace("  rules:", f"  tokens: {file}\n  rules:")
    world = AccessWorld(with_tokens)
    client = world.client("producer")
    assert client.call("authenticate", token=tokens["shop"]).value.name == "shop"
    other = tmp_path / "other"
    other.mkdir()
    file_2, _ = token_file(other, {"third": 1 << 50})
    assert world.reload(with_tokens.replace(file, file_2)).accepted
    world.run(0.1)
    assert client.lost


def starting(world: AccessWorld) -> Node:
    """Begin to start a node with steps that take long, on the world's loop and a disk with something on it."""
    world.node.kill()
    seams = world.node.parts.seams
    again = Seams(
        loop=seams.loop,
        clock=VirtualClock(world.loop),
        disk=world.disk,
        randomness=seams.randomness,
        network=seams.network,
        threads=seams.threads,
        step_pause_seconds=30.0,
    )
    world.node = Node(loads(NODE + RULES + TOPICS, actions=Registry()).config, seams=again, registry=Registry())
    task = world.loop.create_task(world.node.start())
    world.run(1)
    assert not task.done()
    return world.node


@pytest.mark.parametrize("method", DENIAL)
def test_rules_hold_while_the_node_starts(method: str) -> None:
    """Who has no right is told so from the first call on, and not that the node is starting."""
    world = AccessWorld(RULES)
    starting(world)
    client = world.client("consumer" if method in CONSUMER_METHODS else "producer", "10.9.9.9")
    assert shape(client.call(method, seconds=5, **arguments_of(method, "orders"))) == DENIAL[method]
    assert world.denied() > 0


def test_results_are_denied_before_they_are_held_and_when_they_are_taken() -> None:
    """A call with results of one's own group is held; a member for another's is dropped when its turn comes (F7)."""
    world = AccessWorld(RULES)
    sender = world.client("producer", SHOP)
    assert sender.call("sendSync", message=message("orders"), timeout=1000).value.code == 0
    out = world.client("consumer", BILLING)
    assert len(out.call("pull", request=pull("billing")).value.messages) == 1
    node = starting(world)
    stranger, owner = world.client("consumer", SHOP), world.client("consumer", BILLING)
    assert stranger.call("submit", seconds=5, result=result("billing")).value is False
    assert stranger.call("pull", seconds=5, request=pull("billing", results=result("billing"))).error.code == 8
    mixed = result("audit")
    mixed.nextResult = result("billing")
    owner.send("submit", result=mixed)
    world.run(1)
    assert not owner.replies
    world.loop.run(lambda: bool(owner.replies), seconds=3000)
    assert owner.replies[0].value is True
    assert opened_of(node).progress.trackers["billing", "orders", 0].watermark == 1


def test_reloader_says_where_the_broken_file_is_named() -> None:
    """The place in the configuration, as of any other problem."""
    world = AccessWorld(RULES)
    text = NODE + "access:\n  tokens: /nowhere/tokens.json\n  rules: []\n" + TOPICS
    reloader = Reloader(world.node, lambda: loads(text, file="node.yaml", actions=Registry()))
    [problem] = run_now(reloader.reloading()).problems
    assert problem.startswith("node.yaml:3: access.tokens: /nowhere/tokens.json cannot be read")
