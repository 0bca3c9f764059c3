"""authenticate over the wire: who one becomes, what a failure costs, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from proxy.access.access import DENIED
from tests.access.world import AccessWorld, message, pull, token_file
from tests.insides import opened_of

FAR_MS = 1 << 50
LOOPBACK, ELSEWHERE = "127.0.0.1", "10.0.1.1"


def section(tokens: str, *, rules: str = "{principals: [shop], produce: [orders]}") -> str:
    """Write a section whose network rule would let everybody publish, too."""
    return f"""
access:
  tokens: {tokens}
  networks: [{{cidr: 0.0.0.0/0, principal: network}}]
  rules: [{rules}, {{principals: [network], produce: [orders], consume: [billing]}}]
"""


def test_token_says_who_it_is_and_wins_over_the_network(tmp_path: Path) -> None:
    """The answer names the principal and until when; rights are its own from then on, and not the network's."""
    file, tokens = token_file(tmp_path, {"shop": FAR_MS})
    world = AccessWorld(section(file))
    client = world.client("producer", LOOPBACK)
    reported = client.call("authenticate", token=tokens["shop"]).value
    assert (reported.name, reported.expiresMs) == ("shop", FAR_MS)
    assert client.call("sendSync", message=message("orders"), timeout=1000).value.code == 0
    puller = world.client("consumer", LOOPBACK)
    puller.call("authenticate", token=tokens["shop"])
    assert puller.call("pull", request=pull("billing")).error.code == 8


@pytest.mark.parametrize("kind", ["wrong secret", "unknown id", "none", "empty", "expired", "long", "binary"])
def test_wrong_token_ends_the_connection_and_never_falls_back(tmp_path: Path, kind: str) -> None:
    """One answer for all of them; what was sent behind it is denied, although the network would let it through."""
    file, tokens = token_file(tmp_path, {"shop": 1 if kind == "expired" else FAR_MS})
    world = AccessWorld(section(file))
    text = {
        "wrong secret": tokens["shop"][:-1] + ("0" if tokens["shop"][-1] != "0" else "1"),
        "unknown id": "pyddmq_" + "0" * 16 + tokens["shop"][23:],
        "none": "shop",
        "empty": "",
        "expired": tokens["shop"],
        "long": "x" * 100_000,
        "binary": "\x00\ud7ff" * 10,
    }[kind]
    client = world.client("producer", LOOPBACK)
    client.send("authenticate", token=text)
    client.send("sendSync", message=message("orders"), timeout=1000)
    world.run(1)
    answer = client.replies[0].error
    assert (answer.code, answer.message) == (8, "the token is missing, wrong or expired; use a new one")
    assert [reply.value.code for reply in client.replies[1:]] == [13]
    assert client.lost
    assert world.node.runtime.metrics.value(DENIED, "authenticate", "proof") == 1
    assert opened_of(world.node).store.topics["orders"].queues[0].max_offset == 0


def test_token_is_not_taken_over_a_network_without_tls(tmp_path: Path) -> None:
    """It went over the network as it is; the answer says so, and nobody is somebody by it."""
    file, tokens = token_file(tmp_path, {"shop": FAR_MS})
    world = AccessWorld(section(file))
    client = world.client("producer", ELSEWHERE)
    assert "TLS" in client.call("authenticate", token=tokens["shop"]).error.message
    world.run(0.1)
    assert client.lost
    other = world.client("producer", ELSEWHERE)
    world.served(other).is_encrypted = True
    assert other.call("authenticate", token=tokens["shop"]).value.name == "shop"


def test_authenticate_is_the_first_call_or_none(tmp_path: Path) -> None:
    """A connection is of one principal: what was taken from it before stays that of whom it was."""
    file, tokens = token_file(tmp_path, {"shop": FAR_MS})
    world = AccessWorld(section(file))
    client = world.client("producer", LOOPBACK)
    assert client.call("sendSync", message=message("orders"), timeout=1000).value.code == 0
    assert "first call" in client.call("authenticate", token=tokens["shop"]).error.message
    world.run(0.1)
    assert client.lost


def test_expiry_ends_a_living_connection(tmp_path: Path) -> None:
    """Within a second after its token is none any more, parked pulls included; others stay."""
    world = AccessWorld("access: {rules: []}\n")
    now_ms = world.node.parts.seams.clock.wall_ms()
    file, tokens = token_file(tmp_path, {"shop": now_ms + 60_000, "other": FAR_MS})
    world = AccessWorld(section(file, rules='{principals: ["*"], produce: [orders], consume: [billing]}'))
    client, other = world.client("consumer", LOOPBACK), world.client("consumer", LOOPBACK)
    assert client.call("authenticate", token=tokens["shop"]).value.name == "shop"
    assert other.call("authenticate", token=tokens["other"]).value.name == "other"
    client.send("pull", request=pull("billing", linger_ms=30_000))
    expires = (now_ms + 60_000 - world.node.parts.seams.clock.wall_ms()) / 1000
    world.run(expires - 0.1)
    assert [client.lost, other.lost] == [False, False]
    world.run(1.2)
    assert [client.lost, other.lost] == [True, False]


def test_revocation_ends_a_living_connection(tmp_path: Path) -> None:
    """A token that is taken out of its file is gone from its connections within a second; a new one is taken."""
    file, tokens = token_file(tmp_path, {"shop": FAR_MS, "other": FAR_MS})
    world = AccessWorld(section(file, rules='{principals: ["*"], produce: [orders]}'))
    clients = {name: world.client("producer", LOOPBACK) for name in tokens}
    for name, client in clients.items():
        assert client.call("authenticate", token=tokens[name]).value.name == name
    _, changed = token_file(tmp_path, {"other": FAR_MS, "third": FAR_MS})
    world.run(1.5)
    assert clients["shop"].lost
    assert not clients["other"].lost
    newcomer = world.client("producer", LOOPBACK)
    assert newcomer.call("authenticate", token=changed["third"]).value.name == "third"
    assert world.client("producer", LOOPBACK).call("authenticate", token=tokens["shop"]).error.code == 8


def test_file_that_breaks_leaves_what_is_known_in_force(tmp_path: Path) -> None:
    """Nobody is let in or thrown out by a file that is half written; the next good one counts."""
    file, tokens = token_file(tmp_path, {"shop": FAR_MS})
    world = AccessWorld(section(file))
    client = world.client("producer", LOOPBACK)
    client.call("authenticate", token=tokens["shop"])
    Path(file).write_text('{"tokens": [')
    world.run(3)
    assert client.call("sendSync", message=message("orders"), timeout=1000).value.code == 0
    token_file(tmp_path, {"third": FAR_MS})
    world.run(3)
    assert client.lost


def test_token_stands_in_no_log_line_answer_or_file(tmp_path: Path) -> None:
    """Neither a right one nor a wrong one: not whole, and not its secret part (W66)."""
    file, tokens = token_file(tmp_path, {"shop": FAR_MS})
    right = tokens["shop"]
    wrong = right[:-8] + "deadbeef"
    said: list[str] = []
    with structlog.testing.capture_logs() as lines:
        world = AccessWorld(section(file))
        for token in (right, wrong, f"{right}\n{right}"):
            client = world.client("producer", LOOPBACK)
            said.append(str(client.call("authenticate", token=token)))
            client.transport.abort()
        world.run(70)
        world.reload(section(file, rules="{principals: [shop], produce: [payments]}"))
    written = [bytes(each.data) for each in world.disk.files.values()] if hasattr(world.disk, "files") else []
    for text in (right[24:80], wrong[24:80]):
        assert text not in str(lines) + "".join(said) + Path(file).read_text()
        assert not any(text.encode() in each for each in written)
