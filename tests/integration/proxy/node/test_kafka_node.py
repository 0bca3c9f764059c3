"""A whole node whose group reads from a simulated Kafka: over the wire, in its views, over a restart, in trouble."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from actions.registry import Registry
from conf import loads
from proxy.cli.app import run
from proxy.node.reload import Reloader
from proxy.node.views import ReloadResult
from proxy.operate.attention.findings import findings
from proxy.operate.changes.desk import ChangeRefused
from proxy.operate.changes.offsets import ResetBody, offset_changes
from proxy.operate.live_node import LiveNode
from proxy.operate.views.changes import ResetResult
from proxy.operate.views.findings import Finding
from proxy.process.exit_codes import ExitCode
from proxy.testing import VirtualClock, VirtualLoop
from tests.hostile.sim import HostileWorld
from tests.simulation.wire import consumer_idl
from upstream.kafka.link import Place
from upstream.testing.kafka_client import SimClient
from upstream.testing.kafka_cluster import SimKafka

YAML = """
kafka:
  main: {bootstrapServers: "127.0.0.1:1", sessionTimeout: 6000}
topics:
  orders: {queues: 1}
  invoices: {brokerCluster: main}
groups:
  - group: billing
    topics:
      - {topic: invoices, orderKey: KEY, maxPullBatchSize: 8, retryIntervals: [200]}
"""


class World(HostileWorld):
    """A node before a Kafka in memory."""

    def __init__(self) -> None:
        super().__init__(YAML, kafka=self._make)
        self.view = LiveNode(self.node, Reloader(self.node, lambda: loads(YAML, actions=Registry())))

    def _make(self, loop: VirtualLoop, cluster: str) -> SimClient:
        self.kafka = SimKafka(Random(3), clock=VirtualClock(loop), scheduler=loop, session_seconds=6)
        self.kafka.partitions("invoices", 2)
        return SimClient(self.kafka)

    def ask(self, results: list[Any] | None = None) -> list[Any]:
        """Pull once with these results; returns the messages, by their qid."""
        client = self.connect("consumer")
        request = consumer_idl.PullRequest(groupId="billing", maxLingerTime=100, result=results[0] if results else None)
        client.transport.write(client.codec.call("pull", 1, request=request))
        self.run(1)
        [reply] = client.replies
        value = reply.value
        return [(value.context.qid, each) for each in value.messages or []]

    def found(self) -> list[Finding]:
        """What the node says needs attention."""
        return findings(self.view, self.view.groups(details_max=10), 0.0)


def _result(qid: str, *offsets: int) -> Any:
    context = consumer_idl.Context(groupId="billing", topic="invoices", qid=qid)
    return consumer_idl.ConsumeResult(context=context, successOffsets=list(offsets), failOffsets=[])


def test_messages_of_kafka_are_pulled_and_committed() -> None:
    """Key, tag and properties come over the wire; the ack is a commit, and the views show the partitions."""
    world = World()
    world.run(1)
    offset = world.kafka.append(Place("invoices", 1), b"k", b"body", [("TAGS", b"blue"), ("x", b"y")])
    [(qid, message)] = world.ask()
    assert (qid, message.key, message.value, message.offset) == ("main_1", "k", b"body", offset)
    assert message.properties["x"] == "y"
    world.ask([_result(qid, offset)])
    assert world.kafka.group("billing").committed[Place("invoices", 1)][0] == offset + 1
    live = world.view
    [first, second] = live.positions(group="billing")
    assert (first.topic, first.queue, second.queue, second.committed, second.lag) == ("invoices", 0, 1, offset + 1, 0)
    [group] = live.groups(details_max=10)
    assert group.topics[0].lag == 0
    assert "invoices" not in world.node.store.topics


def test_stop_leaves_the_group_in_order() -> None:
    """The last commit says that nobody has a message, and the partitions are free at once."""
    world = World()
    world.run(1)
    offset = world.kafka.append(Place("invoices", 0), b"k", b"body")
    [(qid, _)] = world.ask()
    world.ask([_result(qid, offset)])
    task = world.loop.create_task(world.node.stop(drain_seconds=1))
    world.loop.run(task.done, seconds=60)
    group = world.kafka.group("billing")
    assert (group.members, group.owners) == ([], {})
    assert group.committed[Place("invoices", 0)] == (offset + 1, f"p1;{offset + 1};c")


def test_cluster_that_cannot_be_reached_is_told_of_and_nothing_is_handed_out() -> None:
    """Within seconds, on all pages; it ends with the trouble, and what waited comes."""
    world = World()
    world.run(1)
    assert world.found() == []
    world.kafka.append(Place("invoices", 0), b"k", b"body")
    world.run(0.5)
    world.kafka.down = True
    world.run(5)
    [finding] = world.found()
    assert (finding.finding, finding.bad) == ("kafka_trouble", True)
    assert "billing" in finding.text
    assert world.ask() == []
    world.kafka.down = False
    world.run(5)
    assert world.found() == []
    assert [message.value for _, message in world.ask()] == [b"body"]


def _reload(world: World, yaml: str) -> ReloadResult:
    return Reloader(world.node, lambda: loads(yaml, actions=Registry())).reload()


def test_group_and_topic_that_a_reload_brings_are_read_from_kafka() -> None:
    """By the configuration that comes, and not by the one that goes."""
    world = World()
    bills = "  bills: {brokerCluster: main}\ngroups:\n  - {group: more, topics: [{topic: bills}]}\n"
    more = YAML.replace("groups:\n", bills)
    assert _reload(world, more).accepted
    world.kafka.append(Place("bills", 0), b"k", b"body")
    world.run(2)
    [position] = world.view.positions(group="more")
    assert (position.topic, position.max) == ("bills", 1)
    assert "bills" not in world.node.store.topics


def test_group_does_not_move_between_store_and_kafka_while_the_node_runs() -> None:
    """It has its positions there; the sentence says what to do, and nothing changes."""
    world = World()
    moved = YAML.replace("topic: invoices, orderKey", "topic: orders, orderKey")
    result = _reload(world, moved)
    assert not result.accepted
    assert "cannot go from main to pyddmq while the node runs" in result.problems[0]
    assert world.node.config.groups["billing"].topics[0].topic == "invoices"


def test_client_that_cannot_be_had_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At the start of a node; the code is that of a configuration which cannot be used."""
    config = tmp_path / "node.yaml"
    ports = f"node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {tmp_path}/data}}\n"
    secret = "librdkafka: {sasl.password: {file: /nowhere/secret}}"
    config.write_text(ports + YAML.lstrip().replace("sessionTimeout: 6000", secret), encoding="utf-8")
    assert run(["serve", "--config", str(config)]) == ExitCode.CONFIG_INVALID
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "/nowhere/secret" in said
    assert "Traceback" not in said


def _reset(world: World, **target: Any) -> ResetResult:
    body = ResetBody(group="billing", topic="invoices", **target)
    [change] = offset_changes(world.node)
    task = world.loop.create_task(cast("Coroutine[Any, Any, ResetResult]", change.run(body)))
    world.loop.run(task.done, seconds=60)
    return task.result()


def test_offsets_go_to_a_time() -> None:
    """To the first record of then or later, by partition; to the end where there is none; committed, and read anew."""
    world = World()
    world.run(1)
    places = [Place("invoices", 0), Place("invoices", 1)]
    for place in places:
        for _ in range(2):
            world.kafka.append(place, b"k%d" % place.partition, b"early")
    world.run(5)
    since_ms = world.node.seams.clock.wall_ms()
    world.run(1)
    late = world.kafka.append(places[0], b"k0", b"late")
    world.run(1)
    got = world.ask()
    while got:
        got = world.ask([_result(got[0][0], *(message.offset for _, message in got))])
    ends = {place: world.kafka.group("billing").committed[place][0] for place in places}
    shown = _reset(world, to_time_ms=since_ms)
    assert [(each.queue, each.start, each.to, each.repeated) for each in shown.queues] == [
        (0, ends[places[0]], late, 1),
        (1, ends[places[1]], ends[places[1]], 0),
    ]
    assert not shown.changed
    assert _reset(world, to_time_ms=since_ms, dry_run=False).changed
    world.run(1)
    assert world.kafka.group("billing").committed[places[0]][0] == late
    [(_, message)] = world.ask()
    assert message.value == b"late"


def test_time_that_kafka_does_not_tell_changes_nothing() -> None:
    """The cluster is away: in a sentence."""
    world = World()
    world.run(1)
    world.kafka.append(Place("invoices", 0), b"k", b"body")
    world.run(1)
    world.kafka.down = True
    with pytest.raises(ChangeRefused, match="Kafka does not say where that time is; nothing was reset"):
        _reset(world, to_time_ms=0, dry_run=False)


def test_retention_of_the_store_goes_on_beside_a_group_of_kafka() -> None:
    """A message of Kafka waits for more than half a minute: the store's expiry has nothing to do with it."""
    world = World()
    world.run(1)
    world.kafka.append(Place("invoices", 0), b"k", b"body")
    world.run(40)
    assert [each.finding for each in world.found() if each.finding == "internal_fault"] == []
