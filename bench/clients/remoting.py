"""A connection to a broker of Apache RocketMQ by its remoting protocol: SEND_MESSAGE_V2 and PULL_MESSAGE.

A pull commits the offset before. Consumers have queues of their own, so each connection has one. Headers are JSON, as
those of the Java clients.
"""

from __future__ import annotations

import json
import struct
import time
from typing import Any

from bench.clients.load import PROPERTIES, TAG, Receiving, body_of, key_of

_SEND, _PULL, _COMMIT, _CREATE = 310, 11, 15, 17
_FOUND, _NOT_FOUND, _RETRY = 0, 19, 20
_COMMITS_SUSPENDS_SUBSCRIBES = 7
_LENGTHS = struct.Struct(">II")
_SIZE = struct.Struct(">I")
_BODY_AT = 88
"""Where the body is in a record of the store, which is what a pull returns; its length is before it."""


class RocketConnection(Receiving):
    """A connection, with its queue.

    Args:
        address: The broker's port.
        topic: The topic.
        group: The consumer group; the broker makes it.
        batch: Messages of a request: 1.
    """

    def __init__(self, address: tuple[str, int], topic: bytes, group: bytes, batch: int = 1) -> None:
        super().__init__(address)
        assert batch == 1, "a publish is of one message"
        self._topic = topic.decode()
        self._group = group.decode()
        self._offset = 0
        self.queue = 0

    def make_topic(self, queues: int) -> None:
        """Create the topic."""
        topic = {"topic": self._topic, "defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG"}
        counts = {"readQueueNums": queues, "writeQueueNums": queues, "topicSysFlag": 0, "order": "false"}
        self._call(_CREATE, topic | counts)

    def request(self, number: int) -> bytes:
        return self.one(body_of(), number)

    def one(self, body: bytes, number: int) -> bytes:
        pairs = [("KEYS", key_of(number).decode()), ("UNIQ_KEY", f"{number:032X}"), ("WAIT", "true")]
        pairs += [("TAGS", TAG.decode()), *((name.decode(), value.decode()) for name, value in PROPERTIES)]
        properties = "".join(f"{name}\x01{value}\x02" for name, value in pairs)
        fields = {"a": "bench", "b": self._topic, "c": "TBW102", "d": 8, "e": self.queue, "f": 0}
        fields |= {"g": time.time_ns() // 1_000_000, "h": 0, "i": properties, "j": 0, "k": "false", "m": "false"}
        return _frame(_SEND, fields, body)

    def published(self) -> int:
        self._receive()
        count = 0
        while (answer := self._answer()) is not None:
            _check(answer[0])
            count += 1
        return count

    def ask(self, batch: int, linger_ms: int) -> None:
        where = {"consumerGroup": self._group, "topic": self._topic, "queueId": self.queue}
        what = {"queueOffset": self._offset, "maxMsgNums": batch, "sysFlag": _COMMITS_SUSPENDS_SUBSCRIBES}
        how = {"commitOffset": self._offset, "suspendTimeoutMillis": linger_ms, "subscription": "*", "subVersion": 1}
        self.socket.sendall(_frame(_PULL, where | what | how | {"expressionType": "TAG"}))

    def pulled(self) -> list[bytes] | None:
        self._receive()
        answer = self._answer()
        if answer is None:
            return None
        header, data = answer
        if header["code"] in (_NOT_FOUND, _RETRY):
            return []
        _check(header)
        self._offset = int(header["extFields"]["nextBeginOffset"])
        bodies = []
        while data:
            size = _SIZE.unpack_from(data)[0]
            bodies.append(data[_BODY_AT : _BODY_AT + 16])
            data = data[size:]
        return bodies

    def finish(self) -> None:
        where = {"consumerGroup": self._group, "topic": self._topic, "queueId": self.queue}
        self._call(_COMMIT, where | {"commitOffset": self._offset})
        self.socket.close()

    def _call(self, code: int, fields: dict[str, Any]) -> None:
        self.socket.sendall(_frame(code, fields))
        while (answer := self._answer()) is None:
            self._receive()
        _check(answer[0])

    def _answer(self) -> tuple[dict[str, Any], bytes] | None:
        """Take an answer, header and body; None if it is not complete."""
        frame = self._take()
        if frame is None:
            return None
        end = 4 + (_SIZE.unpack_from(frame)[0] & 0xFFFFFF)
        return json.loads(frame[4:end]), frame[end:]


def _frame(code: int, fields: dict[str, Any], body: bytes = b"") -> bytes:
    head = {"code": code, "language": "JAVA", "version": 475, "opaque": 1, "flag": 0, "extFields": fields}
    header = json.dumps(head, separators=(",", ":")).encode()
    return _LENGTHS.pack(4 + len(header) + len(body), len(header)) + header + body


def _check(header: dict[str, Any]) -> None:
    if header["code"] != _FOUND:
        raise ConnectionError(f"RocketMQ refused: {header}")
