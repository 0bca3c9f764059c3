"""The node's memory ceiling on a simulated network: what is counted, which measure comes when, and the way back."""

from __future__ import annotations

import struct
from time import process_time

from broker.log.put import Put
from proxy.port.connection import CONNECTION_BYTES
from proxy.port.memory import MEASURES
from proxy.port.reply_slot import SLOT_BYTES
from proxy.port.server import CONNECTIONS_REFUSED
from pyddmq.codes import PullCode, ResultCode
from tests.hostile.sim import MIB, YAML, HostileWorld, Raw
from tests.insides import opened_of
from tests.simulation.wire import producer_idl
from upstream.budget import JOB_BYTES, Pressure

FRAME = struct.pack(">i", 4_900_000)


def unfinished(world: HostileWorld, size: int, service: str = "producer") -> Raw:
    """Return a connection with an unfinished frame of which `size` bytes were sent."""
    client = world.connect(service)
    client.transport.write(FRAME + bytes(size))
    world.run(0.2)
    return client


def test_account_is_empty_again_after_everybody_left() -> None:
    """Connections, frames, parked pulls, replies and publishes are taken off again, to the byte."""
    world = HostileWorld()
    producer, consumer = world.connect("producer"), world.connect("consumer")
    assert world.node.parts.memory.budget.used == 2 * CONNECTION_BYTES
    assert world.publish(producer, bytes(100_000)) == ResultCode.OK
    consumer.transport.pause_reading()
    for _ in range(3):
        consumer.transport.write(world.pull_frame(consumer, linger_ms=20_000))
    world.run(0.5)
    assert world.node.parts.memory.budget.used == 2 * CONNECTION_BYTES + 2 * SLOT_BYTES + JOB_BYTES
    partial = unfinished(world, 1000)
    assert world.node.parts.memory.budget.used >= 3 * CONNECTION_BYTES + 2 * SLOT_BYTES + 1000
    for client in (producer, consumer, partial):
        client.transport.abort()
    world.run(1.0)
    world.node.parts.memory.budget.recount()
    assert world.node.parts.memory.budget.used == JOB_BYTES


def test_waiting_pull_keeps_neither_its_frame_nor_its_results() -> None:
    """A pull with megabytes of results parks for the price of any other, behind another parked one as well."""
    world = HostileWorld()
    client = world.connect("consumer")
    for _ in range(3):
        client.transport.write(world.pull_frame(client, linger_ms=20_000, acks=50_000))
    world.run(1.0)
    (connection,) = world.node.consumer.connections
    assert len(connection.slots) == 3
    for slot in connection.slots:
        held = slot.start or slot.withdraw
        assert not _mentions_results(held)
    assert world.node.parts.memory.budget.used == CONNECTION_BYTES + 3 * SLOT_BYTES


def _mentions_results(function: object) -> bool:
    """Whether a closure or partial keeps a call with its frame, or a request with results."""
    kept = [*getattr(function, "args", ())]
    kept += [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    return any(getattr(each, "frame", b"") or getattr(each, "results", ()) for each in kept)


def test_measures_come_in_order_and_end_by_themselves() -> None:
    """Slowed, then refusing with the overloaded codes; acks and old connections live; all ends when memory is free."""
    world = HostileWorld()
    node = world.node
    producer, consumer = world.connect("producer"), world.connect("consumer")
    assert world.publish(producer, b"one") == ResultCode.OK
    levels, held = [node.parts.memory.budget.level], 0
    while node.parts.memory.budget.level < Pressure.REFUSING:
        node.parts.memory.budget.add(4 * MIB)
        held += 4 * MIB
        levels.append(node.parts.memory.budget.level)
    assert levels == sorted(levels)
    assert set(levels) == {Pressure.NONE, Pressure.EASED, Pressure.SLOWED, Pressure.REFUSING}
    assert world.publish(producer, b"two") == ResultCode.FAIL_REFUSED_BY_RATE_LIMITER
    assert world.pull(consumer).error.code == PullCode.OVERLOADED
    node.parts.memory.budget.add(-held // 2)
    world.run(2.0)
    assert node.parts.memory.budget.level < Pressure.REFUSING
    assert world.publish(producer, b"two") == ResultCode.OK
    assert [message.value for message in world.pull(consumer).value.messages] == [b"one", b"two"]
    assert [node.runtime.metrics.value(MEASURES, name) for name in ("slowed", "refusing", "closing")] == [1, 1, 0]
    node.parts.memory.budget.add(held // 2 - held)
    world.run(2.0)
    assert node.parts.memory.budget.level is Pressure.NONE


def test_ceiling_holds_against_any_number_of_unfinished_frames() -> None:
    """A hundred frames of 4.9 MB, none finished: the account stays under the ceiling, and clients live on."""
    world = HostileWorld()
    producer = world.connect("producer")
    high = 0
    hostile = []
    for _ in range(100):
        hostile.append(unfinished(world, 4_800_000))
        high = max(high, world.node.parts.memory.budget.used)
    assert high < world.node.parts.memory.budget.limit
    world.run(40.0)  # Frames have 30 s to arrive.
    assert world.node.parts.memory.budget.level is Pressure.NONE
    assert world.publish(producer, b"still here") == ResultCode.OK
    assert not producer.lost
    assert all(each.lost for each in hostile)


def test_slowed_frames_that_can_finish_do_finish() -> None:
    """Large publishes that meet the pressure together are all taken in the end, a few at a time."""
    world = HostileWorld()
    blockers = [unfinished(world, 4_000_000) for _ in range(8)]
    clients = [world.connect("producer") for _ in range(12)]
    for client in clients:
        message = client.codec.call("sendSync", 1, message=_message(bytes(1_900_000)), timeout=1000)
        client.transport.write(message)
    world.run(2.0)
    for each in blockers:
        each.transport.abort()
    world.run(20.0)
    codes = [client.replies[0].value.code for client in clients if client.replies]
    assert codes.count(ResultCode.OK) + codes.count(ResultCode.FAIL_REFUSED_BY_RATE_LIMITER) == len(clients)
    assert world.node.parts.memory.budget.level is Pressure.NONE


def _message(body: bytes) -> object:
    return producer_idl.Message(topic="orders", body=body, key="k", hashId=0, partitionId=-1)


def test_slow_readers_are_closed_before_the_ceiling() -> None:
    """Replies that nobody takes: handing out stops, the slowest reader goes first, its messages are given back."""
    world = HostileWorld()
    node = world.node
    producer = world.connect("producer")
    for number in range(60):
        assert world.publish(producer, bytes([number]) * 1_900_000) == ResultCode.OK
    readers = []
    for _ in range(40):
        client = world.connect("consumer")
        client.transport.pause_reading()
        client.transport.write(world.pull_frame(client))
        readers.append(client)
        world.run(0.5)
        assert node.parts.memory.budget.used < node.parts.memory.budget.limit
    assert node.parts.memory.budget.level >= Pressure.SLOWED
    for each in readers:
        each.transport.abort()
    world.run(3.0)
    assert node.parts.memory.budget.level is Pressure.NONE
    # What was in the node's own buffers came back at once; the rest comes with its timeout.
    healthy = world.connect("consumer")
    assert world.pull(healthy).error is None


def test_parked_pulls_wait_out_the_refusal() -> None:
    """A pull that was parked before the pressure is answered when it is over, not refused."""
    world = HostileWorld()
    producer, consumer = world.connect("producer"), world.connect("consumer")
    consumer.transport.write(world.pull_frame(consumer, linger_ms=30_000))
    world.run(0.2)
    held = world.node.parts.memory.budget.begins(Pressure.REFUSING)
    world.node.parts.memory.budget.add(held)
    assert world.node.parts.memory.budget.level is Pressure.REFUSING
    opened_of(world.node).store.put("orders", b"for the parked one", key="k")
    world.run(0.5)
    assert consumer.replies == []
    world.node.parts.memory.budget.add(-held)
    world.run(2.0)
    (reply,) = consumer.replies
    assert [message.value for message in reply.value.messages] == [b"for the parked one"]
    assert world.publish(producer, b"x") == ResultCode.OK


def test_worst_connection_is_closed_and_counted() -> None:
    """At seven eighths those go that held most for longest; the counter and the log say so."""
    world = HostileWorld()
    node = world.node
    connections = node.producer.connections
    clients = [world.connect("producer") for _ in range(3)]
    first = next(iter(connections))
    first.favour(True)
    clients[0].transport.write(FRAME + bytes(4_800_000))
    world.run(5.0)
    node.parts.memory.budget.add(node.parts.memory.budget.begins(Pressure.CLOSING))
    world.run(2.0)
    assert clients[0].lost
    assert not clients[1].lost
    assert node.runtime.metrics.value(CONNECTIONS_REFUSED, "producer", "memory") == 1
    node.parts.memory.budget.add(-node.parts.memory.budget.begins(Pressure.CLOSING))
    world.run(2.0)
    assert node.parts.memory.budget.level is Pressure.NONE


def test_reading_ahead_stops_at_half_and_goes_on_after() -> None:
    """Jobs are not made for messages that nobody asks for while memory is short, beyond one batch."""
    world = HostileWorld()
    node = world.node
    node.parts.memory.budget.add(node.parts.memory.budget.begins(Pressure.EASED))
    for _ in range(200):
        opened_of(node).store.put("orders", b"x")
    assert node.in_force.groups["billing"].live_jobs <= 32 + 256
    node.parts.memory.budget.add(-MIB - node.parts.memory.budget.begins(Pressure.EASED) // 2)
    world.run(3.0)
    assert node.parts.memory.budget.level is Pressure.NONE
    assert node.in_force.groups["billing"].live_jobs == 200


def test_backlogs_behind_keys_of_many_groups_are_delivered_all_the_same() -> None:
    """What was read ahead never has pulls refused: nothing but pulls can free that."""
    groups = "".join(
        f"  - group: ordered-{number}\n    topics: [{{topic: orders, orderKey: QID, actions: [Async, PullServer]}}]\n"
        for number in range(12)
    )
    world = HostileWorld(YAML + groups)
    node = world.node
    store = opened_of(node).store
    for _ in range(8):
        store.append([Put(store.topics["orders"], 0, b"x", b"")] * 1000, born_ms=0, born_host=bytes(8))
        world.run(1.0)
    world.run(5.0)
    assert node.parts.memory.budget.level < Pressure.REFUSING
    assert len(world.pull(world.connect("consumer")).value.messages) == 32


def test_memory_that_nothing_can_free_is_looked_at_once_not_for_each_call() -> None:
    """Near the ceiling clients that hold little are served and refused as ever, however many are connected."""
    world = HostileWorld()
    clients = [world.connect("consumer") for _ in range(1000)]
    node = world.node
    node.parts.memory.budget.add(node.parts.memory.budget.begins(Pressure.CLOSING))
    world.run(2.0)
    began = process_time()
    for client in clients:
        for _ in range(5):
            client.transport.write(world.pull_frame(client))
    world.run(0.5)
    assert process_time() - began < 3
    assert {reply.error for client in clients for reply in client.replies} != {None}
    assert not any(client.lost for client in clients)
