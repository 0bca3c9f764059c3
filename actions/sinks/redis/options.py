"""Options of the Redis sink."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, model_validator

from actions.sinks.redis.names import kind_of
from actions.sinks.templates import Template
from conf.base import Model, Reload, setting
from conf.secrets import Secret, masked

_ADDRESS = re.compile(r"[^@/]+:([0-9]{1,5})", re.DOTALL)


def check_address(text: str) -> str:
    """Return `host:port` as it is. Raises ValueError: it is none."""
    found = _ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found[1]) < 65_536:
        raise ValueError(f"{masked(text)!r} is not a valid address; write host:port, such as 127.0.0.1:6379")
    return text


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of an address; an IPv6 one is in brackets."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _check_command(words: list[str]) -> list[str]:
    if not words:
        raise ValueError("a command needs a name, such as [SET, 'order:${key}', '${body}']")
    kind_of(words[0], len(words) - 1)
    for word in words[1:]:
        Template(word)
    return words


Address = Annotated[str, AfterValidator(check_address)]
CommandTemplate = Annotated[list[str], AfterValidator(_check_command)]


class RedisOptions(Model):
    """`options: {Redis: {...}}`; fields of DDMQ's `redisConfig` keep their names (R62)."""

    hosts: list[Address] = setting(
        ...,
        "Servers, `host:port`. Each Redis key is mapped to one of them by its name (W60).",
        reload=Reload.GENERATION,
        min_length=1,
        max_length=64,
    )
    cluster: bool = setting(
        False,
        "Whether `hosts` are nodes of one Redis Cluster: each key is sent to the node with its slot. All "
        "keys of a message must be in one slot.",
        reload=Reload.GENERATION,
    )
    username: str | None = setting(None, "User, for servers with several users.", reload=Reload.GENERATION)
    password: Secret | None = setting(
        None, "Password: `{file: PATH}` or `{env: NAME}`.", reload=Reload.GENERATION, absent="none"
    )
    database: int = setting(0, "Number of the database.", reload=Reload.GENERATION, ge=0, le=65_535)
    tls: bool = setting(False, "Whether to use TLS; the server's certificate is verified.", reload=Reload.GENERATION)
    ca_file: str | None = setting(
        None,
        "PEM file of the CAs that verify the servers.",
        reload=Reload.GENERATION,
        absent="the system's",
    )
    timeout: int = setting(
        5_000,
        "Timeout in milliseconds for connecting, and for a round trip.",
        reload=Reload.GENERATION,
        ge=1,
        le=30_000,
    )
    commands: list[CommandTemplate] = setting(
        [],
        "Commands for each message, in order, before those of earlier actions: lists of name and "
        "arguments, with `${key}`, `${tag}`, `${body}`, `${property:NAME}`, `${$.json.path}` and other "
        "placeholders of docs/sinks.md.",
        reload=Reload.GENERATION,
        max_length=100,
    )
    deletes: list[CommandTemplate] | None = setting(
        None,
        "Commands for a message whose value is null (a delete in Kafka), in place of `commands`.",
        reload=Reload.GENERATION,
        absent="DEL and HDEL of the keys and fields that SET, MSET, HSET and similar commands of `commands` write",
        max_length=100,
    )
    on_missing: Literal["fail", "skip", "null"] = setting(
        "fail",
        "When a message lacks a field that a command uses: `fail` dead-letters it; `skip` omits the "
        "command; `null` inserts an empty text.",
        reload=Reload.GENERATION,
    )
    on_empty: Literal["fail", "finish"] = setting(
        "fail",
        "When a message has no command: `fail` dead-letters it; `finish` consumes and counts it.",
        reload=Reload.GENERATION,
    )
    once: bool = setting(
        False,
        "Whether repeating a message has no second effect, also for commands that are not idempotent, such "
        "as INCR: one script writes a marker key with them.",
        reload=Reload.GENERATION,
    )
    once_seconds: int = setting(
        86_400, "Seconds until markers of `once` expire.", reload=Reload.GENERATION, ge=60, le=31_536_000
    )

    @model_validator(mode="before")
    @classmethod
    def _without_pool(cls, value: Any) -> Any:
        if isinstance(value, dict) and "jedisPool" in value:
            raise ValueError("jedisPool is DDMQ's pool size, and this action has one connection per batch; remove it")
        return value

    @model_validator(mode="after")
    def _check(self) -> RedisOptions:
        if self.ca_file is not None and not self.tls:
            raise ValueError("caFile is only for TLS; write `tls: true`, or remove it")
        if self.cluster and self.once:
            raise ValueError("once does not work on a Redis Cluster: its script uses keys of several slots; remove it")
        if self.cluster and self.database:
            raise ValueError("a Redis Cluster only has database 0; remove database")
        return self
