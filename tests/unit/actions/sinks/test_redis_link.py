"""The Redis sink while servers change: roles, slots, passwords, permissions, memory; at real servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from actions.client_factories import Outside
from actions.sinks.commands import RedisCommand
from actions.sinks.redis.link import RedisWish
from actions.sinks.redis.sink import RedisSink
from pyddmq.actions import Failed, RetryLater, Status
from tests.patient import until
from tests.unit.actions.sinks.memory_redis import MemoryRedis
from tests.unit.actions.sinks.real_redis import RedisServer
from tests.unit.actions.sinks.surroundings import FakeJob, opened

KEYS = 20


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, RedisServer]]:
    """Two servers without a relation."""
    servers = (RedisServer(tmp_path_factory.mktemp("one")), RedisServer(tmp_path_factory.mktemp("two")))
    yield servers
    for each in servers:
        each.kill()


@pytest.fixture
def server(pair: tuple[RedisServer, RedisServer]) -> RedisServer:
    """One of them, empty."""
    pair[0].client().flushall()
    return pair[0]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, RedisServer]]:
    """A Redis Cluster of two nodes, each with half of the slots."""
    options = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
    first, second = (RedisServer(tmp_path_factory.mktemp("node"), *options) for _ in range(2))
    said(first, "CLUSTER", "ADDSLOTSRANGE", 0, 8191)
    said(second, "CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
    said(second, "CLUSTER", "SET-CONFIG-EPOCH", 2)
    said(first, "CLUSTER", "MEET", "127.0.0.1", second.port)
    for each in (first, second):
        until(partial(_covers, each), "the cluster has all slots")
    yield first, second
    for each in (first, second):
        each.kill()


def said(server: RedisServer, *words: object) -> Any:
    """What a server answers to a command of the test's own."""
    client: Any = server.client()
    with client:
        return client.execute_command(*words)


def _covers(node: RedisServer) -> bool:
    found: Any = said(node, "CLUSTER INFO")
    return (found["cluster_state"], found["cluster_slots_assigned"]) == ("ok", "16384")


class Forwarder:
    """One address behind which the server changes: connections that are open stay with the old one."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.opened = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Listen; gives the address."""
        listener = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        finally:
            listener.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.wait(
            {asyncio.create_task(self._copy(*each)) for each in ((reader, back), (there, writer))},
            return_when=asyncio.FIRST_COMPLETED,
        )
        back.close()
        writer.close()

    @staticmethod
    async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            target.write(data)


def sink_of(address: str, **options: Any) -> Any:
    """A sink over redis-py."""
    return opened(RedisSink, {"hosts": [address], "commands": [["SET", "${key}", "${body}"]], **options}, Outside())


def jobs_of(count: int = KEYS) -> list[FakeJob]:
    """Messages of one key each."""
    return [FakeJob(n, b"%d" % n, key=f"k{n}") for n in range(count)]


def test_failover_behind_one_address_renews_the_connection(pair: tuple[RedisServer, RedisServer]) -> None:
    """A pooled connection to the server that became a replica is replaced at once: no message waits."""
    old, new = pair

    async def run() -> list[Any]:
        forwarder = Forwarder(old.port)
        async with forwarder.running() as address:
            sink = sink_of(address)
            first = await sink.act_many(jobs_of())
            old.client().replicaof("127.0.0.1", new.port)
            forwarder.target = new.port
            second = await sink.act_many(jobs_of())
            assert forwarder.opened == 2
            await sink.close()
            return [*first, *second]

    try:
        answers = asyncio.run(run())
        assert answers == [Status.FINISH] * (2 * KEYS)
        assert new.client().dbsize() >= KEYS
    finally:
        old.client().replicaof("NO", "ONE")
        new.client().flushall()


def test_replica_alone_makes_the_sink_wait(pair: tuple[RedisServer, RedisServer]) -> None:
    """When the new connection reaches a replica again, the sink waits for the server, uncounted."""
    old, new = pair
    old.client().replicaof("127.0.0.1", new.port)
    try:
        answers = asyncio.run(_answered(sink_of(old.address), jobs_of(2)))
    finally:
        old.client().replicaof("NO", "ONE")

    assert all(isinstance(each, RetryLater) for each in answers)
    assert "READONLY" in str(answers[0])


async def _answered(sink: Any, jobs: list[FakeJob]) -> list[Any]:
    answers = list(await sink.act_many(jobs))
    await sink.close()
    return answers


def test_rotated_password_is_read_again(server: RedisServer, tmp_path: Path) -> None:
    """A new password in its file serves the next connection, without a reload and without a wait."""
    secret = tmp_path / "password"
    owner = server.client()
    owner.config_set("requirepass", "old")
    secret.write_text("old\n")

    async def run() -> list[Any]:
        sink = sink_of(server.address, password={"file": str(secret)})
        first = await sink.act_many(jobs_of(1))
        owner.config_set("requirepass", "new")
        owner.client_kill_filter(_type="normal", skipme=True)
        await sink.act_many(jobs_of(1))
        sink.context.ahead += 60
        missing = await sink.act_many(jobs_of(1))
        secret.write_text("new\n")
        sink.context.ahead += 60
        second = await sink.act_many(jobs_of(1))
        await sink.close()
        return [*first, *missing, *second]

    try:
        first, missing, second = asyncio.run(run())
    finally:
        owner.config_set("requirepass", "")
    assert (first, second) == (Status.FINISH, Status.FINISH)
    assert isinstance(missing, RetryLater)
    assert "password" in str(missing)


def test_password_that_is_already_in_its_file_costs_no_wait(server: RedisServer, tmp_path: Path) -> None:
    """A connection that the server refuses is made again with what the file has now: every message is written."""
    secret = tmp_path / "password"
    owner = server.client()
    owner.config_set("requirepass", "old")
    secret.write_text("old\n")

    async def run() -> list[Any]:
        sink = sink_of(server.address, password={"file": str(secret)})
        first = await sink.act_many(jobs_of(1))
        secret.write_text("new\n")
        owner.config_set("requirepass", "new")
        # One of them has the connection that is open, the other needs a new one.
        second, third = await asyncio.gather(sink.act_many(jobs_of(1)), sink.act_many(jobs_of(1)))
        await sink.close()
        return [*first, *second, *third]

    try:
        assert asyncio.run(run()) == [Status.FINISH] * 3
    finally:
        owner.config_set("requirepass", "")


def test_permission_missing_for_one_key_fails_that_message_alone(server: RedisServer, tmp_path: Path) -> None:
    """NOPERM is about the message: it fails with the server's words, and the others are written."""
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    said(server, "ACL", "SETUSER", "writer", "on", ">secret", "~k*", "+@all")
    jobs = [FakeJob(1, key="k1"), FakeJob(2, key="forbidden"), FakeJob(3, key="k3")]
    try:
        sink = sink_of(server.address, username="writer", password={"file": str(secret)})
        answers = asyncio.run(_answered(sink, jobs))
    finally:
        said(server, "ACL", "DELUSER", "writer")

    assert [answers[0], answers[2]] == [Status.FINISH] * 2
    assert isinstance(answers[1], Failed)
    assert "NOPERM" in str(answers[1])


def test_full_memory_holds_the_messages_that_need_it_and_no_others(server: RedisServer) -> None:
    """OOM: what needs memory waits, uncounted; a delete in the same batch is carried out, and one after it."""
    owner = server.client()
    owner.set("gone", "1")
    owner.config_set("maxmemory", 1)
    job, freeing = FakeJob(1, key="k1"), FakeJob(2, key="k2")
    sink = sink_of(server.address, commands=[["DEL", "gone"]])
    try:
        [waits] = asyncio.run(_answered(sink_of(server.address), [job]))
        assert isinstance(waits, RetryLater)
        assert "OOM" in str(waits)
        assert asyncio.run(_answered(sink, [freeing])) == [Status.FINISH]
        both = sink_of(server.address, commands=[])
        jobs = [FakeJob(1), FakeJob(2)]
        jobs[0].outgoing.commands.append(RedisCommand("SET", ("a", "1")))
        jobs[1].outgoing.commands.append(RedisCommand("DEL", ("a",)))
        answers = asyncio.run(_answered(both, jobs))
    finally:
        owner.config_set("maxmemory", 0)

    assert isinstance(answers[0], RetryLater)
    assert answers[1] is Status.FINISH
    assert not both.context.counts["server_away"]


def test_cluster_gives_each_key_to_the_node_that_has_its_slot(nodes: tuple[RedisServer, RedisServer]) -> None:
    """With `cluster: true` one host is enough, and every message is written."""
    answers = asyncio.run(_answered(sink_of(nodes[0].address, cluster=True), jobs_of()))

    assert answers == [Status.FINISH] * KEYS
    sizes = [node.client().dbsize() for node in nodes]
    assert sum(sizes) == KEYS
    assert all(sizes)
    for node in nodes:
        node.client().flushall()


def test_node_of_a_cluster_without_cluster_mode_waits_with_advice(nodes: tuple[RedisServer, RedisServer]) -> None:
    """MOVED is never a dead letter; the reason is whole, and names the option."""
    answers = asyncio.run(_answered(sink_of(nodes[0].address), jobs_of()))

    moved = [each for each in answers if each is not Status.FINISH]
    assert moved
    assert all(isinstance(each, RetryLater) for each in moved)
    assert "MOVED" in str(moved[0])
    assert "cluster: true" in str(moved[0])
    nodes[0].client().flushall()


def _move(slot: int, source: RedisServer, target: RedisServer, *, whole: bool) -> None:
    """Move a slot, or begin to."""
    ids = {node.port: said(node, "CLUSTER", "MYID").decode() for node in (source, target)}
    said(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.port])
    said(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target.port])
    if whole:
        for node in (target, source):
            said(node, "CLUSTER", "SETSLOT", slot, "NODE", ids[target.port])


@pytest.mark.parametrize("whole", [True, False])
def test_slot_that_moves_is_followed(nodes: tuple[RedisServer, RedisServer], whole: bool) -> None:
    """MOVED: the map is read again; ASK: the message goes where it says. Commands together are one transaction."""
    key = "moving" if whole else "migrating"
    slot = said(nodes[0], "CLUSTER", "KEYSLOT", key)
    source, target = nodes if slot < 8192 else nodes[::-1]
    commands = [["SET", "${key}", "${body}"], ["APPEND", "${key}", "!"]]

    async def run() -> list[Any]:
        sink = sink_of(nodes[0].address, cluster=True, commands=commands)
        first = await sink.act_many([FakeJob(1, b"1", key=key)])
        for node in nodes:
            node.client().flushall()
        _move(slot, source, target, whole=whole)
        second = await sink.act_many([FakeJob(2, b"2", key=key)])
        await sink.close()
        return [*first, *second]

    assert asyncio.run(run()) == [Status.FINISH] * 2
    with target.client() as client:
        if not whole:
            said(target, "CLUSTER", "SETSLOT", slot, "STABLE")
            said(source, "CLUSTER", "SETSLOT", slot, "STABLE")
            assert said(target, "CLUSTER", "COUNTKEYSINSLOT", slot) == 1
            client.flushall()
            return
        assert client.get(key) == b"2!"
        client.flushall()


def test_keys_of_several_slots_fail_that_message_alone(nodes: tuple[RedisServer, RedisServer]) -> None:
    """CROSSSLOT is about the message."""
    sink = sink_of(nodes[0].address, cluster=True, commands=[["MSET", "${key}", "1", "other", "1"]])
    [answer] = asyncio.run(_answered(sink, [FakeJob(1, key="key")]))

    assert isinstance(answer, Failed)
    assert "CROSSSLOT" in str(answer)


def test_cluster_without_a_reachable_node_is_waited_for() -> None:
    """Nothing is a dead letter while no node says where a key belongs."""
    [answer] = asyncio.run(_answered(sink_of("127.0.0.1:1", cluster=True, timeout=200), jobs_of(1)))

    assert isinstance(answer, RetryLater)
    assert "Redis Cluster does not respond" in str(answer)


def test_lost_round_trip_is_not_sent_again_at_once() -> None:
    """Its effect is unknown: the messages come again after a wait, as at every loss."""
    memory = MemoryRedis()
    memory.lose = 1

    def make(wish: RedisWish) -> MemoryRedis:
        return memory

    options = {"hosts": ["h:1"], "commands": [["SET", "${key}", "1"]]}
    sink = opened(RedisSink, options, Outside(redis=make))
    answers = asyncio.run(_answered(sink, jobs_of(2)))

    assert all(isinstance(each, RetryLater) for each in answers)
    assert memory.trips == 1
