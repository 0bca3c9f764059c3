"""The Redis sink, over a server in memory and over redis-server: the same promises of both."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from actions.client_factories import Outside
from actions.sinks.commands import HBaseDelete, RedisCommand
from actions.sinks.redis.link import RealRedis, RedisLink, RedisWish
from actions.sinks.redis.options import RedisOptions
from actions.sinks.redis.sink import RedisSink
from actions.sinks.templates import as_bytes
from pyddmq.actions import Failed, RetryLater, Status, Unprocessable
from tests.conftest import need
from tests.unit.actions.sinks.memory_redis import MemoryRedis
from tests.unit.actions.sinks.real_redis import RedisServer
from tests.unit.actions.sinks.surroundings import FakeJob, SeenJob, bodies_by_turn, opened


@pytest.fixture(scope="module", autouse=True)
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer | None]:
    """redis-server, one for all tests here, where there is one; started before a test could end it."""
    if shutil.which("redis-server") is None:
        yield None
        return
    found = RedisServer(tmp_path_factory.mktemp("redis"))
    yield found
    found.kill()


@pytest.fixture
def server(started: RedisServer | None) -> RedisServer:
    """redis-server, or a skip."""
    need(started, "redis-server (apt install redis-server)")
    assert started is not None
    return started


class Ground:
    """A sink and its server, real or in memory."""

    def __init__(self, address: str, memory: MemoryRedis | None) -> None:
        self.address = address
        self.memory = memory

    def make(self, wish: RedisWish) -> RedisLink:
        return RealRedis(wish) if self.memory is None else self.memory

    def run(self, jobs: list[FakeJob], sink: Any = None, **options: Any) -> list[Status | Exception]:
        """Run jobs in one batch and return their answers."""
        sink = sink or self.sink(**options)

        async def all_of_it() -> list[Status | Exception]:
            answers = list(await sink.act_many(jobs))
            await sink.close()
            sink._servers.clear()
            return answers

        return asyncio.run(all_of_it())

    def sink(self, **options: Any) -> Any:
        return opened(RedisSink, {"hosts": [self.address], **options}, Outside(redis=self.make))

    def look(self, key: str) -> Any:
        """Value of a key."""
        if self.memory is not None:
            return asyncio.run(self.memory.look(key))
        raise NotImplementedError


class RealGround(Ground):
    """redis-server, empty."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server.address, None)
        self.client = server.client()
        self.client.flushall()

    def look(self, key: str) -> Any:
        kind = self.client.type(key)
        if kind == b"hash":
            return self.client.hgetall(key)
        if kind == b"list":
            return self.client.lrange(key, 0, -1)
        return self.client.get(key)


@pytest.fixture(params=["memory", "real"])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """Both, one after the other."""
    if request.param == "memory":
        yield Ground("127.0.0.1:1", MemoryRedis())
        return
    found = RealGround(request.getfixturevalue("server"))
    yield found
    found.client.close()


def asking(offset: int, *commands: tuple[Any, ...], **more: Any) -> FakeJob:
    """A message with commands that an action before gathered."""
    job = FakeJob(offset, **more)
    job.outgoing.commands += [RedisCommand(each[0], each[1:]) for each in commands]
    return job


def test_all_commands_of_ddmqs_scripts(ground: Ground) -> None:
    """set, del, hset, hmset, hdel and mset of one message, in order (R28, R62)."""
    job = asking(
        1,
        ("mset", "a", 1, "b", "2"),
        ("set", "c", b"\x00\xff"),
        ("del", "a"),
        ("hset", "h", "x", 1.5),
        ("hmset", "h", "y", "2", "z", "3"),
        ("hdel", "h", "z"),
    )

    assert ground.run([job]) == [Status.FINISH]
    assert [ground.look(key) for key in "abc"] == [None, b"2", b"\x00\xff"]
    assert ground.look("h") == {b"x": b"1.5", b"y": b"2"}


def test_batch_is_one_round_trip_with_an_answer_each(ground: Ground) -> None:
    """Only the message whose command is refused fails, with what the server says (W60)."""
    ground.run([asking(0, ("rpush", "list", "x"))])
    jobs = [
        asking(1, ("set", "a", "1")),
        asking(2, ("incr", "list")),
        asking(3, ("set", "b", "1"), ("hset", "list", "f", "v")),
        asking(4, ("set", "c", "1"), ("set", "d", "1")),
    ]
    trips = ground.memory.trips if ground.memory else 0

    answers = ground.run(jobs)

    assert [type(each) for each in answers] == [Status, Failed, Failed, Status]
    assert "WRONGTYPE" in str(answers[1])
    assert "HSET" in str(answers[2])
    assert ground.look("d") == b"1"
    if ground.memory:
        assert ground.memory.trips == trips + 1


@pytest.mark.parametrize("once", [False, True])
def test_large_messages_go_in_round_trips_that_have_time(once: bool) -> None:
    """A batch of 256 messages of megabytes is more than any server takes in one timeout, however often it is tried."""
    ground = Ground("127.0.0.1:1", MemoryRedis())
    assert ground.memory is not None
    ground.memory.bytes_max = 10 << 20
    jobs = [FakeJob(offset, b"x" * (3 << 20 if offset % 3 else 10), key=f"k{offset}") for offset in range(40)]
    command = ["APPEND", "${key}", "${body}"]

    assert ground.run(jobs, commands=[command], once=once) == [Status.FINISH] * 40
    assert len(ground.memory.data) == 40 * (1 + once)
    assert ground.memory.trips < 40


def test_templates_of_large_bodies_leave_the_loop_to_others() -> None:
    """Each value of a JSON body costs a parse of it, and a batch has up to 256 messages."""
    ground = Ground("127.0.0.1:1", MemoryRedis())
    jobs: list[FakeJob] = [
        SeenJob(offset, b'{"id": %d, "x": [%s0]}' % (offset, b"1," * 40_000)) for offset in range(50)
    ]
    sink = ground.sink(commands=[["SET", "k${$.id}", "${$.id}"]])

    answers, looked = asyncio.run(bodies_by_turn(sink.act_many(jobs)))
    assert answers == [Status.FINISH] * 50
    assert sum(looked) >= 50
    assert max(looked) <= 2
    assert ground.look("k49") == b"49"


def test_templates_make_commands_without_a_script(ground: Ground) -> None:
    """Commands of the options, with key, tag, body and JSON fields."""
    commands = [["SET", "order:${$.id}", "${body}"], ["HSET", "by:${tag}", "${key}", "${$.sum}$$"]]
    job = FakeJob(1, b'{"id": 7, "sum": 2.5}', key="k1", tag="new")

    assert ground.run([job], commands=commands) == [Status.FINISH]
    assert ground.look("order:7") == b'{"id": 7, "sum": 2.5}'
    assert ground.look("by:new") == {b"k1": b"2.5$"}


@pytest.mark.parametrize("once", [False, True])
def test_repeat_leaves_a_second_effect_only_without_once(ground: Ground, once: bool) -> None:
    """With `once` a message that comes again counts once, and goes on where it was refused."""
    sink = ground.sink(once=once)
    for _ in range(3):
        job = asking(5, ("incr", "n"), ("append", "s", "x"), ("rpush", "l", "e"))
        assert ground.run([job], sink) == [Status.FINISH]

    times = 1 if once else 3
    assert ground.look("n") == b"%d" % times
    assert ground.look("s") == b"x" * times
    assert ground.look("l") == [b"e"] * times


def test_once_goes_on_behind_the_command_that_was_refused(ground: Ground) -> None:
    """What had its effect before the refused one is not done again by the retry."""
    ground.run([asking(0, ("rpush", "bad", "x"))])
    sink = ground.sink(once=True)
    first = ground.run([asking(5, ("incr", "n"), ("incr", "bad"), ("incr", "m"))], sink)
    ground.run([asking(1, ("del", "bad"))], sink)
    second = ground.run([asking(5, ("incr", "n"), ("incr", "bad"), ("incr", "m"))], sink)

    assert [type(each) for each in first + second] == [Failed, Status]
    assert [ground.look(key) for key in ("n", "bad", "m")] == [b"1", b"1", b"1"]


def test_once_tells_messages_apart_by_their_store_time(ground: Ground) -> None:
    """Offsets begin again in a new data directory: another message of the same offset counts."""
    sink = ground.sink(once=True)
    ground.run([asking(5, ("incr", "n"))], sink)
    ground.run([asking(5, ("incr", "n"), stored_ms=1_800_000_000_000)], sink)

    assert ground.look("n") == b"2"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (RedisCommand("FLUSHALL", ()), "not a command that a message may use"),
        (RedisCommand("set", ("a",)), "SET cannot have 1 arguments"),
        (RedisCommand("hset", ("a", "b")), "HSET cannot have 2 arguments"),
        (RedisCommand("hset", ("a", "b", "c", "d")), "HSET cannot have 4 arguments"),
        (RedisCommand("mset", ("a", "b", "c")), "MSET cannot have 3 arguments"),
        (RedisCommand("set", ("a", ["b"])), "argument of type list"),  # type: ignore[arg-type]
        (RedisCommand("set", ("a", True)), "argument of type bool"),
        (HBaseDelete("t", "r"), "HBaseDelete is not a command of Redis"),
    ],
)
def test_message_with_a_wrong_command_is_unprocessable(command: object, text: str) -> None:
    """Nothing of it is sent, and the others of its batch go on."""
    memory = MemoryRedis()
    job, other = FakeJob(1), asking(2, ("set", "b", "1"))
    job.outgoing.commands += [RedisCommand("set", ("first", "1")), command]

    answers = Ground("h:1", memory).run([job, other])

    assert isinstance(answers[0], Unprocessable)
    assert text in str(answers[0])
    assert answers[1] is Status.FINISH
    assert memory.data == {b"b": b"1"}


def test_text_that_is_half_of_a_character_costs_no_other_message_its_batch(ground: Ground) -> None:
    """As a script makes of bytes that are no UTF-8: it is written as templates write it."""
    odd = b"a\xff".decode("utf-8", "surrogateescape")

    answers = ground.run([asking(1, ("set", "a", odd)), asking(2, ("set", "b", "1"))])

    assert answers == [Status.FINISH] * 2
    assert ground.look("a") == as_bytes(odd)
    assert ground.look("b") == b"1"


def test_message_without_a_command_is_dead_lettered_or_consumed_as_chosen() -> None:
    """Never a null dereference, and never silently (W60)."""
    ground = Ground("h:1", MemoryRedis())
    [answer] = ground.run([FakeJob(1)])
    assert isinstance(answer, Unprocessable)
    assert "no command" in str(answer)

    sink = ground.sink(onEmpty="finish")
    assert ground.run([FakeJob(1)], sink) == [Status.FINISH]
    assert sink.context.counts["without_command"] == 1


@pytest.mark.parametrize(("choice", "left"), [("fail", {}), ("skip", {b"b": b"1"}), ("null", {b"a": b"", b"b": b"1"})])
def test_missing_field_is_handled_as_configured(choice: str, left: dict[bytes, bytes]) -> None:
    """fail, skip or null; the two others are counted."""
    ground = Ground("h:1", MemoryRedis())
    sink = ground.sink(commands=[["SET", "a", "${$.no}"], ["SET", "b", "1"]], onMissing=choice)

    [answer] = ground.run([FakeJob(1, b"{}")], sink)

    assert ground.memory is not None
    assert ground.memory.data == left
    assert (answer is Status.FINISH) == (choice != "fail")
    assert sink.context.counts["field_missing"] == (choice != "fail")


def test_server_that_is_away_is_waited_for_without_spinning_and_without_counting() -> None:
    """Messages come again after a growing wait; meanwhile nothing is tried (RetryLater); then all goes on."""
    memory = MemoryRedis()
    sink = Ground("h:1", memory).sink()
    memory.away = True

    async def tries() -> list[Status | Exception]:
        answers = []
        for step in (0.0, 0.0, 0.2, 0.4, 0.0):
            sink.context.ahead += step
            answers += await sink.act_many([asking(1, ("set", "a", "1"))])
        memory.away = False
        sink.context.ahead += 1.0
        return [*answers, *await sink.act_many([asking(1, ("set", "a", "1"))])]

    answers = asyncio.run(tries())

    waits = [each.delay_ms if isinstance(each, RetryLater) else each for each in answers]
    assert waits[0] == 200
    assert waits[2] == 400
    assert waits[3] == 800
    assert answers[-1] is Status.FINISH
    assert memory.trips == 4, "those in between were answered without a try"
    assert "connection refused" in str(answers[1])
    assert sink.context.counts["server_away"] == 3
    assert sink.context.counts["server_back"] == 1


def test_one_host_per_redis_key_and_others_go_on_when_one_is_away() -> None:
    """A key is always at the same server (W60); the keys of a server that is away wait, no others."""
    servers = {1: MemoryRedis(), 2: MemoryRedis(), 3: MemoryRedis()}
    outside = Outside(redis=lambda wish: servers[wish.port])
    sink = opened(RedisSink, {"hosts": ["h:1", "h:2", "h:3"]}, outside)
    jobs = [asking(n, ("set", f"k{n % 30}", n)) for n in range(60)]

    asyncio.run(sink.act_many(jobs))
    found = [key for server in servers.values() for key in server.data]
    assert len(found) == len(set(found)) == 30
    assert all(server.data for server in servers.values())
    servers[2].away = True
    answers = asyncio.run(sink.act_many(jobs))

    late = {
        job.outgoing.commands[0].args[0] for job, each in zip(jobs, answers, strict=True) if each is not Status.FINISH
    }
    assert {key.encode() for key in late} == set(servers[2].data)


def test_lost_round_trip_changes_nothing_for_messages_that_come_again() -> None:
    """What was carried out and whose answer was lost comes again: `once` leaves no second effect."""
    for lose in range(4):
        memory = MemoryRedis()
        memory.lose = lose
        answers = asyncio.run(_twice(Ground("h:1", memory).sink(once=True)))
        assert all(isinstance(each, RetryLater) for each in answers[:3])
        assert answers[3:] == [Status.FINISH] * 3
        assert memory.data[b"n"] == b"3", lose


async def _twice(sink: Any) -> list[Status | Exception]:
    first = await sink.act_many([asking(n, ("incr", "n")) for n in range(3)])
    sink.context.ahead += 60
    return [*first, *await sink.act_many([asking(n, ("incr", "n")) for n in range(3)])]


@pytest.mark.parametrize("once", [False, True])
def test_server_without_memory_is_waited_for(server: RedisServer, once: bool) -> None:
    """It has no room for one command or several: that says nothing of the message, with a marker or without."""
    ground = RealGround(server)
    ground.client.config_set("maxmemory", 1)
    try:
        for commands in ([("incr", "n")], [("incr", "n"), ("rpush", "l", "x")]):
            [answer] = ground.run([asking(1, *commands)], once=once)
            assert isinstance(answer, RetryLater), answer
            assert "OOM" in str(answer)
    finally:
        ground.client.config_set("maxmemory", 0)
        ground.client.close()


def test_wrong_password_is_waited_out_and_not_shown(server: RedisServer, tmp_path: Path) -> None:
    """It says nothing of the message: it comes again; the reason has the server's text, and no secret."""
    secret = tmp_path / "password"
    secret.write_text("no-such-password\n")
    owner = server.client()
    owner.config_set("requirepass", "right")
    ground = Ground(server.address, None)
    try:
        [answer] = ground.run([asking(1, ("set", "a", "1"))], password={"file": str(secret)})
        secret.write_text("right\n")
        right = ground.run([asking(1, ("set", "a", "1"))], password={"file": str(secret)})
    finally:
        owner.config_set("requirepass", "")
        owner.close()

    assert isinstance(answer, RetryLater)
    assert "password" in str(answer)
    assert "no-such-password" not in str(answer)
    assert right == [Status.FINISH]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "hosts"),
        ({"hosts": []}, "at least 1"),
        ({"hosts": ["localhost"]}, "host:port"),
        ({"hosts": ["h:1"], "commands": [["FLUSHALL"]]}, "not a command that a message may use"),
        ({"hosts": ["h:1"], "commands": [["SET", "a"]]}, "SET cannot have 1 arguments"),
        ({"hosts": ["h:1"], "commands": [["SET", "a", "${nothing}"]]}, "is unknown; use"),
        ({"hosts": ["h:1"], "commands": [["SET", "a", "5$"]]}, "write $$"),
        ({"hosts": ["h:1"], "commands": [["SET", "a", "${$.[}"]]}, "not a valid JSON path"),
        ({"hosts": ["h:1"], "password": "abc"}, "secrets are not allowed in this file"),
        ({"hosts": ["h:1"], "jedisPool": {}}, "jedisPool is DDMQ's"),
        ({"hosts": ["h:1"], "caFile": "x"}, "write `tls: true`"),
    ],
)
def test_wrong_options_say_what_is_right(options: dict[str, Any], text: str) -> None:
    """Each is an error of the configuration."""
    with pytest.raises(ValidationError) as found:
        RedisOptions.model_validate(options)

    assert text in str(found.value)
    assert "abc" not in str(found.value.errors(include_input=False))
