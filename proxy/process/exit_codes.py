"""Exit codes of the command `pyddmq`, listed once; docs/commands.md shows the same table."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class ExitCode(enum.IntEnum):
    """What a shell sees of how a command ended. Numbers are stable.

    Attributes:
        text: Meaning, for people.
    """

    text: str

    def __new__(cls, number: int, text: str) -> ExitCode:
        code = int.__new__(cls, number)
        code._value_ = number
        code.text = text
        return code

    OK = 0, "done"
    CHECK_FAILED = (
        1,
        "a check of `demo` or `config check --kafka` failed, or a command failed in a way that has no code of its own",
    )
    USAGE = 2, "the command line is wrong: unknown option, missing or malformed argument"
    CONFIG_INVALID = 3, "the configuration cannot be read or is invalid; every problem is printed with file and line"
    CANNOT_CONNECT = 4, "nothing answers at the address, or it is not pyddmq, or its other port"
    REFUSED = 5, "the node answered no: illegal message, too fast, too late, decided otherwise, shutting down"
    DATA_UNUSABLE = (
        6,
        "the data directory is in use by another process, unwritable, of another format, or a folder of other files",
    )
    PORT_TAKEN = 7, "a port cannot be listened on: taken, not allowed, or no address of this machine"
    WRONG_PYTHON = 8, "this Python is too old, or has pyddmq's client alone, without the extra `server`"
    STORE_FAILED = 9, "the node stopped because its store failed"
    DAMAGE_FOUND = 10, "`store check` found damage, or something that it can mend"
    NOT_FOUND = 11, "what was named is not there: no such message, timer, transaction, group, topic, queue"
    INTERRUPTED = 130, "ended by Ctrl-C (SIGINT)"
    OUTPUT_CLOSED = 141, "the reader of the output closed it, as `head` does"
    TERMINATED = 143, "ended by SIGTERM"


def code_of_all(codes: Iterable[ExitCode]) -> ExitCode:
    """Return how a command ends that did something to several: a refusal tells more than what is not there."""
    seen = set(codes)
    return next((code for code in (ExitCode.REFUSED, ExitCode.NOT_FOUND) if code in seen), ExitCode.OK)
