"""Every setting of the node that is marked live takes effect with a reload, seen from outside where it can be."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from broker.log.put import Put
from conf import Config, load, loads
from conf.base import Reload, reload_of
from conf.sections.node import NodeConfig
from proxy.node.reload import Candidate, Reloader
from proxy.node.views import ReloadResult
from pyddmq import PullRefused, TopicNotFound
from pyddmq.codes import PullCode
from tests.insides import opened_of, place_of
from tests.integration.ddmq_tools import Peer
from tests.patient import LINGER_MS, PATIENCE_SECONDS, Consumer, Producer, until
from tests.running_node import RunningNode
from tests.simulation.wire import consumer_codec, consumer_idl
from upstream.budget import JOB_BYTES, Pressure

GROUPS = """
topics:
  orders: {queues: 1}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [Async, PullServer], maxPullBatchSize: 32, timeout: 60000}
"""

TESTED = {
    "auto_create_topics",
    "default_queues",
    "max_recv_msgs_length",
    "max_connections",
    "max_connections_per_address",  # tests/hostile/test_places.py
    "idle_timeout",  # tests/hostile/test_places.py
    "memory_max",
    "frame_timeout",
    "write_timeout",
    "max_outstanding_per_connection",
    "output_buffer_bytes",
    "max_parked_pulls",
    "max_linger_time",
    "max_waiting_per_topic",
    "commit_interval_ms",
    "max_tps",
    "limiter_failure_retry_queue_size",
    "action_threads",
    "drain_seconds",  # tests/unit/upstream/delivery/test_reconfigure.py
    "transaction_time_out",
    "transaction_check_interval",
    "transaction_check_max",
    "transaction_discard_hours",
    "retention_hours",  # tests/simulation/test_retention.py, and the next ones too
    "retention_bytes",
    "retention_disk_ratio",
    "retention_disk_ratio_forced",
    "log_level",  # tests/acceptance/test_cli_edges.py
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    """Start a node with all settings at their defaults."""
    with RunningNode(GROUPS, tmp_path / "data") as running:
        yield running


def change(node: RunningNode, setting: str) -> None:
    """Reload with settings of the node; the rest stays."""
    assert node.reload(f"node: {{{setting}}}\n{GROUPS}").problems == ()


def test_no_live_setting_is_left_out() -> None:
    """A new live setting needs a test of its own."""
    live = {name for name in NodeConfig.model_fields if reload_of(NodeConfig, name) is Reload.LIVE}
    assert live == TESTED


def test_threads_of_blocking_actions_follow_a_reload(node: RunningNode) -> None:
    """The pool of the running node has the new bound."""
    change(node, "actionThreads: 7")
    assert node.node.parts.calls.pool.calls_max == 7


def test_topics_are_made_on_publish_with_the_default_number_of_queues(node: RunningNode) -> None:
    """Refused before the reload, made with three queues after it."""
    with Producer(node.producer) as producer:
        with pytest.raises(TopicNotFound):
            producer.send("fresh", b"x")
        change(node, "autoCreateTopics: true, defaultQueues: 3")
        producer.send("fresh", b"x")
    assert len(opened_of(node.node).store.topics["fresh"].queues) == 3


def test_reply_cap_holds_for_the_next_pull(node: RunningNode) -> None:
    """Two messages of 700 bytes come together before, and one by one after."""
    with Producer(node.producer) as producer:
        for _ in range(4):
            producer.send("orders", bytes(700))
    with Consumer(node.consumer, "billing", linger_ms=LINGER_MS) as consumer:
        assert len(consumer.pull(count_max=2)) == 2
        change(node, "maxRecvMsgsLength: 1024")
        assert len(consumer.pull(count_max=2)) == 1


def test_parked_pulls_and_connections_are_bounded_anew(node: RunningNode) -> None:
    """The second waiting pull is refused as overloaded; a connection above the new cap is closed, an old one lives."""
    change(node, "maxParkedPulls: 1")
    frame = consumer_codec(compact=True).call(
        "pull", 1, request=consumer_idl.PullRequest(groupId="billing", maxLingerTime=LINGER_MS)
    )
    host, _, port = node.consumer.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as parked:
        parked.sendall(frame)
        with Consumer(node.consumer, "billing", linger_ms=20) as consumer:
            until(lambda: node.call(lambda: node.node.in_force.groups["billing"].stats().parked_pulls), "the pull")
            with pytest.raises(PullRefused) as refused:
                consumer.pull()
            assert refused.value.code == PullCode.OVERLOADED
            change(node, "maxConnections: 2")
            with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as third:
                assert third.recv(1) == b""
            assert consumer.stats()[0].lag == 0


def test_rate_of_the_node_and_its_queue_of_second_tries_change(node: RunningNode) -> None:
    """Without a limit, with one that a send waits for, with none that may wait, and without one again."""
    waited = partial(node.node.runtime.metrics.value, "pyddmq_sends_waited_total")
    with Peer(node.producer) as producer:
        assert [producer.send("orders").code for _ in range(2)] == [0, 0]
        change(node, "maxTps: 0.001")
        assert [producer.send("orders", timeout_ms=50).code for _ in range(2)] == [0, 15]
        assert node.call(waited) == 1
        change(node, "maxTps: 0.001, limiterFailureRetryQueueSize: 0")
        assert producer.send("orders", timeout_ms=50).code == 15
        assert node.call(waited) == 1
        change(node, "logLevel: info")
        assert producer.send("orders").code == 0


def test_committed_offsets_are_written_at_the_new_interval(node: RunningNode, tmp_path: Path) -> None:
    """With the default of 5 s nothing is written yet; with 10 ms the ack shows in the file while the node runs."""
    file = tmp_path / "data" / "config" / "consumerOffset.json"
    with Producer(node.producer) as producer, Consumer(node.consumer, "billing", linger_ms=LINGER_MS) as consumer:
        producer.send("orders", b"x")
        (message,) = consumer.pull()
        consumer.ack(message)
        consumer.flush()
        change(node, "commitIntervalMs: 10")
        until(lambda: file.exists() and "orders@billing" in file.read_text(), "the offsets")
    assert json.loads(file.read_text())["offsetTable"]["orders@billing"] == {"0": 1}


def test_bounds_that_nothing_small_reaches_are_handed_on(node: RunningNode) -> None:
    """Outstanding requests, unsent bytes, linger and waiting jobs: what enforces them has the new numbers."""
    change(
        node,
        "maxOutstandingPerConnection: 3, outputBufferBytes: 70000, maxLingerTime: 5, maxWaitingPerTopic: 17, "
        "drainSeconds: 4, frameTimeout: 700, writeTimeout: 1500, memoryMax: 70000000",
    )
    assert node.node.parts.memory.budget.limit == 70_000_000
    for server in (node.node.consumer, node.node.producer):
        assert (server.limits.outstanding_max, server.limits.output_bytes_max) == (3, 70_000)
        assert (server.limits.frame_seconds_max, server.limits.write_seconds_max) == (0.7, 1.5)
    assert opened_of(node.node).consumer_service.linger_ms_max == 5
    group = node.node.in_force.groups["billing"]
    subscription = place_of(group, "orders").subscription
    assert subscription is not None
    assert (subscription.waiting_max, group._generations.drain_seconds) == (17, 4)


def test_memory_max_below_what_jobs_hold_leaves_pulls_going(node: RunningNode) -> None:
    """They are what ends those jobs; refused they would be so until a restart."""
    budget = node.node.parts.memory.budget
    with Producer(node.producer) as producer, Consumer(node.consumer, "billing", linger_ms=LINGER_MS) as consumer:
        for _ in range(40):
            producer.send("orders", b"x")
        messages = consumer.pull()
        assert len(messages) <= 32
        node.call(lambda: budget.configure(4 * JOB_BYTES))
        assert budget.level >= Pressure.REFUSING
        assert consumer.pull()


def test_transactions_are_checked_and_discarded_by_the_new_settings(node: RunningNode) -> None:
    """Its first check would be due after six seconds, and the second half a minute later; one is the most now."""
    transactions = node.call(lambda: opened_of(node.node).transactions)

    def store_half() -> None:
        store = opened_of(node.node).store
        put = transactions.half(Put(store.topics["orders"], 0, b"x", b""), group="g")
        store.append([put], born_ms=0, born_host=bytes(8))

    node.call(store_half)
    change(node, "transactionTimeOut: 1, transactionCheckInterval: 1, transactionCheckMax: 1")
    until(lambda: node.call(lambda: transactions.fetch_checks("g", 1)), "the check")
    until(lambda: node.node.runtime.metrics.value("pyddmq_transactions_discarded_total", "checks") == 1, "the discard")
    change(node, "transactionDiscardHours: 0.0000001")
    node.call(store_half)
    until(
        lambda: node.node.runtime.metrics.value("pyddmq_transactions_discarded_total", "age") == 1, "the discard by age"
    )


def over(node: RunningNode) -> Callable[[Config], Config]:
    """Return what puts the running node's ports and folder over a configuration, as the command line does."""
    running = node.config.node
    kept = {name: getattr(running, name) for name in ("data", "producer_port", "consumer_port")}
    return lambda config: config.model_copy(update={"node": config.node.model_copy(update=kept)})


def test_preview_of_a_reload_changes_nothing(node: RunningNode) -> None:
    """It names the changes of a good file, and the refusals of a bad one; neither is in force or noted afterwards."""

    def preview(yaml: str, *, accept_loss: bool = False) -> ReloadResult:
        reloader = Reloader(node.node, lambda: loads(yaml, actions=node.registry), over=over(node))
        result = node.wait_for(reloader.preview(accept_loss=accept_loss))
        assert (result.dry_run, reloader.configuration.problems) == (True, ())
        return result

    before, topics = node.node.in_force.config, set(opened_of(node.node).store.topics)
    good = preview("node: {actionThreads: 7}\n" + GROUPS.replace("topics:", "topics:\n  fresh: {}", 1))
    assert good.accepted
    assert any("actionThreads" in each for each in good.changes)
    assert any("fresh" in each for each in good.changes)
    restart = preview(f"node: {{brokerName: other}}\n{GROUPS}")
    assert not restart.accepted
    assert "brokerName" in restart.problems[0]
    assert "nonsense" in preview(f"node: {{nonsense: 1}}\n{GROUPS}").problems[0]
    own = Reloader(node.node, lambda: pytest.fail("the node's file is not read"), over=over(node))
    tried = node.wait_for(own.preview(candidate=Candidate("node: {actionThreads: 9}\n" + GROUPS, "next.yaml")))
    assert any("actionThreads" in each for each in tried.changes)
    [problem] = node.wait_for(own.preview(candidate=Candidate("topics: 7\n", "next.yaml"))).problems
    assert problem.startswith("next.yaml:1")
    assert node.node.in_force.config is before
    assert set(opened_of(node.node).store.topics) == topics


def test_preview_names_groups_that_would_lose_messages(node: RunningNode) -> None:
    """Without acceptLoss it is a refusal as the reload's own is, with it a warning."""
    with Producer(node.producer) as producer:
        producer.send("orders", b"x")
    lower = f"node: {{retentionBytes: 1}}\n{GROUPS}"
    reloader = Reloader(node.node, lambda: loads(lower, actions=node.registry), over=over(node))
    opened_of(node.node).retaining.losses_under = lambda wanted: {"billing": 1}  # type: ignore[method-assign]
    refused = node.wait_for(reloader.preview())
    assert not refused.accepted
    assert "billing" in refused.problems[0]
    accepted = node.wait_for(reloader.preview(accept_loss=True))
    assert accepted.accepted
    assert "billing" in accepted.warnings[0]


def test_text_of_the_file_is_that_of_the_last_read(node: RunningNode, tmp_path: Path) -> None:
    """Of one that is refused too, so that its errors are shown at their lines; without secrets."""
    path = tmp_path / "node.yaml"
    reloader = Reloader(node.node, lambda: load(path, actions=node.registry), over=over(node), file=str(path), text="x")
    path.write_text(f"# token: abc\n{GROUPS}")
    assert node.wait_for(reloader.reload()).accepted
    assert reloader.configuration.text.startswith("# token: ***\n")
    for wrong in ("nonsense: 1", "node: {brokerName: other}"):
        path.write_text(f"{wrong}\n{GROUPS}")
        assert not node.wait_for(reloader.reload()).accepted
        assert reloader.configuration.text.startswith(f"{wrong}\n")
        assert reloader.configuration.problems[0].startswith(f"{path}:1: ")
