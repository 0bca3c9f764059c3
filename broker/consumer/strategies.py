"""Which client of a group consumes which queues, computed as RocketMQ does (client/consumer/rebalance/*, 6.5).

A strategy is a callable of a client id, all queues and all client ids, both sorted, that returns the queues of that
client. Every client computes alone; that all of them give each queue to exactly one client is the strategy's part
(`Configured` leaves it to the configuration); locks ensure that a queue has one consumer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from hashlib import md5

from broker.queues.message_queue import MessageQueue

Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]

VIRTUAL_NODES = 10


def averagely(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """AVG: contiguous blocks; the first `queues modulo clients` clients get one more."""
    if client_id not in clients:
        return []
    index, (size, rest) = clients.index(client_id), divmod(len(queues), len(clients))
    start = index * size + min(index, rest)
    return list(queues[start : start + size + (index < rest)])


def by_circle(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: one after the other, round and round."""
    return list(queues[clients.index(client_id) :: len(clients)]) if client_id in clients else []


class Configured:
    """CONFIG: a fixed list per client; queues that the topic does not have are left out."""

    def __init__(self, table: dict[str, Sequence[MessageQueue]]) -> None:
        self._table = {client: frozenset(queues) for client, queues in table.items()}

    def __call__(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        """Return the client's list."""
        wanted = self._table.get(client_id, frozenset())
        return [queue for queue in queues if queue in wanted]


class MachineRoom:
    """MACHINE_ROOM: queues of brokers named `room@name` in the given rooms; blocks, then the rest one each.

    Queues of other rooms, and of brokers whose name has no room, are not assigned.
    """

    def __init__(self, rooms: frozenset[str]) -> None:
        self._rooms = rooms

    def __call__(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        """Return the client's share of the rooms' queues."""
        if client_id not in clients:
            return []
        near = [queue for queue in queues if self._has_room(queue.broker_name)]
        index, (size, rest) = clients.index(client_id), divmod(len(near), len(clients))
        share = near[index * size : (index + 1) * size]
        return share + near[index + size * len(clients) :][:1] if index < rest else share

    def _has_room(self, broker_name: str) -> bool:
        parts = broker_name.split("@")
        return len(parts) == 2 and parts[0] in self._rooms


class MachineRoomNearby:
    """MACHINE_ROOM_NEARBY: a room's queues go to that room's clients; those of rooms without clients to all.

    Args:
        inner: Strategy within a room.
        room_of_broker: Room of a queue's broker.
        room_of_client: Room of a client id.
    """

    def __init__(
        self, inner: Strategy, *, room_of_broker: Callable[[MessageQueue], str], room_of_client: Callable[[str], str]
    ) -> None:
        self._inner = inner
        self._room_of_broker = room_of_broker
        self._room_of_client = room_of_client

    def __call__(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        """Return the client's share of its own room, then of each room without clients, by the rooms' names."""
        if client_id not in clients:
            return []
        queues_by_room: dict[str, list[MessageQueue]] = {}
        clients_by_room: dict[str, list[str]] = {}
        for queue in queues:
            queues_by_room.setdefault(self._room_of_broker(queue), []).append(queue)
        for client in clients:
            clients_by_room.setdefault(self._room_of_client(client), []).append(client)
        own = self._room_of_client(client_id)
        share = self._inner(client_id, queues_by_room.pop(own, []), clients_by_room[own])
        for room in sorted(queues_by_room.keys() - clients_by_room.keys()):
            share += self._inner(client_id, queues_by_room[room], clients)
        return share


class ConsistentHash:
    """CONSISTENT_HASH: each client is `virtual_nodes` times on a ring of MD5 sums; the next one gets a queue."""

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        if virtual_nodes < 1:
            raise ValueError(f"a client needs at least one place on the ring, got {virtual_nodes}")
        self._virtual_nodes = virtual_nodes

    def __call__(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        """Return the queues behind which the client is the next on the ring."""
        if client_id not in clients:
            return []
        ring = {_ring_hash(f"{each}-{node}"): each for each in clients for node in range(self._virtual_nodes)}
        places = sorted(ring)
        return [
            queue
            for queue in queues
            if ring[places[bisect_left(places, _ring_hash(str(queue))) % len(places)]] == client_id
        ]


def _ring_hash(text: str) -> int:
    """Return the first four bytes of the MD5 sum, an unsigned number (RocketMQ: ConsistentHashRouter.MD5Hash)."""
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
