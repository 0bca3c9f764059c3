"""A whole node whose group reads from a simulated Kafka: over the wire, in its views, over a restart, in trouble."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from actions.registry import Registry
from broker.runtime.steps import run_now
from conf import loads
from proxy.admin.exposition import Exposition
from proxy.cli.app import run
from proxy.node.reload import Reloader
from proxy.node.views import ReloadResult
from proxy.operate.answers import readiness
from proxy.operate.attention.findings import judged
from proxy.operate.changes.desk import ChangeRefused
from proxy.operate.changes.offsets import ResetBody, offset_changes
from proxy.operate.live_node import LiveNode
from proxy.operate.views.changes import ResetResult
from proxy.operate.views.findings import Finding
from proxy.port.calls_pass import PassLine
from proxy.process.exit_codes import ExitCode
from pyddmq.actions import Action
from pyddmq.codes import ResultCode
from pyddmq.testing import VirtualClock, VirtualLoop
from tests.console_page import fragment
from tests.fakes.kafka.client import SimClient
from tests.fakes.kafka.cluster import SimKafka
from tests.fakes.kafka.member import SimMember
from tests.hostile.sim import HostileWorld, Raw
from tests.insides import opened_of
from tests.simulation.wire import consumer_idl, producer_idl
from upstream.delivery.group import ConsumerGroup
from upstream.kafka.broker import KafkaBroker
from upstream.kafka.commits.metadata import CommitMetadata, decode
from upstream.kafka.link import KafkaFailure, KafkaPartition
from upstream.kafka.partitions import NOT_IN, WAITING
from upstream.views import running_text

YAML = """
kafka:
  main: {bootstrapServers: "127.0.0.1:1", sessionTimeout: 6000, membership: always}
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

    def __init__(self, yaml: str = YAML, *, session_seconds: float = 6) -> None:
        self.session_seconds = session_seconds
        super().__init__(yaml, kafka=self._make)
        self.view = LiveNode(self.node, Reloader(self.node, lambda: loads(YAML, actions=Registry())))

    def _make(self, loop: VirtualLoop, cluster: str) -> SimClient:
        self.kafka = SimKafka(Random(3), clock=VirtualClock(loop), scheduler=loop, session_seconds=self.session_seconds)
        self.kafka.partitions("invoices", 2)
        self.client = SimClient(self.kafka)
        return self.client

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
        return list(judged(self.view).findings)


def _metrics_of(world: World) -> str:
    return Exposition(world.view, "asyncio").render("")[0].decode()


def _result(qid: str, *offsets: int) -> Any:
    context = consumer_idl.Context(groupId="billing", topic="invoices", qid=qid)
    return consumer_idl.ConsumeResult(context=context, successOffsets=list(offsets), failOffsets=[])


def test_messages_of_kafka_are_pulled_and_committed() -> None:
    """Key, tag and properties come over the wire; the ack is a commit, and the views show the partitions."""
    world = World()
    world.run(1)
    offset = world.kafka.append(KafkaPartition("invoices", 1), b"k", b"body", [("TAGS", b"blue"), ("x", b"y")])
    [(qid, message)] = world.ask()
    assert (qid, message.key, message.value, message.offset) == ("main_1", "k", b"body", offset)
    assert message.properties["x"] == "y"
    world.ask([_result(qid, offset)])
    assert world.kafka.group("billing").committed[KafkaPartition("invoices", 1)][0] == offset + 1
    live = world.view
    [first, second] = live.positions(group="billing")
    assert (first.topic, first.queue, second.queue, second.committed, second.lag) == ("invoices", 0, 1, offset + 1, 0)
    [group] = live.groups(details_max=10)
    assert group.topics[0].lag == 0
    assert "invoices" not in opened_of(world.node).store.topics


def test_lag_is_unknown_until_the_cluster_has_said_what_the_node_has() -> None:
    """A group that waits for its cluster is not one that has caught up: on the page, in answers and in metrics."""
    world = World()
    world.kafka.down = True
    world.run(1)
    world.kafka.append(KafkaPartition("invoices", 0), b"k", b"body")
    [topic] = world.view.groups(details_max=10)[0].topics
    assert (topic.lag, topic.lag_seconds, topic.unknown, running_text(topic)) == (None, None, WAITING, WAITING)
    page = fragment(world.view, "/group", group="billing")
    assert WAITING in page
    assert "? <small>messages</small>" in page
    assert "\npyddmq_group_lag_messages{" not in _metrics_of(world)
    world.kafka.down = False
    world.run(2)
    [topic] = world.view.groups(details_max=10)[0].topics
    assert (topic.lag, topic.unknown) == (1, None)
    assert 'pyddmq_group_lag_messages{group="billing",topic="invoices"} 1.0' in _metrics_of(world)


def test_reply_of_a_process_that_was_stopped_for_longer_than_its_lease_has_no_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stop comes between a pull and the write of its reply; the messages are available again afterwards."""
    world = World()
    world.run(1)
    world.kafka.append(KafkaPartition("invoices", 0), b"k", b"body")
    world.run(1)
    pull = ConsumerGroup.pull
    stops = [6.0]

    def stopped(self: ConsumerGroup, *arguments: Any) -> Any:
        batch = pull(self, *arguments)
        if batch is not None and stops:
            lease = cast("KafkaBroker", self.node.broker).partitions.lease
            now, seconds = lease.now, stops.pop()
            monkeypatch.setattr(lease, "now", lambda: now() + seconds)
        return batch

    monkeypatch.setattr(ConsumerGroup, "pull", stopped)
    assert world.ask() == []
    world.run(2)
    [(_, message)] = world.ask()
    assert message.value == b"body"


PULLS = YAML.replace("membership: always", "membership: pulls").replace("retryInt", "timeout: 600000, retryInt")


def test_node_is_a_member_while_somebody_pulls() -> None:
    """From the first pull on, until a minute after the last, or after what was out came back (D56)."""
    world = World(PULLS)
    world.run(3)
    billing = world.kafka.group("billing")
    assert billing.members == []
    [topic] = world.view.groups(details_max=10)[0].topics
    assert (topic.lag, running_text(topic)) == (None, NOT_IN)
    assert world.found() == []
    offset = world.kafka.append(KafkaPartition("invoices", 0), b"k", b"body")
    client = world.connect("consumer")
    for number in (1, 2):
        request = consumer_idl.PullRequest(groupId="billing", maxLingerTime=1000)
        client.transport.write(client.codec.call("pull", number, request=request))
        world.run(1)
        if client.replies[-1].value.messages:
            break
    [message] = client.replies[-1].value.messages
    qid = client.replies[-1].value.context.qid
    assert (message.value, len(billing.members)) == (b"body", 1)
    world.run(200)
    assert len(billing.members) == 1, "somebody has a message"
    client.transport.write(client.codec.call("submit", 9, result=_result(qid, offset)))
    world.ask()
    world.run(57)
    assert len(billing.members) == 1
    world.run(5)
    assert billing.members == []
    assert _left_in_order(billing.committed[KafkaPartition("invoices", 0)], offset + 1)
    world.kafka.append(KafkaPartition("invoices", 0), b"k", b"later")
    assert [message.value for _, message in world.ask() or world.ask()] == [b"later"]


def test_cluster_that_is_away_is_a_finding_before_a_client_pulls() -> None:
    """By the cluster; it ends with the trouble."""
    world = World(PULLS)
    world.run(3)
    world.kafka.down = True
    [finding] = world.found()
    assert (finding.finding, finding.bad) == ("kafka_unreachable", True)
    assert finding.text.startswith("Kafka cluster main does not respond: no broker responds")
    world.kafka.down = False
    world.run(5)
    assert world.found() == []


def test_group_that_pushes_is_always_a_member() -> None:
    """Nobody pulls from it."""
    push = "actions: [Async, AsyncHttp], options: {AsyncHttp: {urls: ['http://127.0.0.1:9/']}}"
    world = World(PULLS.replace("maxPullBatchSize: 8", push))
    world.run(120)
    assert len(world.kafka.group("billing").members) == 1
    task = world.loop.create_task(world.node.stop(drain_seconds=1))
    world.loop.run(task.done, seconds=60)  # closes the client of pushes


def test_member_that_ended_by_a_fault_is_replaced_and_shown_meanwhile() -> None:
    """After a second, then two, and so on; the finding ends with the next commit (W26)."""
    world = World()
    world.run(1)
    billing = world.kafka.group("billing")
    for pause in (1, 2, 4):
        [member] = billing.members
        assert isinstance(member, SimMember)
        member.fail(KafkaFailure("FAIL", "the member's thread has ended by KeyError: 'x'"))
        world.run(pause - 0.3)
        assert billing.members == []
        [finding] = world.found()
        assert (finding.finding, finding.bad) == ("kafka_trouble", True)
        assert "has ended by KeyError" in finding.text
        assert readiness(world.view, judged(world.view)).findings
        world.run(1.5)
        assert len(billing.members) == 1
        assert world.found() == []
    world.kafka.append(KafkaPartition("invoices", 0), b"k", b"body")
    assert [message.value for _, message in world.ask()] == [b"body"]
    assert 'pyddmq_kafka_member_restarts_total{group="billing"} 3.0' in _metrics_of(world)


SYNC = "node: {ackFlush: sync}\n" + YAML


def _submit(world: World, qid: str, *offsets: int) -> Raw:
    client = world.connect("consumer")
    client.transport.write(client.codec.call("submit", 1, result=_result(qid, *offsets)))
    return client


def test_answer_waits_for_the_commit_where_acks_are_sync() -> None:
    """A submit is answered once Kafka has it, and so is the pull on which results ride (D52)."""
    world = World(SYNC)
    world.run(1)
    offsets = [world.kafka.append(KafkaPartition("invoices", 0), b"k%d" % each, b"body") for each in range(2)]
    taken = world.ask()
    assert [message.offset for _, message in taken] == offsets
    world.kafka.down = True
    submit = _submit(world, "main_0", offsets[0])
    pull = world.connect("consumer")
    request = consumer_idl.PullRequest(groupId="billing", maxLingerTime=1, result=_result("main_0", offsets[1]))
    pull.transport.write(pull.codec.call("pull", 1, request=request))
    world.run(2)
    assert submit.replies == pull.replies == []
    world.kafka.down = False
    world.run(2)
    [answer], [_] = submit.replies, pull.replies
    assert answer.value is True
    assert world.kafka.group("billing").committed[KafkaPartition("invoices", 0)][0] == offsets[1] + 1
    # And without such trouble in the time of a commit.
    offset = world.kafka.append(KafkaPartition("invoices", 0), b"k", b"body")
    world.ask()
    client = _submit(world, "main_0", offset)
    world.run(0.06)
    assert [each.value for each in client.replies] == [True]


def test_result_that_cannot_be_committed_any_more_is_not_answered() -> None:
    """Its partition is another node's: the connection ends, and the message comes again there."""
    world = World(SYNC)
    world.run(1)
    offset = world.kafka.append(KafkaPartition("invoices", 0), b"k", b"body")
    world.ask()
    world.kafka.down = True
    client = _submit(world, "main_0", offset)
    world.run(1)
    [member] = world.kafka.group("billing").members
    world.kafka.expel(member)
    world.kafka.down = False
    world.run(1)
    assert (client.replies, client.lost) == ([], True)


@pytest.mark.parametrize("by", ["submit", "pull"])
@pytest.mark.parametrize("yaml", [SYNC, "node: {ackFlush: sync}\n" + PULLS], ids=["always", "pulls"])
def test_results_wait_for_the_partitions_of_a_node_that_has_started(by: str, yaml: str) -> None:
    """A client sends them again to a node that was restarted: they count, and the answer waits for the commit."""
    world = World(yaml)
    offset = world.kafka.append(KafkaPartition("invoices", 0), b"k", b"body")
    world.kafka.down = True
    world.run(1)
    client = world.connect("consumer")
    if by == "submit":
        client.transport.write(client.codec.call("submit", 1, result=_result("main_0", offset)))
    else:
        request = consumer_idl.PullRequest(groupId="billing", maxLingerTime=1, result=_result("main_0", offset))
        client.transport.write(client.codec.call("pull", 1, request=request))
    world.run(2)
    assert client.replies == []
    world.kafka.down = False
    world.run(2)
    [answer] = client.replies
    assert answer.value is True or not answer.value.messages
    assert world.kafka.group("billing").committed[KafkaPartition("invoices", 0)][0] == offset + 1


def test_results_of_a_pull_above_its_rate_wait_for_the_partitions_too() -> None:
    """Answered before, they would be thrown away, and the message would come again after its ack."""
    world = World(YAML + "limits: {addresses: [{networks: [0.0.0.0/0], requestsPerSecond: 1}]}\n")
    offset = world.kafka.append(KafkaPartition("invoices", 0), b"k", b"body")
    world.kafka.down = True
    client = world.connect("consumer")
    for _ in range(2):
        client.transport.write(client.codec.call("submit", 1, result=consumer_idl.ConsumeResult()))
    request = consumer_idl.PullRequest(groupId="billing", maxLingerTime=1, result=_result("main_0", offset))
    other = world.connect("consumer")
    other.transport.write(other.codec.call("pull", 1, request=request))
    world.run(1)
    assert (len(client.replies), other.replies) == (2, [])
    world.kafka.down = False
    world.run(2)
    [answer] = other.replies
    assert not answer.value.messages
    assert world.kafka.group("billing").committed[KafkaPartition("invoices", 0)][0] == offset + 1


def test_results_wait_for_partitions_no_longer_than_a_session() -> None:
    """Of a cluster that does not answer; then they are refused, and likewise later ones at once."""
    world = World()
    world.kafka.down = True
    world.run(1)
    client = _submit(world, "main_0", 0)
    world.run(4)
    assert client.replies == []
    world.run(2)
    assert [each.value for each in client.replies] == [False]
    client = _submit(world, "main_0", 0)
    world.run(0.1)
    assert [each.value for each in client.replies] == [False]


def test_retention_of_the_store_has_nothing_to_do_with_groups_of_kafka() -> None:
    """It goes on beside one that is behind: what its messages need is kept elsewhere."""
    world = World()
    world.run(1)
    world.kafka.append(KafkaPartition("invoices", 0), b"k", b"body")
    with capture_logs() as logs:
        world.run(30)
    assert [each for each in logs if each["event"] == "periodic_work_failed"] == []
    assert world.view.groups(details_max=10)[0].topics[0].lag == 1


def test_stop_leaves_the_group_in_order() -> None:
    """The last commit says that nobody has a message, and the partitions are free at once."""
    world = World()
    world.run(1)
    offset = world.kafka.append(KafkaPartition("invoices", 0), b"k", b"body")
    [(qid, _)] = world.ask()
    world.ask([_result(qid, offset)])
    task = world.loop.create_task(world.node.stop(drain_seconds=1))
    world.loop.run(task.done, seconds=60)
    group = world.kafka.group("billing")
    assert (group.members, group.owners) == ([], {})
    assert _left_in_order(group.committed[KafkaPartition("invoices", 0)], offset + 1)


def _left_in_order(committed: tuple[int, str], offset: int) -> bool:
    known = decode(committed[1], offset)
    return committed[0] == offset and known == CommitMetadata(clean=True, topic_id=known.topic_id)


def test_cluster_that_cannot_be_reached_is_told_of_and_nothing_is_handed_out() -> None:
    """Within seconds, on all pages; it ends with the trouble, and what waited comes."""
    world = World()
    world.run(1)
    assert world.found() == []
    world.kafka.append(KafkaPartition("invoices", 0), b"k", b"body")
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
    return run_now(Reloader(world.node, lambda: loads(yaml, actions=Registry())).reloading())


def test_group_and_topic_that_a_reload_brings_are_read_from_kafka() -> None:
    """By the configuration that comes, and not by the one that goes."""
    world = World()
    bills = "  bills: {brokerCluster: main}\ngroups:\n  - {group: more, topics: [{topic: bills}]}\n"
    more = YAML.replace("groups:\n", bills)
    assert _reload(world, more).accepted
    world.kafka.append(KafkaPartition("bills", 0), b"k", b"body", gap=0)
    world.run(2)
    [position] = world.view.positions(group="more")
    assert (position.topic, position.max) == ("bills", 1)
    assert "bills" not in opened_of(world.node).store.topics


class NoBank(Action):
    """An action whose constructor fails."""

    def __init__(self) -> None:
        raise OSError("no bank")


def test_refused_reload_leaves_nothing_of_the_groups_that_it_would_have_brought() -> None:
    """Their clients of Kafka end, however often it is tried, and the group may come later."""
    world = World()
    more = YAML.replace("groups:\n", "groups:\n  - {group: more, topics: [{topic: invoices}]}\n")
    broken = f"  - {{group: broken, topics: [{{topic: orders, actions: ['{__name__}:NoBank', PullServer]}}]}}\n"
    for _ in range(3):
        assert "no bank" in _reload(world, more + broken).problems[0]
        world.run(1)
        assert world.node.parts.kafka_groups.of("more") is None
    assert [each.closed for each in world.client.readers] == [False, True, True, True]
    assert _reload(world, more).accepted
    world.run(1)
    assert [each.closed for each in world.client.readers] == [False, True, True, True, False]
    assert len(world.kafka.group("more").members) == 1


def test_group_does_not_move_between_store_and_kafka_while_the_node_runs() -> None:
    """It has its positions there; the sentence says what to do, and nothing changes."""
    world = World()
    moved = YAML.replace("topic: invoices, orderKey", "topic: orders, orderKey")
    result = _reload(world, moved)
    assert not result.accepted
    assert "cannot change from main to pyddmq while the node runs" in result.problems[0]
    assert world.node.in_force.config.groups["billing"].topics[0].topic == "invoices"


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
    places = [KafkaPartition("invoices", 0), KafkaPartition("invoices", 1)]
    for place in places:
        for _ in range(2):
            world.kafka.append(place, b"k%d" % place.partition, b"early")
    world.run(5)
    since_ms = world.node.parts.seams.clock.wall_ms()
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
    world.kafka.append(KafkaPartition("invoices", 0), b"k", b"body")
    world.run(1)
    world.kafka.down = True
    with pytest.raises(ChangeRefused, match="Kafka does not report an offset for that time; nothing was reset"):
        _reset(world, to_time_ms=1_700_000_000_000, dry_run=False)


def test_retention_of_the_store_goes_on_beside_a_group_of_kafka() -> None:
    """A message of Kafka waits for more than half a minute: the store's expiry has nothing to do with it."""
    world = World()
    world.run(1)
    world.kafka.append(KafkaPartition("invoices", 0), b"k", b"body")
    world.run(40)
    assert [each.finding for each in world.found() if each.finding == "internal_fault"] == []


def test_producer_that_kafka_denies_is_a_finding_and_is_replaced() -> None:
    """Sends have the code of a denial meanwhile; afterwards they and dead letters are taken."""
    world = World()
    world.run(1)
    client = world.connect("producer")

    def send() -> int:
        message = producer_idl.Message(topic="invoices", body=b"x", partitionId=-1, hashId=0)
        client.transport.write(client.codec.call("sendSync", 1, message=message, timeout=1000))
        world.run(1.5)
        return int(client.replies.pop().value.code)

    assert send() == ResultCode.OK
    world.kafka.producers_denied = KafkaFailure("CLUSTER_AUTHORIZATION_FAILED", "not authorized")
    assert [send(), send()] == [ResultCode.FAIL_TOPIC_NOT_ALLOWED] * 2
    [finding] = world.found()
    assert (finding.finding, finding.bad) == ("kafka_producer_broken", True)
    world.kafka.producers_denied = None
    world.run(5)
    assert send() == ResultCode.OK
    world.run(40)
    assert world.found() == []


@pytest.mark.parametrize(("brokers", "holds"), [(6.0, False), (60.0, True)])
def test_session_of_the_brokers_counts_where_it_is_shorter(brokers: float, holds: bool) -> None:
    """By KIP-848 they give partitions away by theirs: a node that is cut off hands out nothing after that."""
    yaml = YAML.replace("sessionTimeout: 6000", "sessionTimeout: 30000, groupProtocol: consumer")
    with capture_logs() as lines:
        world = World(yaml, session_seconds=brokers)
        world.run(5)
    [line] = [each for each in lines if each["event"] == "kafka_session_differs"]
    assert (line["configured_ms"], line["brokers_ms"]) == (30_000, brokers * 1000)
    broker = world.node.parts.kafka_groups.of("billing")
    assert broker is not None
    assert broker.may_hand_out()
    world.kafka.down = True
    world.run(6)
    assert broker.may_hand_out() == holds


def test_sends_of_a_node_with_kafka_do_not_gather_while_the_disk_of_its_store_is_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most of them are not for it."""
    gathered: list[bool] = []

    def noted(methods: Collection[str], take: Callable[..., None], *, awaits_disk: bool) -> PassLine:
        gathered.append(awaits_disk)
        return PassLine(methods, take, awaits_disk=awaits_disk)

    monkeypatch.setattr("proxy.services.producer_service.PassLine", noted)
    World()
    assert gathered == [False]
