"""Who is in the owners' group: a quick restart moves nothing, nodes of one name do not fight, all are in it again."""

from __future__ import annotations

import pytest

from tests.fakes.kafka.client import SimClient
from tests.fakes.kafka.member import SimMember
from tests.waiting_world import WaitingWorld


def _owners(world: WaitingWorld) -> dict[str, list[int]]:
    return {node.name: node.served for node in world.nodes}


def test_quick_restart_moves_no_partition() -> None:
    """The node has its partitions again before its session is over, and the other one keeps its own throughout."""
    world = WaitingWorld(nodes=2, partitions=4)
    world.settle()
    before = _owners(world)
    kept = list(world.nodes[1].waiting.owners.values())
    world.nodes[0].add("m", world.now_ms + 4_000)
    world.run(1)
    world.nodes[0].kill()
    world.run(1)
    world.start("n0")
    world.run(2)
    assert _owners(world) == before
    assert list(world.nodes[-2].waiting.owners.values()) == kept
    world.run(20)
    assert _owners(world) == before
    assert len(world.delivered()["m"]) == 1


def test_node_that_does_not_return_is_followed() -> None:
    """After its session; also one that left in order."""
    world = WaitingWorld(nodes=2, partitions=4)
    world.settle()
    world.nodes[0].leave()
    world.run(12)
    assert _owners(world) == {"n1": [0, 1, 2, 3]}


def test_two_nodes_of_one_name_do_not_fight() -> None:
    """The later one serves; the former says why it does not, and takes its place again when the later one has ended."""
    world = WaitingWorld(partitions=2)
    world.settle()
    [former] = world.nodes
    later = world.start("n0")
    for number in range(60):
        later_ms = world.now_ms + 500
        if later.served == [0, 1]:
            later.add(f"m{number}", later_ms)
        world.run(1)
    assert (former.served, later.served) == ([], [0, 1])
    [trouble] = [each for each in former.waiting.troubles() if "another node with brokerName n0" in each]
    assert "node.brokerName" in trouble
    assert not any("another node" in each for each in later.waiting.troubles())
    assert {len(each) for each in world.delivered().values()} == {1}
    assert len(world.delivered()) == len(world.added) > 50
    later.kill()
    world.run(60)
    assert former.served == [0, 1]
    assert former.waiting.troubles() == []


def test_members_that_wait_in_vain_to_be_in_their_groups_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a broker was restarted and clients find the coordinator no more: no node would serve them again."""
    first: list[SimMember] = []
    make = SimClient.member

    def member(client: SimClient, group: str, client_id: str, instance_id: str = "") -> SimMember:
        made = make(client, group, client_id, instance_id)
        if len(first) < 4:
            first.append(made)
            made.stands = True
        return made

    monkeypatch.setattr(SimClient, "member", member)
    world = WaitingWorld(nodes=2, partitions=4)
    world.run(20)
    assert _owners(world) == {"n0": [], "n1": []}
    world.run(60)
    assert sorted(number for served in _owners(world).values() for number in served) == [0, 1, 2, 3]
    assert all(each.dead for each in first)
    world.nodes[0].add("m", world.now_ms + 60_000)
    world.run(1)
    outcome = world.nodes[1].ask("m")
    world.run(5)
    assert outcome == ["cancelled"]
    assert not any(node.waiting.troubles() for node in world.nodes)
