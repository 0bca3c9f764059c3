"""Commands of Redis that a message may ask for, with what a repeat of each does.

A sink writes. So reading commands are not among them, nor those that block, that speak of the server or the connection,
or that end a transaction which the sink began.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from actions.sinks.commands import RedisCommand
from pyddmq.actions import Unprocessable

ARGUMENTS_MAX = 4_000
"""What a script can unpack at once is not much more."""


class Arity(NamedTuple):
    """One command.

    Attributes:
        least: Arguments at least.
        most: At most; None: any number.
        step: Those after the first come in groups of so many.
        idempotent: A repeat, with nothing in between, changes nothing.
    """

    least: int
    most: int | None
    step: int = 1
    idempotent: bool = True


def _repeats(least: int, most: int | None) -> Arity:
    return Arity(least, most, idempotent=False)


KINDS: dict[str, Arity] = {
    # Those of DDMQ's scripts (R28).
    "SET": Arity(2, 6), "DEL": Arity(1, None), "HSET": Arity(3, None, 2), "HMSET": Arity(3, None, 2),
    "HDEL": Arity(2, None), "MSET": Arity(2, None, 2),
    # Strings.
    "SETEX": Arity(3, 3), "PSETEX": Arity(3, 3), "SETNX": Arity(2, 2), "SETRANGE": Arity(3, 3), "SETBIT": Arity(3, 3),
    "APPEND": _repeats(2, 2), "INCR": _repeats(1, 1), "DECR": _repeats(1, 1), "INCRBY": _repeats(2, 2),
    "DECRBY": _repeats(2, 2), "INCRBYFLOAT": _repeats(2, 2),
    # Keys.
    "UNLINK": Arity(1, None), "EXPIRE": Arity(2, 3), "PEXPIRE": Arity(2, 3), "EXPIREAT": Arity(2, 3),
    "PEXPIREAT": Arity(2, 3), "PERSIST": Arity(1, 1),
    # Hashes.
    "HSETNX": Arity(3, 3), "HINCRBY": _repeats(3, 3), "HINCRBYFLOAT": _repeats(3, 3),
    # Sets and sorted sets.
    "SADD": Arity(2, None), "SREM": Arity(2, None), "ZADD": Arity(3, None), "ZREM": Arity(2, None),
    "ZREMRANGEBYSCORE": Arity(3, 3), "ZREMRANGEBYRANK": _repeats(3, 3), "ZINCRBY": _repeats(3, 3),
    # Lists.
    "LPUSH": _repeats(2, None), "RPUSH": _repeats(2, None), "LPUSHX": _repeats(2, None), "RPUSHX": _repeats(2, None),
    "LPOP": _repeats(1, 1), "RPOP": _repeats(1, 1), "LREM": _repeats(3, 3), "LTRIM": _repeats(3, 3),
    "LSET": Arity(3, 3),
    # Others.
    "PFADD": Arity(2, None), "GEOADD": Arity(4, None), "XADD": _repeats(4, None), "XTRIM": Arity(3, 6),
    "PUBLISH": _repeats(2, 2), "RENAME": _repeats(2, 2),
}  # fmt: skip


def kind_of(name: str, count: int) -> Arity:
    """Return what is known of a command.

    Raises:
        ValueError: It is not among those, or cannot have so many arguments; a sentence that says what would be right.
    """
    kind = KINDS.get(name.upper())
    if kind is None:
        raise ValueError(f"{name!r} is not a command that a message may use; known are {', '.join(sorted(KINDS))}")
    # Pairs come after the key, but for MSET, which has nothing else.
    grouped = count if name.upper() == "MSET" else count - 1
    if count < kind.least or (kind.most is not None and count > kind.most) or grouped % kind.step:
        raise ValueError(f"{name.upper()} cannot have {count} arguments")
    if count > ARGUMENTS_MAX:
        raise ValueError(f"{name.upper()} has {count} arguments; the maximum is {ARGUMENTS_MAX}")
    return kind


def deletes_of(command: Sequence[str]) -> list[list[str]]:
    """Return the commands that delete what a command of the options writes; empty: nothing is known to."""
    name, *args = command
    name = name.upper()
    if name in ("SET", "SETEX", "PSETEX", "SETNX"):
        return [["DEL", args[0]]]
    if name == "MSET":
        return [["DEL", *args[::2]]]
    if name in ("HSET", "HMSET", "HSETNX"):
        return [["HDEL", args[0], *args[1::2]]]
    return [list(command)] if name in ("DEL", "UNLINK", "HDEL") else []


Words = tuple[str | bytes | int | float, ...]
"""A command as it is sent."""


def checked(command: object) -> tuple[Words, bool]:
    """Return a gathered command as it is sent, and whether it is idempotent.

    Raises:
        Unprocessable: It is none of Redis, or none that a message may ask for.
    """
    if not isinstance(command, RedisCommand):
        raise Unprocessable(f"{type(command).__name__} is not a command of Redis, and no other action executes it")
    try:
        kind = kind_of(command.name, len(command.args))
    except ValueError as error:
        raise Unprocessable(str(error)) from error
    for each in command.args:
        if isinstance(each, bool) or not isinstance(each, str | bytes | int | float):
            raise Unprocessable(f"{command.name.upper()} has an argument of type {type(each).__name__}; use text")
    # The library refuses halves of characters, and with them the whole batch.
    args = [each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each for each in command.args]
    return (command.name.upper(), *args), kind.idempotent
