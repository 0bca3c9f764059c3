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
        "a check of `demo` or `config check --kafka` failed, or a command failed without a code of its own",
    )
    USAGE = 2, "the command line is wrong: unknown option, missing or malformed argument"
    CONFIG_INVALID = 3, "the configuration cannot be read or is invalid; every problem is printed with file and line"
    CANNOT_CONNECT = 4, "no server answers at the address, or it is not pyddmq, or its other port"
    REFUSED = 5, "the node refused: illegal message, too fast, too late, already decided, shutting down"
    DATA_UNUSABLE = (
        6,
        "the data directory is in use by another process, not writable, of another format, or not a data directory",
    )
    PORT_TAKEN = 7, "the node cannot listen on a port: in use, not allowed, or not an address of this machine"
    WRONG_PYTHON = 8, "this Python is too old, or has only pyddmq's client, without the extra `server`"
    STORE_FAILED = 9, "the node stopped because its store failed"
    DAMAGE_FOUND = 10, "`store check` found damage, or problems that it can repair"
    NOT_FOUND = 11, "not found: message, timer, transaction, group, topic or queue"
    INTERRUPTED = 130, "ended by Ctrl-C (SIGINT)"
    OUTPUT_CLOSED = 141, "the reader closed the output, as `head` does"
    TERMINATED = 143, "ended by SIGTERM"


def code_of_all(codes: Iterable[ExitCode]) -> ExitCode:
    """Return how a command ends that did something to several: a refusal says more than a missing name."""
    seen = set(codes)
    return next((code for code in (ExitCode.REFUSED, ExitCode.NOT_FOUND) if code in seen), ExitCode.OK)
