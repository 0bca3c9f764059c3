"""Operating errors of a command: a sentence for people and an exit code; never a traceback."""

from __future__ import annotations

from proxy.process.exit_codes import ExitCode
from pyddmq.client.errors import (
    CallRejected,
    CannotConnect,
    ClientError,
    ClientMisuse,
    NotThrift,
    PullRefused,
    Refused,
    TopicNotFound,
    Unreachable,
)
from pyddmq.codes import PullCode

_UNKNOWN_METHOD = 1
"""Kind of a TApplicationException."""


class CliError(Exception):
    """A command cannot continue.

    Attributes:
        text: A sentence that says what is wrong and what to do.
        code: The exit code.
    """

    def __init__(self, text: str, code: ExitCode) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


def translate(error: ClientError | ClientMisuse, *, option: str) -> CliError:
    """Turn a client's error into a sentence with advice.

    Args:
        error: What the client raised.
        option: The option that names the node's port, such as `--producer`.
    """
    if isinstance(error, ClientMisuse):
        return CliError(str(error), ExitCode.USAGE)
    if isinstance(error, CannotConnect):
        advice = f"Is the node running? `pyddmq serve` starts one; {option} host:port selects another."
        return CliError(f"{error}. {advice}", ExitCode.CANNOT_CONNECT)
    if isinstance(error, NotThrift):
        return CliError(f"{error}. Pass the right port with {option} host:port.", ExitCode.CANNOT_CONNECT)
    if isinstance(error, CallRejected) and error.code == _UNKNOWN_METHOD:
        text = f"this is not the port of {option}: {error.text}. Pass the right one with {option} host:port."
        return CliError(text, ExitCode.CANNOT_CONNECT)
    if isinstance(error, Unreachable):
        return CliError(f"{error}. Look at the node's log; the node may have stopped.", ExitCode.CANNOT_CONNECT)
    if isinstance(error, Refused):
        again = " Trying again in a moment may help." if error.retriable else ""
        return CliError(f"the node refused: {error}.{again}", refusal_code(error))
    return CliError(str(error), ExitCode.CHECK_FAILED)


def refusal_code(error: Refused) -> ExitCode:
    """Return the exit code of a refusal: an unknown group or topic is distinguished from what the node refuses."""
    unknown = isinstance(error, PullRefused) and error.code in (PullCode.NO_SUCH_GROUP, PullCode.NO_SUCH_TOPIC)
    return ExitCode.NOT_FOUND if unknown or isinstance(error, TopicNotFound) else ExitCode.REFUSED
