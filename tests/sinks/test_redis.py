"""Every command that a message may ask Redis for, at a real server; and a server behind TLS."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actions.client_factories import Outside
from actions.sinks.commands import RedisCommand
from actions.sinks.redis.names import KINDS
from actions.sinks.redis.sink import RedisSink
from pyddmq.actions import RetryLater, Status
from tests.conftest import need_program
from tests.patient import quiet_ports
from tests.unit.actions.sinks.real_redis import RedisServer
from tests.unit.actions.sinks.surroundings import FakeJob, opened

pytestmark = pytest.mark.long

Words = tuple[Any, ...]

COMMANDS: tuple[tuple[list[Words], Words, Words, Any], ...] = (
    # What is there before, the command, the question, and its answer.
    ([], ("SET", "a", "1", "EX", 100), ("GET", "a"), b"1"),
    ([("SET", "a", "1")], ("DEL", "a"), ("EXISTS", "a"), 0),
    ([], ("HSET", "h", "f", b"\x00\xff"), ("HGET", "h", "f"), b"\x00\xff"),
    ([], ("HMSET", "h", "f", 1, "g", 2), ("HMGET", "h", "f", "g"), [b"1", b"2"]),
    ([("HSET", "h", "f", "1")], ("HDEL", "h", "f"), ("EXISTS", "h"), 0),
    ([], ("MSET", "a", "1", "b", "2"), ("MGET", "a", "b"), [b"1", b"2"]),
    ([], ("SETEX", "a", 100, "1"), ("GET", "a"), b"1"),
    ([], ("PSETEX", "a", 100_000, "1"), ("GET", "a"), b"1"),
    ([("SET", "a", "0")], ("SETNX", "a", "1"), ("GET", "a"), b"0"),
    ([("SET", "a", "abc")], ("SETRANGE", "a", 1, "x"), ("GET", "a"), b"axc"),
    ([], ("SETBIT", "a", 7, 1), ("GET", "a"), b"\x01"),
    ([("SET", "a", "x")], ("APPEND", "a", "y"), ("GET", "a"), b"xy"),
    ([("SET", "a", "4")], ("INCR", "a"), ("GET", "a"), b"5"),
    ([("SET", "a", "4")], ("DECR", "a"), ("GET", "a"), b"3"),
    ([("SET", "a", "4")], ("INCRBY", "a", 10), ("GET", "a"), b"14"),
    ([("SET", "a", "4")], ("DECRBY", "a", 10), ("GET", "a"), b"-6"),
    ([("SET", "a", "4")], ("INCRBYFLOAT", "a", 0.5), ("GET", "a"), b"4.5"),
    ([("SET", "a", "1")], ("UNLINK", "a"), ("EXISTS", "a"), 0),
    ([("SET", "a", "1")], ("EXPIRE", "a", 0), ("EXISTS", "a"), 0),
    ([("SET", "a", "1")], ("PEXPIRE", "a", 0), ("EXISTS", "a"), 0),
    ([("SET", "a", "1")], ("EXPIREAT", "a", 1), ("EXISTS", "a"), 0),
    ([("SET", "a", "1")], ("PEXPIREAT", "a", 1), ("EXISTS", "a"), 0),
    ([("SET", "a", "1", "EX", 100)], ("PERSIST", "a"), ("TTL", "a"), -1),
    ([("HSET", "h", "f", "0")], ("HSETNX", "h", "f", "1"), ("HGET", "h", "f"), b"0"),
    ([("HSET", "h", "f", "4")], ("HINCRBY", "h", "f", 3), ("HGET", "h", "f"), b"7"),
    ([("HSET", "h", "f", "4")], ("HINCRBYFLOAT", "h", "f", "0.5"), ("HGET", "h", "f"), b"4.5"),
    ([], ("SADD", "s", "x", "y"), ("SCARD", "s"), 2),
    ([("SADD", "s", "x", "y")], ("SREM", "s", "x"), ("SCARD", "s"), 1),
    ([], ("ZADD", "z", 1, "x", 2, "y"), ("ZCARD", "z"), 2),
    ([("ZADD", "z", 1, "x")], ("ZREM", "z", "x"), ("ZCARD", "z"), 0),
    ([("ZADD", "z", 1, "x", 2, "y")], ("ZREMRANGEBYSCORE", "z", 0, 1), ("ZRANGE", "z", 0, -1), [b"y"]),
    ([("ZADD", "z", 1, "x", 2, "y")], ("ZREMRANGEBYRANK", "z", 0, 0), ("ZRANGE", "z", 0, -1), [b"y"]),
    ([("ZADD", "z", 1, "x")], ("ZINCRBY", "z", 5, "x"), ("ZRANK", "z", "x"), 0),
    ([("RPUSH", "l", "x")], ("LPUSH", "l", "y"), ("LRANGE", "l", 0, -1), [b"y", b"x"]),
    ([("RPUSH", "l", "x")], ("RPUSH", "l", "y"), ("LRANGE", "l", 0, -1), [b"x", b"y"]),
    ([], ("LPUSHX", "l", "y"), ("EXISTS", "l"), 0),
    ([("RPUSH", "l", "x")], ("RPUSHX", "l", "y"), ("LRANGE", "l", 0, -1), [b"x", b"y"]),
    ([("RPUSH", "l", "x", "y")], ("LPOP", "l"), ("LRANGE", "l", 0, -1), [b"y"]),
    ([("RPUSH", "l", "x", "y")], ("RPOP", "l"), ("LRANGE", "l", 0, -1), [b"x"]),
    ([("RPUSH", "l", "x", "y", "x")], ("LREM", "l", 1, "x"), ("LRANGE", "l", 0, -1), [b"y", b"x"]),
    ([("RPUSH", "l", "x", "y", "z")], ("LTRIM", "l", 0, 1), ("LRANGE", "l", 0, -1), [b"x", b"y"]),
    ([("RPUSH", "l", "x", "y")], ("LSET", "l", 1, "z"), ("LRANGE", "l", 0, -1), [b"x", b"z"]),
    ([], ("PFADD", "p", "x", "y"), ("PFCOUNT", "p"), 2),
    ([], ("GEOADD", "g", 13.4, 52.5, "x"), ("ZCARD", "g"), 1),
    ([], ("XADD", "x", "*", "f", "v"), ("XLEN", "x"), 1),
    ([("XADD", "x", "1-1", "f", "v"), ("XADD", "x", "1-2", "f", "v")], ("XTRIM", "x", "MAXLEN", 1), ("XLEN", "x"), 1),
    ([], ("PUBLISH", "channel", "hello"), ("EXISTS", "channel"), 0),
    ([("SET", "a", "1")], ("RENAME", "a", "b"), ("GET", "b"), b"1"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """redis-server."""
    found = RedisServer(tmp_path_factory.mktemp("redis"))
    yield found
    found.kill()


def answers_of(sink: Any, jobs: list[FakeJob]) -> list[Any]:
    """Carry out one batch."""

    async def all_of_it() -> list[Any]:
        answers = list(await sink.act_many(jobs))
        await sink.close()
        return answers

    return asyncio.run(all_of_it())


def test_the_table_has_every_command() -> None:
    """Nothing that a message may ask for is left out below."""
    assert sorted(command[0] for _, command, _, _ in COMMANDS) == sorted(KINDS)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize(("before", "command", "question", "answer"), COMMANDS, ids=[each[1][0] for each in COMMANDS])
def test_command_has_its_effect(
    server: RedisServer, *, before: list[Words], command: Words, question: Words, answer: Any, once: bool
) -> None:
    """Alone and with a marker; one that is not idempotent has none a second time with `once`."""
    with server.client() as client:
        client.flushall()
        for each in before:
            client.execute_command(*each)
        for _ in range(2 if once and not KINDS[command[0]].idempotent else 1):
            job = FakeJob(1)
            job.outgoing.commands.append(RedisCommand(command[0], command[1:]))
            sink = opened(RedisSink, {"hosts": [server.address], "once": once}, Outside())
            assert answers_of(sink, [job]) == [Status.FINISH]
        found = client.execute_command(*question)
    assert (int(found) if isinstance(found, bool) else found) == answer


def made_authority(folder: Path, name: str) -> tuple[Path, Path]:
    """Make an authority by openssl; returns certificate and key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    openssl("req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", key, "-out", certificate)
    return certificate, key


def openssl(*words: object) -> None:
    """Run openssl on small, quick keys."""
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"] if words[0] == "req" else []
    command = [need_program("openssl", "apt install openssl"), *map(str, words), *new]
    subprocess.run(command, check=True, capture_output=True)


def test_server_behind_tls_is_checked_by_its_authority(tmp_path: Path) -> None:
    """One that another authority vouches for is nobody to write to: waited for, with the reason."""
    authority, authority_key = made_authority(tmp_path, "authority")
    stranger, _ = made_authority(tmp_path, "stranger")
    key, wish, certificate, facts = (tmp_path / name for name in ("key", "wish", "certificate", "facts"))
    facts.write_text("subjectAltName=IP:127.0.0.1\n")
    openssl("req", "-nodes", "-subj", "/CN=redis", "-keyout", key, "-out", wish)
    signed = ["-CA", authority, "-CAkey", authority_key, "-CAcreateserial", "-days", "2", "-extfile", facts]
    openssl("x509", "-req", "-in", wish, "-out", certificate, *signed)
    [port] = quiet_ports(1)
    options = ["--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key]
    options += ["--tls-ca-cert-file", authority, "--tls-auth-clients", "no"]
    server = RedisServer(tmp_path / "redis", *map(str, options))

    def reported(ca_file: Path) -> Any:
        wanted = {"hosts": [f"127.0.0.1:{port}"], "tls": True, "caFile": str(ca_file)}
        job = FakeJob(1)
        job.outgoing.commands.append(RedisCommand("SET", ("a", "1")))
        return answers_of(opened(RedisSink, wanted, Outside()), [job])[0]

    def all_of(ca_file: Path, between: Callable[[], object]) -> list[Any]:
        wanted = {"hosts": [f"127.0.0.1:{port}"], "tls": True, "caFile": str(ca_file), "commands": [["SET", "a", "2"]]}
        sink = opened(RedisSink, wanted, Outside())

        async def run() -> list[Any]:
            first = await sink.act_many([FakeJob(1)])
            between()
            sink.context.ahead += 60
            second = await sink.act_many([FakeJob(1)])
            await sink.close()
            return [type(each) for each in (*first, *second)]

        return asyncio.run(run())

    refused = reported(stranger)
    assert isinstance(refused, RetryLater)
    assert "certificate verify failed" in str(refused).lower()
    with server.client() as client:
        assert client.get("a") is None
        assert reported(authority) is Status.FINISH
        assert client.get("a") == b"1"
        # A file that is replaced is read with the next connection, without a reload.
        rotated = tmp_path / "rotated"
        rotated.write_bytes(stranger.read_bytes())
        assert all_of(rotated, lambda: rotated.write_bytes(authority.read_bytes())) == [RetryLater, Status]
    server.kill()
