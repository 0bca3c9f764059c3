"""Faults of DDMQ's lifecycle, producer proxy and set-up that must not come back, on whole nodes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from broker.format.record import split
from conf import ConfigError, loads
from pyddmq.codes import PullCode, ResultCode
from pyddmq.testing import NetworkFaults
from tests.insides import opened_of
from tests.integration.ddmq_tools import NODE, Peer, result
from tests.patient import PATIENCE_SECONDS, until
from tests.running_node import RunningNode
from tests.simulation.caller import Caller, Waiting
from tests.simulation.wire import Reply, producer_idl
from tests.simulation.world import World
from tests.simulation.world import settings as simulated_settings

QID = "pyddmq_broker-0_0"


def settings(*, notes: str = "{queues: 1}", enabled: str = "true", more: str = "") -> str:
    """A configuration with one group on one topic, and a second topic."""
    topics = f"topics:\n  orders: {{queues: 1}}\n  notes: {notes}\n" if notes else "topics: {orders: {queues: 1}}\n"
    return f"""{NODE % more}{topics}groups:
  - group: readers
    topics:
      - {{topic: orders, enabled: {enabled}, maxPullBatchSize: 32, timeout: 600000}}
"""


def test_disabling_the_last_topic_stops_the_group(tmp_path: Path) -> None:
    """W24: after the reload nothing is handed out and the client is told; enabled again, it goes on where it was."""
    with (
        RunningNode(settings(), tmp_path) as node,
        Peer(node.producer) as producer,
        Peer(node.consumer) as consumer,
    ):
        producer.send("orders", b"0")
        assert consumer.pull("readers").messages[0].value == b"0"
        assert consumer.submit(result("readers", "orders", QID, [0]))
        assert node.reload(settings(enabled="false")).accepted
        producer.send("orders", b"1")
        assert consumer.refused_pull("readers").code == PullCode.GROUP_DISABLED
        assert node.reload(settings()).accepted
        assert [message.value for message in consumer.pull("readers").messages] == [b"1"]


def test_stop_takes_acks_before_it_closes(tmp_path: Path) -> None:
    """W33: a stop waits for what is out; acks that come meanwhile count, and nothing acked comes again."""
    with RunningNode(settings(), tmp_path, drain_seconds=PATIENCE_SECONDS) as node, Peer(node.consumer) as consumer:
        with Peer(node.producer) as producer:
            for number in range(3):
                producer.send("orders", b"%d" % number)
        assert len(consumer.pull("readers").messages) == 3
        stopping = threading.Thread(target=node.stop)
        stopping.start()
        until(lambda: node.node.state != "ready", "the stop")
        assert consumer.submit(result("readers", "orders", QID, [0, 2]))
        assert consumer.submit(result("readers", "orders", QID, [], [1]))
        stopping.join(PATIENCE_SECONDS)
        assert node.node.state == "stopped"
    with RunningNode(settings(), tmp_path) as node, Peer(node.consumer) as consumer:
        assert [message.offset for message in consumer.pull("readers").messages] == [1]


def test_one_send_is_one_message_whatever_its_timeout() -> None:
    """W81: a disk far slower than a send's timeout repeats nothing: each message is stored once, in order."""
    world = World(1, faults=NetworkFaults(delay_ms_max=0.2, fragment_share=0), sync_seconds_max=1.0)
    node = world.start()
    send = _sender(world)
    waiting = [send(producer_idl.Message(topic="orders", body=b"%d" % n, hashId=8), timeout=1) for n in range(20)]
    world.run(seconds=30)
    codes = [each.reply.value.code for each in waiting if each.reply is not None]
    assert len(codes) == 20
    assert {ResultCode.OK, ResultCode.FAIL_TIMEOUT} >= set(codes)
    records = [
        opened_of(node).store.read(*unit[:2])
        for queue in opened_of(node).store.topics["orders"].queues
        for unit in queue.read(0, 99)
    ]
    assert [bytes(split(record)[0]) for record in records] == [b"%d" % n for n in range(20)]
    world.kill()


@pytest.mark.parametrize("how", ["stop", "reload"])
def test_sends_under_way_at_a_stop_or_a_reload_are_answered(how: str) -> None:
    """W84: what was taken before is stored and answered; what comes later is refused or cut off, never left waiting."""
    world = World(1, faults=NetworkFaults(delay_ms_max=0.2, fragment_share=0), sync_seconds_max=0.3)
    node = world.start()
    send = _sender(world)
    message = producer_idl.Message(topic="orders", body=b"x")
    early = [send(message) for _ in range(10)]
    world.run(until=lambda: node.runtime.metrics.value("pyddmq_messages_published_total", "orders") >= 5, seconds=1)
    # Fewer would gather for the flush after the one under way.
    early += [send(message) for _ in range(20)]
    world.run(seconds=0.002)
    assert any(each.reply is None for each in early), "none is under way"
    if how == "stop":
        assert world.process is not None
        stopping = world.process.run(world.loop.create_task, node.stop())
        late = send(message)
        world.run(until=stopping.done, seconds=60)
        world.run(seconds=1)
        assert late.lost or (late.reply is not None and late.reply.value.code != 0)
    else:
        assert world.reload(lambda wanted: wanted["groups"].pop()).accepted
        world.run(seconds=5)
    codes = [each.reply.value.code for each in early if each.reply is not None]
    assert len(codes) == 30
    stored = sum(queue.max_offset for queue in opened_of(node).store.topics["orders"].queues)
    assert (codes.count(0), set(codes) <= {0, ResultCode.FAIL_SERVER_SHUTDOWN}) == (stored, True)
    assert stored
    world.kill()


@pytest.mark.parametrize("value", [0, -1, 0.5, 1, 3, 1e-9, 1e30, 2**31, 2**63, "1", "", True, None, [], {}])
@pytest.mark.parametrize("place", ["node.maxMessageBytes", "node.maxLingerTime", "topics.queues", "topics.maxTps"])
def test_settings_are_refused_or_take_a_send(place: str, value: object) -> None:
    """W79: a setting that is taken starts a node whose first send is answered, with success or a limit's code."""
    section, _, key = place.partition(".")
    world = World(1, faults=NetworkFaults(delay_ms_max=0.2, fragment_share=0))
    wanted = simulated_settings()
    (wanted["node"] if section == "node" else wanted["topics"]["orders"])[key] = value
    try:
        world.config = loads(yaml.safe_dump(wanted), file="f.yaml", actions=world.registry).config
    except ConfigError as refused:
        reported = str(refused)
    else:
        reported = ""
        _takes_a_send(world)
    assert not reported or key in reported


def _takes_a_send(world: World) -> None:
    world.start()
    reply = _send(world, "sendSync", {"message": producer_idl.Message(topic="orders", body=b"x"), "timeout": 1000})
    assert reply.value.code in (ResultCode.OK, ResultCode.FAIL_REFUSED_BY_RATE_LIMITER)
    world.kill()


@pytest.mark.parametrize("method", ["sendSync", "sendAsync", "sendBatchSync"])
def test_failed_write_is_answered_and_never_reported_as_stored(method: str) -> None:
    """W82, W83: when the sync fails every sender gets code 10 with the reason, and nobody sees the message."""
    world = World(1, faults=NetworkFaults(delay_ms_max=0.2, fragment_share=0))
    node = world.start()
    world.disk.fail("sync", path_part="commitlog")
    message = producer_idl.Message(topic="orders", body=b"x")
    arguments: dict[str, Any] = {
        "sendSync": {"message": message, "timeout": 1000},
        "sendAsync": {"message": message},
        "sendBatchSync": {"messages": [message, message, message]},
    }[method]
    for reply in (_send(world, method, arguments), _send(world, method, arguments)):
        assert reply.value.code == ResultCode.FAIL_UNKNOWN
        assert "writing the commit log failed" in reply.value.msg
    assert all(queue.max_offset == 0 for queue in opened_of(node).store.topics["orders"].queues)
    assert node.state == "failed"
    world.kill()


def _sender(world: World) -> Callable[..., Waiting]:
    """A connected producer: calling it sends a message and does not wait."""
    caller = Caller(world, "10.9.0.1")
    line = caller.ready(caller.producer)

    def send(message: Any, *, timeout: int = 1000) -> Waiting:
        waiting = Waiting()
        line.call("sendSync", waiting, message=message, timeout=timeout)
        return waiting

    return send


def _send(world: World, method: str, arguments: dict[str, Any]) -> Reply:
    caller = Caller(world, "10.9.0.1")
    line, waiting = caller.ready(caller.producer), Waiting()
    line.call(method, waiting, **arguments)
    return caller.answered(waiting)


def test_batch_is_checked_like_single_messages_and_stored_whole(tmp_path: Path) -> None:
    """W82: key, tags, properties and size of every member count; the answer names the member, and nothing is stored."""
    good: dict[str, Any] = {"topic": "orders", "body": b"x"}
    bad: list[dict[str, Any]] = [
        {"key": "k" * 256},
        {"tags": "t" * 256},
        {"properties": {"UNIQ_KEY": "x"}},
        {"body": bytes(500_001)},
        {"body": b""},
    ]
    with RunningNode(settings(), tmp_path) as node, Peer(node.producer) as producer:
        for change in bad:
            members = [producer_idl.Message(**good), producer_idl.Message(**{**good, **change})]
            reply = producer.call("sendBatchSync", messages=members)
            assert reply.value.code == ResultCode.FAIL_ILLEGAL_MSG
            assert reply.value.msg.startswith("message 1 of 2: ")
        assert opened_of(node.node).store.topics["orders"].queues[0].max_offset == 0


def test_topic_taken_out_or_disabled_takes_no_more_sends(tmp_path: Path) -> None:
    """W85: a reload closes a topic at once, and no property of a message opens it again."""
    with RunningNode(settings(), tmp_path) as node, Peer(node.producer) as producer:
        assert producer.send("notes").code == 0
        for notes in ("{queues: 1, enabled: false}", ""):
            assert node.reload(settings(notes=notes)).accepted
            for properties in ({}, {"from_chronos": "true"}):
                answer = producer.send("notes", properties=properties)
                assert answer.code == ResultCode.FAIL_TOPIC_NOT_ALLOWED
                assert "notes" in answer.msg
        assert opened_of(node.node).store.topics["notes"].queues[0].max_offset == 1


def test_queues_take_turns_beyond_two_to_the_31(tmp_path: Path) -> None:
    """W85: the turn of the queues does not run over, however many messages went before."""
    with RunningNode(settings(notes="{queues: 3}"), tmp_path) as node, Peer(node.producer) as producer:
        opened_of(node.node).ports.by_name[b"notes"].round = 2**31 - 2
        queues = [producer.send("notes").qid for _ in range(6)]
        assert sorted(queues) == sorted(2 * [f"pyddmq_broker-0_{number}" for number in range(3)])


def test_hash_of_any_sign_and_size_chooses_a_queue(tmp_path: Path) -> None:
    """W80: the lowest 64-bit number and keys with a negative hash name a queue that is there."""
    with RunningNode(settings(notes="{queues: 3}"), tmp_path) as node, Peer(node.producer) as producer:
        for hash_id in (-1, -(2**31), -(2**63), 2**63 - 1):
            assert producer.send("notes", hashId=hash_id).code == 0
        # Java's hash of this text is its lowest 32-bit number, which has no positive counterpart.
        assert producer.send("notes", key="polygenelubricants").code == 0


def test_traffic_writes_no_log_lines(tmp_path: Path) -> None:
    """W98: two hundred messages sent, failed, delivered again and acked leave no more lines than ten of them."""

    def lines_of(count: int, data: Path) -> list[str]:
        with (
            RunningNode(settings(), data) as node,
            Peer(node.producer) as producer,
            Peer(node.consumer) as consumer,
            capture_logs() as lines,
        ):
            for _ in range(count):
                assert producer.send("orders").code == 0
            failed = False
            finished = 0
            while finished < count:
                offsets = [message.offset for message in consumer.pull("readers").messages]
                finished += len(offsets) if failed else 0
                consumer.submit(result("readers", "orders", QID, *((offsets, []) if failed else ([], offsets))))
                failed = True
        return [line["event"] for line in lines]

    assert lines_of(200, tmp_path / "many") == lines_of(10, tmp_path / "few")


def test_node_binds_the_loopback_and_names_itself_by_its_configuration(tmp_path: Path) -> None:
    """W97, W99: a file with nothing but topics and a group serves both ports, on 127.0.0.1 unless `host` says more."""
    with RunningNode("topics: {orders: }\ngroups: [{group: g, topics: [{topic: orders}]}]\n", tmp_path) as node:
        assert {node.node.producer.address[0], node.node.consumer.address[0]} == {"127.0.0.1"}
        with Peer(node.producer) as producer, Peer(node.consumer) as consumer:
            assert producer.send("orders").code == 0
            assert consumer.pull("g").context.qid.startswith("pyddmq_broker-0_")


def test_reload_logs_names_and_no_values() -> None:
    """W66: what may be a secret stays out of the log when a configuration changes."""
    world = World(1, faults=NetworkFaults(delay_ms_max=0.2, fragment_share=0))
    world.start()

    def change(wanted: dict[str, Any]) -> None:
        wanted["groups"][0]["alarmGroup"] = ["hush-hush"]
        wanted["groups"][2]["topics"][0]["tags"] = ["hush-hush"]

    with capture_logs() as lines:
        assert world.reload(change).accepted
    reported = [line for line in lines if line["event"] == "reloaded"]
    assert len(reported) == 1
    assert "by-key" in str(reported)
    assert "hush-hush" not in str(lines)
    world.kill()
