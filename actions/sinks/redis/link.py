"""What the sink needs of Redis servers and clusters, and the real ones over redis-py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from actions.sinks.faults import ConnectionStale, ServerAway
from actions.sinks.redis.names import Words
from conf.secrets import Secret, SecretUnreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisWish:
    """Which server, and how to reach it; the password is read when a connection is made."""

    host: str
    port: int
    username: str | None
    password: Secret | None
    database: int
    tls: bool
    ca_file: str | None
    timeout_seconds: float


class CommandRefused(Exception):
    """The server refuses a command; the text is its own."""


class RedisLink(Protocol):
    """Connections to one server."""

    async def round_trip(self, commands: Sequence[Words]) -> list[Any]:
        """Send all commands at once and return an answer for each, `CommandRefused` of a refused one, also in lists.

        Raises:
            ServerAway: It cannot be reached, or did not answer in time: any number of them may have been carried out.
            ConnectionStale: It refused the connection; no command had an effect.
        """

    async def renew(self) -> None:
        """Replace the connections: the next round trip looks the name up, and reads the password, again."""

    async def close(self) -> None:
        """End all connections."""


class RedisMap(Protocol):
    """Which server of a Redis Cluster has a key."""

    async def server_of(self, key: bytes) -> str:
        """Return the address of a key's server. Raises ServerAway: no server of the cluster says."""

    async def renew(self) -> None:
        """Forget the map: the next call reads it again."""

    async def close(self) -> None:
        """End all connections."""


class RealRedis:
    """redis-py; each round trip has a connection of its own from a small pool, which every failure replaces."""

    def __init__(self, wish: RedisWish) -> None:
        self._wish = wish
        self._pool: Any = None

    def _connect(self) -> Any:
        """Make the pool, with the secret and certificates of this moment. Raises ServerAway: one cannot be read."""
        from redis.asyncio import Redis

        wish = self._wish
        return Redis(
            host=wish.host, port=wish.port, db=wish.database, max_connections=8, **_given(wish)
        ).connection_pool

    async def round_trip(self, commands: Sequence[Words]) -> list[Any]:
        """Send them; see `RedisLink`."""
        from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError

        pool = self._pool = self._pool or self._connect()
        try:
            connection = await pool.get_connection()
        except (TimeoutError, RedisError, OSError) as error:
            await self._drop(pool)
            if isinstance(error, AuthenticationError):
                raise ConnectionStale(_said(error)) from error
            raise ServerAway(_said(error)) from error
        answers: list[Any] = []
        whole = False
        try:
            await connection.send_packed_command(connection.pack_commands(commands))
            for _ in commands:
                answers.append(await self._answer(connection))
            whole = True
            return answers
        except (TimeoutError, RedisError, OSError) as error:
            await self._drop(pool)
            if not answers and isinstance(error, AuthenticationError | BusyLoadingError):
                # The server refuses the connection, so it carried out none of the commands.
                raise ConnectionStale(_said(error)) from error
            raise ServerAway(_said(error)) from error
        finally:
            if not whole or pool is not self._pool:
                # Unread answers would be taken for those of the next round trip.
                await connection.disconnect(nowait=True)
            await pool.release(connection)

    @staticmethod
    async def _answer(connection: Any) -> Any:
        from redis.exceptions import ResponseError

        try:
            return _refusals(await connection.read_response())
        except ResponseError as error:
            return _refused(error)

    async def renew(self) -> None:
        """Replace the connections; see `RedisLink`."""
        if self._pool is not None:
            await self._drop(self._pool)

    async def close(self) -> None:
        """End all connections."""
        if self._pool is not None:
            await self._pool.aclose()

    async def _drop(self, pool: Any) -> None:
        """Close a pool's idle connections; those in use are closed at the end of their round trips."""
        if self._pool is pool:
            self._pool = None
        await pool.disconnect(inuse_connections=False)


class RealRedisMap:
    """redis-py's `RedisCluster`, for its map of slots alone; messages are sent over `RedisLink`."""

    def __init__(self, wishes: Sequence[RedisWish]) -> None:
        self._wishes = wishes
        self._cluster: Any = None

    def _connect(self) -> Any:
        from redis.asyncio.cluster import ClusterNode, RedisCluster

        given = _given(self._wishes[0])
        nodes = [ClusterNode(wish.host, wish.port, **given) for wish in self._wishes]
        return RedisCluster(startup_nodes=nodes, require_full_coverage=False, **given)

    async def server_of(self, key: bytes) -> str:
        """Return a key's server; see `RedisMap`."""
        from redis.exceptions import RedisClusterException, RedisError

        cluster = self._cluster = self._cluster or self._connect()
        try:
            node = (await cluster.initialize()).get_node_from_key(key)
        except (TimeoutError, RedisError, RedisClusterException, OSError) as error:
            await self.renew()
            raise ServerAway(_said(error)) from error
        return f"{node.host}:{node.port}"

    async def renew(self) -> None:
        """Forget the map; see `RedisMap`."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.aclose()

    async def close(self) -> None:
        """End all connections."""
        await self.renew()


def _given(wish: RedisWish) -> dict[str, Any]:
    """Return what servers and clusters are connected to with. Raises ServerAway: the password cannot be read."""
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    try:
        password = None if wish.password is None else wish.password.read()
    except SecretUnreadable as error:
        raise ServerAway(str(error)) from error
    given: dict[str, Any] = {
        "username": wish.username,
        "password": password,
        "socket_timeout": wish.timeout_seconds,
        "socket_connect_timeout": wish.timeout_seconds,
        # The library does not send a lost round trip again: its commands may have had their effect.
        "retry": Retry(NoBackoff(), 0),
    }
    return {**given, "ssl": True, "ssl_ca_certs": wish.ca_file} if wish.tls else given


def _refusals(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_refusals(each) for each in answer]
    return _refused(answer) if isinstance(answer, Exception) else answer


_CODES = {"OutOfMemoryError": "OOM", "ReadOnlyError": "READONLY", "MasterDownError": "MASTERDOWN", "TryAgainError":
          "TRYAGAIN", "ClusterDownError": "CLUSTERDOWN", "NoPermissionError": "NOPERM", "MovedError": "MOVED",
          "AskError": "ASK", "ClusterCrossSlotError": "CROSSSLOT", "ExecAbortError": "EXECABORT", "NoScriptError":
          "NOSCRIPT"}  # fmt: skip
"""Refusals whose code redis-py takes off the text, by the class that it makes of them instead."""


def _refused(error: Exception) -> CommandRefused:
    """Return a refusal in the server's own words."""
    code, text = _CODES.get(type(error).__name__), str(error)
    return CommandRefused(text if code is None or text.startswith(code) else f"{code} {text}")


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
