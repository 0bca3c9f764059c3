"""The nodes that share groups over a simulated Kafka, as one of them shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proxy.node.kafka_members import KEEP_SECONDS, KafkaMembers
from proxy.operate.lookups.kafka_nodes import nodes_in_kafka
from proxy.operate.views.node import KafkaClusterNodes
from pyddmq.testing import ManualClock
from tests.admin_node import NOW_MS
from tests.console_page import fragment
from tests.fakes.kafka.client import SimClient
from tests.integration.proxy.node.test_kafka_node import World
from tests.kafka_world import Heard
from upstream.kafka.cluster_facts import ClusterFacts, MemberFacts, TopicFacts
from upstream.kafka.link import TopicSubscription
from upstream.kafka.waiting.records import PartitionStatus


def clusters(world: World) -> KafkaClusterNodes:
    """What is known of the only cluster."""
    [found] = world.view.nodes_in_kafka().clusters
    return found


def with_member(world: World, client_id: str) -> SimClient:
    """Let another program or node join the group."""
    client = SimClient(world.kafka)
    heard = Heard(reads=False)
    client.member("billing", client_id).join(heard, [TopicSubscription("invoices")])
    world.run(20)
    return client


def test_nodes_are_shown_with_their_partitions() -> None:
    """Also those that are other processes; a page that is shown again asks again only when the answer is old."""
    world = World()
    world.run(3)
    assert (clusters(world).asked_ms, list(clusters(world).nodes)) == (None, [])
    assert "has not answered yet" in fragment(world.view, "/node")
    world.run(1)
    [alone] = clusters(world).nodes
    assert (alone.node, alone.host, alone.this, alone.other) == ("broker-0", "10.0.0.1", True, False)
    assert [(each.group, each.topic, list(each.partitions)) for each in alone.parts] == [
        ("billing", "invoices", [0, 1])
    ]
    asked = clusters(world).asked_ms
    with_member(world, "pyddmq-broker-1")
    assert clusters(world).asked_ms == asked
    world.run(1)
    both = clusters(world).nodes
    assert [(each.node, each.this, len(each.parts[0].partitions)) for each in both] == [
        ("broker-0", True, 1), ("broker-1", False, 1)
    ]  # fmt: skip
    assert sorted(number for each in both for number in each.parts[0].partitions) == [0, 1]
    html = fragment(world.view, "/node")
    assert "this node" in html
    assert "broker-1" in html


def test_other_programs_and_partitions_without_a_member_are_named() -> None:
    """A consumer of somebody else is not taken for a node; what no member has is said; so are owners of what waits."""

    class Asked:
        """A cluster that answers at once."""

        def look(self, topics: Sequence[str], reported: Callable[[ClusterFacts], None], groups: Sequence[str]) -> None:
            assert (list(topics), list(groups)) == (["invoices"], ["billing"])
            members = {"billing": [MemberFacts("their-app", "10.0.0.9", {"invoices": [1]})]}
            reported(ClusterFacts(topics={"invoices": TopicFacts(3, 0, 1, 1, {}, None)}, members=members))

    client: Any = Asked()
    members = KafkaMembers(lambda _: client, ManualClock(NOW_MS))
    owner = PartitionStatus(5, "broker-7", "serving", 0, 0, 0, 0, [], [])
    world = World()
    [found] = nodes_in_kafka(world.node.in_force.config, members, {"main": [owner]}, NOW_MS).clusters
    assert [(each.node, each.host, each.other, list(each.waiting)) for each in found.nodes] == [
        ("their-app", "10.0.0.9", True, []),
        ("broker-7", "", False, [5]),
    ]
    assert [(each.topic, list(each.partitions)) for each in found.unowned] == [("invoices", [0, 2])]


def test_group_that_was_removed_since_the_cluster_answered_is_left_out() -> None:
    """The answer before the reload is shown until the next one comes."""
    world = World()
    world.run(3)
    clusters(world)
    world.run(1)
    assert clusters(world).nodes[0].parts
    config = world.node.in_force.config
    other = config.groups["billing"].model_copy(update={"group": "other"})
    others = config.model_copy(update={"groups": {"other": other}})
    owner = PartitionStatus(5, "broker-7", "serving", 0, 0, 0, 0, [], [])
    [found] = nodes_in_kafka(others, world.node.parts.kafka.members, {"main": [owner]}, NOW_MS).clusters
    assert [(each.node, list(each.parts)) for each in found.nodes] == [("broker-7", [])]
    assert list(found.unowned) == []


def test_cluster_that_does_not_answer_is_named() -> None:
    """What was known before stays until then, and the page does not wait."""
    world = World()
    world.run(3)
    clusters(world)
    world.run(1)
    assert clusters(world).nodes
    world.kafka.down = True
    world.run(KEEP_SECONDS)
    assert clusters(world).nodes
    world.run(1)
    assert "cannot be reached" in clusters(world).trouble
    assert "cannot be reached" in fragment(world.view, "/node")
