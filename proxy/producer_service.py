"""ProducerService: sendSync, sendAsync, sendBatchSync and the refusal of sendDelaySync.

A message is checked by DDMQ's rules (R91, D34), gets a queue (D7), its properties become RocketMQ's block, and its
body goes to the log as the slice of the received frame. The reply is queued when the flush that covers the record
has returned (D1). A batch is validated whole and stored whole or not at all (D8).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from broker.java import string_hash
from broker.metrics import Counter, Metrics, declare
from broker.seams import Clock
from broker.store import DiskFull, MessageRefused, Position, Put, Store, StoreError, Topic
from proxy.connection import Connection
from proxy.server import Handler
from proxy.wire import (
    Call,
    Receipt,
    SendMessage,
    encode_delay_result_reply,
    encode_result_reply,
    scan_delay,
    scan_send,
    scan_send_batch,
)
from proxy.wire.codes import ResultCode
from upstream.limits import TokenBucket

MESSAGES_SENT = declare("pyddmq_messages_published_total", "Messages stored, by topic", ("topic",))
BYTES_SENT = declare("pyddmq_bytes_published_total", "Body bytes stored, by topic", ("topic",))
SENDS_REFUSED = declare(
    "pyddmq_sends_refused_total", "Messages refused, by result code (docs/protocol.md lists the codes)", ("code",)
)

HEARTBEAT_TOPIC = b"carrera_heartbeat"
"""R90: a send to it is answered 0 and stores nothing."""

KEY_CHARS_MAX = 255
TAGS_CHARS_MAX = 255
PROPERTIES_BYTES_MAX = 32_767 - 128
"""RocketMQ's block limit less what the broker adds: UNIQ_KEY, the batch mark and the sum."""

RESERVED_PROPERTIES = frozenset(
    b"KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID "
    b"ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY "
    b"MAX_RECONSUME_TIMES CONSUME_START_TIME CHECK_IMMUNITY_TIME_IN_SECONDS __CRC32# INNER_NUM INNER_BASE "
    b"DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID __transactionId__ TRANSACTION_CHECK_TIMES "
    b"TRAN_PREPARED_QUEUE_OFFSET POP_CK 1ST_POP_TIME".split()
)
"""R91 and D34: names of the broker's own, refused as user properties together with those below."""

RESERVED_PREFIXES = (b"TIMER_", b"__PYDDMQ_", b"PYDDMQ_")

_HASHES_MAX = 65_536


class _Fields(TypedDict, total=False):
    """What a Result says beyond code and text, as `encode_result_reply` takes it."""

    msg_id: str
    qid: str
    offset: int
    receipts: list[Receipt]


class Refusal(Exception):
    """A message that is not stored: a result code and a sentence."""

    def __init__(self, code: ResultCode, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(text)


class TopicPort:
    """What publishing to one topic needs at hand: its queues, limit, counters and the next queue of the round."""

    __slots__ = ("body_bytes", "limit", "messages", "round", "topic")

    def __init__(self, topic: Topic, limit: TokenBucket, metrics: Metrics) -> None:
        self.topic = topic
        self.limit = limit
        self.messages: Counter = metrics.counter(MESSAGES_SENT, topic.name)
        self.body_bytes: Counter = metrics.counter(BYTES_SENT, topic.name)
        self.round = 0


class ProducerService:
    """The handlers of the producer port."""

    def __init__(
        self,
        ports: Mapping[bytes, TopicPort],
        *,
        store: Store,
        clock: Clock,
        randomness: random.Random,
        metrics: Metrics,
        state: Callable[[], str],
        body_bytes_max: int,
        qid_prefix: str,
        auto_create: Callable[[str], TopicPort | None],
    ) -> None:
        """Set up.

        Args:
            ports: Published topics by UTF-8 name; read at each call, so that a reload shows at once.
            store: Where messages go.
            clock: Wall clock for the born time of messages.
            randomness: For partitionId -2 and below.
            metrics: The node's registry.
            state: The node's state: "starting", "ready", "draining" or "failed".
            body_bytes_max: Largest body (R91).
            qid_prefix: Text in front of the queue number in a qid, "<cluster>_<broker>_".
            auto_create: Makes a topic on its first publish, or answers None where that is off.
        """
        self._auto_create = auto_create
        self._ports = ports
        self._store = store
        self._clock = clock
        self._random = randomness
        self._metrics = metrics
        self._state = state
        self._body_bytes_max = body_bytes_max
        self._qid_prefix = qid_prefix
        self._hashes: dict[bytes, int] = {}
        self._born_hosts: dict[str, bytes] = {}

    def handlers(self) -> dict[str, Handler]:
        """Method name to handler."""
        return {
            "sendSync": self.send,
            "sendAsync": self.send,
            "sendBatchSync": self.send_batch,
            "sendDelaySync": self.send_delay,
        }

    def send(self, connection: Connection, call: Call) -> None:
        """Store one message; the reply carries message id, queue and offset."""
        message = scan_send(call).message
        if message.topic == HEARTBEAT_TOPIC:
            connection.answer(encode_result_reply(call, ResultCode.OK, "heartbeat"))
            return
        try:
            put = self._put(message)
            self._append([put], connection, call, atomic=False, fields=self._receipt_fields)
        except Refusal as refusal:
            self._refuse(connection, call, refusal, 1)

    def send_batch(self, connection: Connection, call: Call) -> None:
        """Store a batch, all or nothing (D8); receipts per message on request. Empty: 0 (R100)."""
        request = scan_send_batch(call)
        if not request.messages:
            connection.answer(encode_result_reply(call, ResultCode.OK, "empty batch"))
            return
        puts: list[Put] = []
        try:
            for index, message in enumerate(request.messages):
                try:
                    puts.append(self._put(message))
                except Refusal as refusal:
                    self._give_tokens_back(puts)
                    text = f"message {index} of {len(request.messages)}: {refusal.text}; nothing of the batch is stored"
                    raise Refusal(refusal.code, text) from refusal
            fields = self._batch_fields if request.receipts else _no_fields
            self._append(puts, connection, call, atomic=True, fields=fields)
        except Refusal as refusal:
            self._refuse(connection, call, refusal, len(request.messages))

    def send_delay(self, connection: Connection, call: Call) -> None:
        """Refuse a delay message: no topic of this version is a delay topic (D21, code 18)."""
        scan_delay(call)
        self._metrics.counter(SENDS_REFUSED, str(int(ResultCode.FAIL_TOPIC_IS_NOT_DELAY))).add()
        text = "this version has no delay topics: send the message with sendSync"
        connection.answer(encode_delay_result_reply(call, ResultCode.FAIL_TOPIC_IS_NOT_DELAY, text, ""))

    # One message.

    def _put(self, message: SendMessage) -> Put:
        """Check a message and choose its queue. Raises Refusal; nothing has happened then but a spent rate token."""
        port = self._ports.get(message.topic) or self._new_port(message.topic)
        body = message.body if message.body is not None else message.value
        if not body:
            raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, "the body is empty: neither body nor value holds a byte")
        if len(body) > self._body_bytes_max:
            text = f"the body has {len(body)} bytes, the limit is {self._body_bytes_max}"
            raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
        if message.delay_level or message.deliver_at_ms or message.delay_ms:
            text = "delayed delivery is not in this version: leave delayLevel, deliverAtMs and delayMs out"
            raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
        properties = self._properties(message)
        available = port.limit.available()
        if available is not None:
            if available < 1:
                text = f"topic {port.topic.name} is above its maxTps: send more slowly"
                raise Refusal(ResultCode.FAIL_REFUSED_BY_RATE_LIMITER, text)
            port.limit.take(1)
        return Put(port.topic, self._queue(port, message), body, properties, message.tags or b"")

    def _properties(self, message: SendMessage) -> bytes:
        """RocketMQ's property block of a message: KEYS and TAGS first, then the user's own, in the order given."""
        parts: list[bytes] = []
        key = message.key
        if key:
            if len(key) > KEY_CHARS_MAX and len(key.decode()) > KEY_CHARS_MAX:
                raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, f"the key is longer than {KEY_CHARS_MAX} characters")
            parts += (b"KEYS\x01", key, b"\x02")
        tags = message.tags
        if tags:
            if len(tags) > TAGS_CHARS_MAX and len(tags.decode()) > TAGS_CHARS_MAX:
                raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, f"the tags are longer than {TAGS_CHARS_MAX} characters")
            parts += (b"TAGS\x01", tags, b"\x02")
        if message.properties:
            for name, value in message.properties:
                if name in RESERVED_PROPERTIES or name.startswith(RESERVED_PREFIXES):
                    text = f"property {name.decode()!r} is a name of the broker's own: choose another"
                    raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
                if not name.strip() or not value.strip():
                    raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, f"property {name.decode()!r} has a blank name or value")
                parts += (name, b"\x01", value, b"\x02")
        block = b"".join(parts)
        pairs = len(message.properties or ()) + bool(key) + bool(tags)
        # One 0x01 and one 0x02 per pair means that no name or value brought its own (D7).
        if block.count(1) != pairs or block.count(2) != pairs:
            text = "key, tags, property names and values must not hold the characters 0x01 and 0x02"
            raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
        if len(block) > PROPERTIES_BYTES_MAX:
            text = f"key, tags and properties take {len(block)} bytes, the limit is {PROPERTIES_BYTES_MAX}"
            raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
        return block

    def _queue(self, port: TopicPort, message: SendMessage) -> int:
        """Queue number: partitionId, then hashId, then the key, then in turn (D7; W80: never negative)."""
        count = len(port.topic.queues)
        if message.partition_id >= 0:
            return message.partition_id % count
        if message.partition_id < -1:
            return self._random.randrange(count)
        if message.hash_id:
            return abs(message.hash_id) % count
        if message.key:
            return (self._key_hash(message.key) & 0x7FFF_FFFF) % count
        port.round = (port.round + 1) % count
        return port.round

    def _key_hash(self, key: bytes) -> int:
        """Java's hash of a key, remembered: it costs microseconds in Python, and keys come again."""
        known = self._hashes.get(key)
        if known is None:
            if len(self._hashes) >= _HASHES_MAX:
                self._hashes.clear()
            known = self._hashes[key] = string_hash(key.decode())
        return known

    def _new_port(self, name: bytes) -> TopicPort:
        try:
            port = self._auto_create(name.decode())
        except StoreError as error:
            raise self._store_refusal(error) from error
        if port is None:
            raise self._no_topic(name.decode())
        return port

    def _no_topic(self, text: str) -> Refusal:
        topic = self._store.topics.get(text)
        if topic is not None and topic.system:
            return Refusal(
                ResultCode.FAIL_TOPIC_NOT_ALLOWED, f"{text} is a topic of the broker's own: it takes no sends"
            )
        if topic is not None:
            return Refusal(
                ResultCode.FAIL_TOPIC_NOT_ALLOWED, f"topic {text} is not served: it is not in the configuration"
            )
        return Refusal(ResultCode.FAIL_TOPIC_NOT_EXIST, f"no topic {text!r}: add it under topics in the configuration")

    # Appending and answering.

    def _append(
        self,
        puts: Sequence[Put],
        connection: Connection,
        call: Call,
        *,
        atomic: bool,
        fields: Callable[[Sequence[Position]], _Fields],
    ) -> None:
        """Stage puts; the reply follows the flush that settles them. Raises Refusal when nothing was staged."""
        state = self._state()
        if state in ("draining", "starting"):
            self._give_tokens_back(puts)
            text = f"the node is {state}: send to another node, or again in a moment"
            raise Refusal(ResultCode.FAIL_SERVER_SHUTDOWN, text)

        def done(error: StoreError | None) -> None:
            if error is not None:
                self._metrics.counter(SENDS_REFUSED, str(int(ResultCode.FAIL_UNKNOWN))).add(len(puts))
                slot.answer(encode_result_reply(call, ResultCode.FAIL_UNKNOWN, str(error)))
                return
            for put in puts:
                port = ports[put.topic.name_bytes]
                port.messages.value += 1
                port.body_bytes.value += len(put.body)
            slot.answer(encode_result_reply(call, ResultCode.OK, "OK", **fields(positions)))

        ports = self._ports
        try:
            positions = self._store.append(
                puts,
                born_ms=self._clock.wall_ms(),
                born_host=self._born_host(connection.address),
                done=done,
                atomic=atomic,
            )
        except StoreError as error:
            self._give_tokens_back(puts)
            raise self._store_refusal(error) from error
        slot = connection.later()

    @staticmethod
    def _store_refusal(error: StoreError) -> Refusal:
        if isinstance(error, MessageRefused):
            return Refusal(ResultCode.FAIL_ILLEGAL_MSG, str(error))
        if isinstance(error, DiskFull):
            return Refusal(ResultCode.FAIL_UNKNOWN, f"disk full: {error}")
        return Refusal(ResultCode.FAIL_UNKNOWN, str(error))

    def _give_tokens_back(self, puts: Sequence[Put]) -> None:
        for put in puts:
            self._ports[put.topic.name_bytes].limit.take(-1)

    def _refuse(self, connection: Connection, call: Call, refusal: Refusal, count: int) -> None:
        self._metrics.counter(SENDS_REFUSED, str(int(refusal.code))).add(count)
        connection.answer(encode_result_reply(call, refusal.code, refusal.text))

    def _receipt_fields(self, positions: Sequence[Position]) -> _Fields:
        position = positions[0]
        return {
            "msg_id": position.unique_key.decode(),
            "qid": f"{self._qid_prefix}{position.queue_id}",
            "offset": position.offset,
        }

    def _batch_fields(self, positions: Sequence[Position]) -> _Fields:
        prefix = self._qid_prefix
        receipts = [Receipt(p.unique_key.decode(), f"{prefix}{p.queue_id}", p.offset) for p in positions]
        return {"receipts": receipts}

    def _born_host(self, address: str) -> bytes:
        """Client address as RocketMQ's record has it: IPv4 and port in 8 bytes; others become 0.0.0.0."""
        known = self._born_hosts.get(address)
        if known is None:
            if len(self._born_hosts) >= _HASHES_MAX:
                self._born_hosts.clear()
            host, _, port = address.rpartition(":")
            parts = host.split(".")
            numbers = [int(part) for part in parts] if len(parts) == 4 and all(p.isdigit() for p in parts) else [0] * 4
            known = bytes(numbers) + (int(port) if port.isdigit() else 0).to_bytes(4, "big")
            self._born_hosts[address] = known
        return known


def _no_fields(_: Sequence[Position]) -> _Fields:
    return {}
