"""Peers that do not read their replies: what waits for them is in the account to the end, and they are closed."""

from __future__ import annotations

from proxy.port.outbox import READ_BYTES_MIN
from proxy.port.server import CONNECTIONS_REFUSED
from pyddmq.codes import ResultCode
from pyddmq.testing import NetworkFaults
from tests.hostile.sim import MIB, HostileWorld, Raw
from tests.insides import opened_of, pipe_from, transport_behind

WINDOW = 300_000
BODY = 1_500_000


def reader_of_nothing(world: HostileWorld, count: int = 1) -> Raw:
    """Return a client for which `count` replies of 1.5 MB wait, of which the kernel has taken 300 kB."""
    for _ in range(count):
        opened_of(world.node).store.put("orders", bytes(BODY))
    client = world.connect("consumer")
    world.network.faults = NetworkFaults(delay_ms_max=0.1, fragment_share=0.0, window_bytes=WINDOW)
    client.transport.pause_reading()
    for _ in range(count):
        client.transport.write(world.pull_frame(client, linger_ms=1))
    world.run(0.5)
    return client


def test_reply_counts_whole_until_its_last_byte_has_left() -> None:
    """The transport keeps all of a reply while a part of it waits, so all of it is in the account."""
    world = HostileWorld()
    client = reader_of_nothing(world)
    [connection] = world.node.consumer.connections
    assert transport_behind(connection) is not None
    assert transport_behind(connection).get_write_buffer_size() < BODY
    assert connection.held_bytes >= BODY
    client.transport.resume_reading()
    world.run(0.5)
    assert client.received > BODY
    assert connection.held_bytes == 0


def test_connection_says_that_it_writes_since_when_and_how_much_waits() -> None:
    """What waits in the transport alone is no idle connection."""
    world = HostileWorld()
    reader_of_nothing(world)
    [connection] = world.node.consumer.connections
    assert not connection.outbox.waiting_bytes
    assert (connection.doing, connection.outbox.held_bytes >= BODY) == ("writing", True)
    assert connection.outbox.stuck_since is not None


def test_peer_that_reads_nothing_is_closed_after_its_time_and_counted() -> None:
    """30 s without a byte taken: the memory is free again."""
    world = HostileWorld()
    client = reader_of_nothing(world, count=3)
    world.run(27.0)
    assert world.node.runtime.metrics.value(CONNECTIONS_REFUSED, "consumer", "slow_reader") == 0
    world.run(5.0)
    assert world.node.runtime.metrics.value(CONNECTIONS_REFUSED, "consumer", "slow_reader") == 1
    assert client.lost
    assert world.node.consumer.connections == {}


def test_peer_that_reads_a_little_at_a_time_is_closed_all_the_same() -> None:
    """A few kilobytes every 29 s are less than it has to read."""
    world = HostileWorld()
    client = reader_of_nothing(world, count=3)
    [connection] = world.node.consumer.connections
    world.network.faults = NetworkFaults(delay_ms_max=0.1, fragment_share=0.0, window_bytes=WINDOW)
    pipe = pipe_from(client)
    for _ in range(2):
        world.run(29.0)
        world.network.faults = NetworkFaults(
            delay_ms_max=0.1, fragment_share=0.0, window_bytes=pipe.size + READ_BYTES_MIN // 8
        )
        connection_end = transport_behind(connection)
        if connection_end is not None:
            connection_end.pump()
    assert client.lost
    assert world.node.runtime.metrics.value(CONNECTIONS_REFUSED, "consumer", "slow_reader") == 1


def test_slow_peer_that_reads_enough_lives_and_gets_everything() -> None:
    """More than 64 KiB in any 30 s, for as long as it takes."""
    world = HostileWorld()
    client = reader_of_nothing(world, count=2)
    [connection] = world.node.consumer.connections
    pipe = pipe_from(client)
    for _ in range(10):
        world.run(25.0)
        world.network.faults = NetworkFaults(
            delay_ms_max=0.1, fragment_share=0.0, window_bytes=pipe.size + 2 * READ_BYTES_MIN
        )
        assert transport_behind(connection) is not None
        transport_behind(connection).pump()
    assert not client.lost
    client.transport.resume_reading()
    world.run(1.0)
    assert len(client.replies) == 2
    assert connection.outbox.stuck_since is None
    assert connection.doing == "idle"


def test_peer_without_replies_that_wait_is_never_closed_for_it() -> None:
    """An idle client, and one that reads, are no slow readers, however long they live."""
    world = HostileWorld()
    client = world.connect("producer")
    assert world.publish(client, b"x") == ResultCode.OK
    world.run(100.0)
    assert not client.lost


def test_account_is_free_again_after_slow_readers_were_closed() -> None:
    """Forty readers of nothing under a ceiling of 64 MiB: nothing of them is counted after their time."""
    world = HostileWorld()
    for _ in range(40):
        reader_of_nothing(world)
        assert world.node.parts.memory.budget.used < world.node.parts.memory.budget.limit
    world.run(40.0)
    assert {each.doing for each in world.node.consumer.connections} == {"idle"}
    world.node.parts.memory.budget.recount()
    assert world.node.parts.memory.budget.used < MIB
