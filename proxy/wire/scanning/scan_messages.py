"""The messages of a send, one by one, in either protocol; `proxy.wire.send_accelerator` does the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from proxy.wire.errors import ArgumentsError, TextError
from proxy.wire.limits import MESSAGES_MAX, STEPS_PER_MESSAGE
from proxy.wire.steps import Steps
from proxy.wire.values import General, SendMessage

_Scan = Callable[[bytes, memoryview, int, list[SendMessage], int, General], int]


def scan_messages(  # noqa: PLR0917 - as the scanners of arguments
    scan: _Scan, message: Callable[..., tuple[SendMessage, int]], frame: bytes, pos: int, count: int, steps: Steps
) -> tuple[list[SendMessage], int]:
    """Scan the elements of a list of messages.

    Args:
        scan: `one_by_one` or its accelerator.
        message: Scans any message of the protocol, of (steps, frame, view, position).
        frame: The frame.
        pos: Where the first begins.
        count: How many there are.
        steps: Those of the frame.

    Returns:
        The messages, and the position behind the last.

    Raises:
        ArgumentsError: There are too many, or one is wrong.
        TextError: A text is no UTF-8; says which message has it.
    """
    if count > MESSAGES_MAX:
        raise ArgumentsError(f"a batch of {count} messages: at most {MESSAGES_MAX} are allowed")
    steps.left += count * STEPS_PER_MESSAGE
    messages: list[SendMessage] = []
    try:
        pos = scan(frame, memoryview(frame), pos, messages, count, partial(message, steps))
    except TextError as error:
        error.place, error.count = len(messages), count
        raise
    return messages, pos


def one_by_one(  # noqa: PLR0917 - what compiled functions take by name costs more
    frame: bytes, view: memoryview, pos: int, messages: list[SendMessage], count: int, general: General
) -> int:
    """Scan messages.

    Args:
        frame: The frame.
        view: The same; bodies are slices of it.
        pos: Where the next message begins.
        messages: Gets them.
        count: How many it shall have in the end.
        general: Scans any message, or says what is wrong.

    Returns:
        The position behind the last.
    """
    while len(messages) < count:
        message, pos = general(frame, view, pos)
        messages.append(message)
    return pos
