"""A Redis server in memory, as far as the sink's commands go; held against the real one by the contract test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actions.sinks.faults import ServerAway
from actions.sinks.redis.link import CommandRefused
from actions.sinks.redis.names import Words
from actions.sinks.redis.sink import SCRIPT_SUM

WRONG = "WRONGTYPE Operation against a key holding the wrong kind of value"


def _raw(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class MemoryRedis:
    """One server; `link` connects to it.

    Attributes:
        trips: How many round trips there were.
        away: It does not answer.
        lose: The next round trip is carried out up to so many commands, and then lost.
        renewed: How often its connections were renewed.
        bytes_max: What it takes before the time for a round trip is over; None: anything.
    """

    def __init__(self) -> None:
        self.data: dict[bytes, Any] = {}
        self.trips = 0
        self.away = False
        self.lose: int | None = None
        self.closed = self.renewed = 0
        self.bytes_max: int | None = None

    async def round_trip(self, commands: Sequence[Words]) -> list[Any]:
        """As `RedisLink`."""
        self.trips += 1
        if self.away:
            raise ServerAway("connection refused")
        if self.bytes_max is not None and sum(len(_raw(word)) for words in commands for word in words) > self.bytes_max:
            raise ServerAway("Timeout writing to socket")
        lose, self.lose = self.lose, None
        answers: list[Any] = []
        queued: list[Words] | None = None
        for number, command in enumerate(commands):
            if number == lose:
                raise ServerAway("connection lost")
            if command[0] == "MULTI":
                queued = []
                answers.append(b"OK")
            elif command[0] == "EXEC":
                assert queued is not None
                answers.append([self._one(each) for each in queued])
                queued = None
            elif queued is not None:
                queued.append(command)
                answers.append(b"QUEUED")
            else:
                answers.append(self._one(command))
        if lose is not None:
            raise ServerAway("connection lost")
        return answers

    async def renew(self) -> None:
        """As `RedisLink`."""
        self.renewed += 1

    async def close(self) -> None:
        """As `RedisLink`."""
        self.closed += 1

    def _one(self, command: Words) -> Any:
        try:
            return self._run(str(command[0]), [_raw(each) for each in command[1:]])
        except CommandRefused as error:
            return error

    def _run(self, name: str, args: list[bytes]) -> Any:
        data = self.data
        if name == "SCRIPT":
            return SCRIPT_SUM.encode()
        if name == "EVALSHA":
            return self._once(args)
        key = args[0]
        if name in ("SET", "SETEX"):
            data[key] = args[-1] if name == "SETEX" else args[1]
        elif name == "GET":
            return self._text(key)
        elif name == "MSET":
            data.update(zip(args[::2], args[1::2], strict=True))
        elif name == "DEL":
            return sum(data.pop(each, None) is not None for each in args)
        elif name in ("HSET", "HMSET"):
            self._of(key, dict).update(zip(args[1::2], args[2::2], strict=True))
        elif name == "HDEL":
            return sum(self._of(key, dict).pop(each, None) is not None for each in args[1:])
        elif name in ("INCR", "INCRBY"):
            amount = int(args[1]) if name == "INCRBY" else 1
            try:
                data[key] = b"%d" % (int(self._text(key) or b"0") + amount)
            except ValueError:
                raise CommandRefused("ERR value is not an integer or out of range") from None
        elif name == "APPEND":
            data[key] = (self._text(key) or b"") + args[1]
        elif name == "RPUSH":
            self._of(key, list).extend(args[1:])
        else:
            raise AssertionError(f"{name} is not built here")
        return b"OK"

    def _text(self, key: bytes) -> bytes | None:
        found = self.data.get(key)
        if found is not None and not isinstance(found, bytes):
            raise CommandRefused(WRONG)
        return found

    def _of(self, key: bytes, kind: type[Any]) -> Any:
        found = self.data.setdefault(key, kind())
        if not isinstance(found, kind):
            raise CommandRefused(WRONG)
        return found

    def _once(self, args: list[bytes]) -> Any:
        marker = args[2]
        done = int(self.data.get(marker, b"0"))
        at = 5
        for number in range(1, int(args[4]) + 1):
            size = int(args[at])
            if number > done:
                answer = self._one((args[at + 1].decode(), *args[at + 2 : at + 1 + size]))
                if isinstance(answer, CommandRefused):
                    return [number, str(answer).encode()]
                self.data[marker] = b"%d" % number
            at += 1 + size
        return [0, done]

    async def look(self, key: str) -> Any:
        """Value of a key: bytes, a dict or a list; None when it is missing."""
        return self.data.get(key.encode())
