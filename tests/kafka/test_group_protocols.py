"""Group protocols of a real Kafka: what `auto` is there, and nodes of both in one group."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kafka.topics import protocol_of
from tests.kafka_world import Clients, Heard
from upstream.kafka.link import Commit, KafkaPartition

pytestmark = pytest.mark.long

MakeTopic = Callable[..., str]


@pytest.mark.parametrize(("session", "protocol"), [(6000, "consumer"), (7000, "classic")])
def test_auto_is_what_the_brokers_have(
    session: int, protocol: str, clients: Clients, topic: MakeTopic, address: str
) -> None:
    """KIP-848 where their session timeout is ours; and a member reads and commits by it."""
    name = topic()
    clients.send(name, [b"a"])
    member, heard = clients.joined(f"g-{name}", [name], group_protocol="auto", session_timeout=session)
    clients.until(heard.values, "the record")
    assert clients.commit(member, Commit(name, 0, 1, "")) is None
    assert protocol_of(address, f"g-{name}") == protocol


def test_nodes_of_both_protocols_share_a_group(clients: Clients, topic: MakeTopic) -> None:
    """As in a rolling upgrade: the second gets its part, with what the first has committed, and in the end all."""
    name = topic(partitions=2)
    for partition in range(2):
        clients.send(name, [b"a", b"b"], partition=partition)
    group, places = f"g-{name}", {KafkaPartition(name, 0), KafkaPartition(name, 1)}
    first, heard = clients.joined(group, [name], group_protocol="classic")
    clients.until(lambda: len(heard.values()) == 4, "records")
    assert clients.commit(first, Commit(name, 0, 1, "text"), Commit(name, 1, 1, "text")) is None
    _, other = clients.join(group, [name], Heard(), group_protocol="consumer")
    clients.until(lambda: len(heard.given) == len(other.given) == 1, "both to have a part")
    assert heard.given.keys() | other.given.keys() == places
    assert [(each.committed, each.metadata) for each in other.given.values()] == [(1, "text")]
    clients.leave(first)
    clients.until(lambda: other.given.keys() == places, "all partitions")
