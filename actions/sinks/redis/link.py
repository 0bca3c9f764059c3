"""What the sink needs of one Redis server, and the real one over redis-py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from actions.sinks.away import ServerAway
from actions.sinks.redis.names import Words


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisWish:
    """Which server, and how to reach it; the password is not in its `repr`."""

    host: str
    port: int
    username: str | None
    password: Secretive
    database: int
    tls: bool
    ca_file: str | None
    timeout_seconds: float


class Secretive(str):
    """A text that does not show itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "***"


class Refused(Exception):
    """The server refuses a command; the text is its own."""


class RedisLink(Protocol):
    """Connections to one server."""

    async def round_trip(self, commands: Sequence[Words]) -> list[Any]:
        """Send all commands at once and return an answer for each; a refused one's is `Refused`, also inside lists.

        Raises:
            ServerAway: It cannot be reached, or did not answer in time: any number of them may have been carried out.
        """
        ...

    async def close(self) -> None:
        """End all connections."""
        ...


class RealRedis:
    """redis-py; each round trip has a connection of its own from a small pool."""

    def __init__(self, wish: RedisWish) -> None:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        tls: dict[str, Any] = {"ssl": True, "ssl_ca_certs": wish.ca_file} if wish.tls else {}
        self._client = Redis(
            host=wish.host,
            port=wish.port,
            db=wish.database,
            username=wish.username,
            password=str(wish.password) or None,
            socket_timeout=wish.timeout_seconds,
            socket_connect_timeout=wish.timeout_seconds,
            max_connections=8,
            # A round trip that is sent again by the library would be a second effect that nobody asked for.
            retry=Retry(NoBackoff(), 0),
            **tls,
        )
        self._pool: Any = self._client.connection_pool

    async def round_trip(self, commands: Sequence[Words]) -> list[Any]:
        """Send them; see `RedisLink`."""
        from redis.exceptions import RedisError

        try:
            connection = await self._pool.get_connection()
        except (TimeoutError, RedisError, OSError) as error:
            raise ServerAway(_said(error)) from error
        whole = False
        try:
            await connection.send_packed_command(connection.pack_commands(commands))
            answers = [await self._answer(connection) for _ in commands]
            whole = True
            return answers
        except (TimeoutError, RedisError, OSError) as error:
            raise ServerAway(_said(error)) from error
        finally:
            if not whole:
                # Answers that nobody read would be taken for those of the next round trip.
                await connection.disconnect(nowait=True)
            await self._pool.release(connection)

    @staticmethod
    async def _answer(connection: Any) -> Any:
        from redis.exceptions import ResponseError

        try:
            return _refusals(await connection.read_response())
        except ResponseError as error:
            return _refused(error)

    async def close(self) -> None:
        """End all connections."""
        await self._client.aclose()


def _refusals(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_refusals(each) for each in answer]
    return _refused(answer) if isinstance(answer, Exception) else answer


_CODES = {"OutOfMemoryError": "OOM", "ReadOnlyError": "READONLY", "MasterDownError": "MASTERDOWN", "TryAgainError":
          "TRYAGAIN", "ClusterDownError": "CLUSTERDOWN", "NoPermissionError": "NOPERM"}  # fmt: skip
"""Refusals whose code redis-py takes off the text, by the class that it makes of them instead."""


def _refused(error: Exception) -> Refused:
    """Return a refusal in the server's own words."""
    code, text = _CODES.get(type(error).__name__), str(error)
    return Refused(text if code is None or text.startswith(code) else f"{code} {text}")


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
