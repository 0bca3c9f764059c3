"""The arguments of the sends, scanned straight into tuples, by the rules of `scan_pull`."""

from __future__ import annotations

from functools import partial

from broker.runtime.accelerators import accelerated
from proxy.wire import compact
from proxy.wire.call import Call
from proxy.wire.errors import ArgumentsError, MessageError, PropertiesError
from proxy.wire.limits import MESSAGES_MAX, PROPERTIES_MAX, PROPERTIES_PER_CALL_MAX, STEPS_PER_MESSAGE
from proxy.wire.reading import STOP, ProtocolReader
from proxy.wire.steps import Steps
from proxy.wire.texts import VALUE, check_pairs, check_text
from proxy.wire.values import BatchCall, General, Properties, SendCall, SendMessage


def _one_by_one(  # noqa: PLR0917 - what compiled functions take by name costs more
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


def _sends_none(calls: list[Call]) -> list[tuple[SendMessage, int | None] | None]:
    """Leave all to the general way; `proxy.wire.send_accelerator` does more.

    Args:
        calls: Calls of sendSync and sendAsync.

    Returns:
        Of each its message and timeout; None: it is unusual, or wrong.
    """
    return [None] * len(calls)


usual_sends = accelerated("proxy.wire.send_accelerator", "sends", _sends_none)
_compact_messages = accelerated("proxy.wire.send_accelerator", "compact_messages", _one_by_one)
_binary_messages = accelerated("proxy.wire.send_accelerator", "binary_messages", _one_by_one)


def send(reading: ProtocolReader, frame: bytes, pos: int) -> SendCall:
    """Scan the arguments of sendSync (message, timeout) or sendAsync (message)."""
    message: SendMessage | None = None
    timeout_ms: int | None = None
    steps = Steps()
    last = 0
    while True:
        kind, last, pos = reading.header(frame, pos, last, steps)
        if kind == STOP:
            break
        if last == 1 and kind == reading.struct:
            _take_earlier(steps, 0 if message is None else 1)
            (message,), pos = _messages(reading, frame, pos, 1, steps)
        elif last == 2 and kind == reading.i64:
            timeout_ms, pos = reading.read_i64(frame, pos)
        else:
            pos = reading.skip(frame, pos, kind, steps)
    if message is None:
        raise ArgumentsError("a send without its argument message")
    return SendCall(message, timeout_ms)


def send_batch(reading: ProtocolReader, frame: bytes, pos: int) -> BatchCall:
    """Scan the arguments of sendBatchSync. An absent list is an empty one (R100)."""
    messages: list[SendMessage] = []
    receipts = False
    steps = Steps()
    last = 0
    while True:
        kind, last, pos = reading.header(frame, pos, last, steps)
        if kind == STOP:
            return BatchCall(messages, receipts)
        if last == 1 and kind == reading.list:
            element, count, pos = reading.list_header(frame, pos)
            if element != reading.struct and count:
                pos = reading.skip_elements(frame, pos, (element,), count, steps)
                continue
            _take_earlier(steps, len(messages))
            messages, pos = _messages(reading, frame, pos, count, steps)
        elif last == 101 and kind in reading.flags:
            receipts, pos = reading.flag(frame, pos, kind)
        else:
            pos = reading.skip(frame, pos, kind, steps)


def _take_earlier(steps: Steps, count: int) -> None:
    """Take steps for messages that were given before and do not count, and those that came with them."""
    steps.take(count * (1 + STEPS_PER_MESSAGE))


def _messages(
    reading: ProtocolReader, frame: bytes, pos: int, count: int, steps: Steps
) -> tuple[list[SendMessage], int]:
    """Scan the elements of a list of messages; returns them, and the position behind the last.

    Raises:
        ArgumentsError: There are too many, or one is wrong.
        MessageError: A text is not UTF-8, or there are too many properties; says which message it is.
    """
    if count > MESSAGES_MAX:
        raise ArgumentsError(f"a batch of {count} messages: at most {MESSAGES_MAX} are allowed")
    steps.left += count * STEPS_PER_MESSAGE
    messages: list[SendMessage] = []
    scan = _compact_messages if reading is compact.READING else _binary_messages
    try:
        pos = scan(frame, memoryview(frame), pos, messages, count, partial(_message, reading, steps))
    except MessageError as error:
        error.place, error.count = len(messages), count
        raise
    if len(frame) > PROPERTIES_PER_CALL_MAX:
        _count_properties(messages)
    return messages, pos


def _count_properties(messages: list[SendMessage]) -> None:
    """Check how many properties the messages have together. Raises PropertiesError."""
    left = PROPERTIES_PER_CALL_MAX
    for place, message in enumerate(messages):
        if message.properties is not None:
            left -= len(message.properties[0])
            if left < 0:
                error = _too_many_properties()
                error.place, error.count = place, len(messages)
                raise error


def _too_many_properties() -> PropertiesError:
    return PropertiesError(
        f"the batch has more than {PROPERTIES_PER_CALL_MAX} properties up to this message; send fewer messages at once"
    )


def _message(
    reading: ProtocolReader, steps: Steps, frame: bytes, view: memoryview, pos: int
) -> tuple[SendMessage, int]:
    """Scan any Message, whatever fields it has in whatever order."""
    texts: list[bytes | None] = [None] * 9
    body: memoryview | None = None
    hash_id = 0
    partition_id = -1
    properties: Properties | None = None
    delay_level = deliver_at_ms = delay_ms = unique_key = None
    last = 0
    while True:
        kind, last, pos = reading.header(frame, pos, last, steps)
        if kind == STOP:
            break
        if kind == reading.text and last in (1, 2, 3, 5, 8):
            raw, pos = reading.read_text(frame, pos)
            if not raw.isascii() and last != VALUE:
                check_text(raw, last)
            texts[last] = raw
        elif kind == reading.text and last == 7:
            start, pos = reading.span(frame, pos)
            body = view[start:pos]
        elif kind == reading.i64 and last == 4:
            hash_id, pos = reading.read_i64(frame, pos)
        elif kind == reading.i32 and last == 6:
            partition_id, pos = reading.read_i32(frame, pos)
        elif kind == reading.map and last == 9:
            properties, pos = _properties(reading, frame, pos, steps)
        elif kind == reading.text and last == 104:
            unique_key, pos = reading.read_text(frame, pos)
        elif kind == reading.i32 and last == 101:
            delay_level, pos = reading.read_i32(frame, pos)
        elif kind == reading.i64 and last == 102:
            deliver_at_ms, pos = reading.read_i64(frame, pos)
        elif kind == reading.i64 and last == 103:
            delay_ms, pos = reading.read_i64(frame, pos)
        else:
            pos = reading.skip(frame, pos, kind, steps)
    _, topic, key, value, _, tags, _, _, version = texts
    delay = (delay_level, deliver_at_ms, delay_ms, unique_key)
    return SendMessage(topic or b"", key, value, hash_id, tags, partition_id, body, version, properties, *delay), pos


def _properties(reading: ProtocolReader, frame: bytes, pos: int, steps: Steps) -> tuple[Properties | None, int]:
    """Scan a map of texts; one with other types is passed over like a field of a wrong type."""
    key, value, count, pos = reading.map_header(frame, pos)
    if count and (key != reading.text or value != reading.text):
        return None, reading.skip_elements(frame, pos, (key, value), count, steps)
    if count > PROPERTIES_MAX:
        raise ArgumentsError(f"{count} properties: at most {PROPERTIES_MAX} are allowed")
    # Before they are read: in Python that costs most.
    steps.properties -= count
    if steps.properties < 0:
        raise _too_many_properties()
    names: list[bytes] = []
    values: list[bytes] = []
    for _ in range(count):
        name, pos = reading.read_text(frame, pos)
        text, pos = reading.read_text(frame, pos)
        if not (name.isascii() and text.isascii()):
            check_pairs((name,), (text,))
        names.append(name)
        values.append(text)
    return (tuple(names), tuple(values)) if names else None, pos
