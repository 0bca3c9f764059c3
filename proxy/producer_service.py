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
from broker.message_type import MessageKind, MessageType, Mismatch, mismatch
from broker.metrics import Counter, Metrics, declare
from broker.seams import Buffer, Clock
from broker.store import DiskFull, MessageRefused, Position, Put, Store, StoreError, Topic
from proxy.connection import Connection
from proxy.message_rules import PropertyRules, Refusal
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
from upstream.budget import Budget, Pressure
from upstream.limits import TokenBucket

MESSAGES_SENT = declare("pyddmq_messages_published_total", "Messages stored, by topic", ("topic",))
BYTES_SENT = declare("pyddmq_bytes_published_total", "Body bytes stored, by topic", ("topic",))
SENDS_REFUSED = declare(
    "pyddmq_sends_refused_total", "Messages refused, by result code (docs/protocol.md lists the codes)", ("code",)
)

HEARTBEAT_TOPIC = b"carrera_heartbeat"
"""R90: a send to it is answered 0 and stores nothing."""

_HASHES_MAX = 65_536

_MISMATCH_CODES = {
    Mismatch.DELAY: ResultCode.FAIL_TOPIC_IS_NOT_DELAY,
    Mismatch.NO_DELAY: ResultCode.FAIL_TOPIC_IS_DELAY,
}


class _Fields(TypedDict, total=False):
    """What a Result says beyond code and text, as `encode_result_reply` takes it."""

    msg_id: str
    qid: str
    offset: int
    receipts: list[Receipt]


# A copy of Put.__new__'s work without its Python frame: there is one per message.
_new_put = tuple.__new__


class TopicPort:
    """What publishing to one topic needs at hand: its queues, limit, counters and the next queue of the round.

    `guarded`: its messages have to pass a limit or a message type. Made anew when queues, limit or type change.
    """

    __slots__ = ("body_bytes", "guarded", "limit", "messages", "queue_count", "round", "topic")

    def __init__(self, topic: Topic, limit: TokenBucket | None, metrics: Metrics) -> None:
        self.topic = topic
        self.queue_count = len(topic.queues)
        self.limit = limit
        # One test per message for both, whatever the topic is like.
        self.guarded = limit is not None or topic.message_type is not MessageType.MIXED
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
        budget: Budget,
    ) -> None:
        """Set up.

        Args:
            ports: Published topics by UTF-8 name; read at each call, so that a reload shows at once.
            store: Where messages go.
            clock: Wall clock for the born time of messages.
            randomness: For partitionId -2 and below.
            metrics: The node's registry.
            state: The node's state: "ready", "draining" or "failed".
            body_bytes_max: Largest body (R91).
            qid_prefix: Text in front of the queue number in a qid, "<cluster>_<broker>_".
            auto_create: Makes a topic on its first publish, or answers None where that is off.
            budget: The node's account of memory.
        """
        self._auto_create = auto_create
        self._budget = budget
        self._ports = ports
        self._store = store
        self._clock = clock
        self._random = randomness
        self._metrics = metrics
        self._state = state
        self._body_bytes_max = body_bytes_max
        self._qid_prefix = qid_prefix
        self._rules = PropertyRules()
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
            puts: list[Put] = []
            ports: list[TopicPort] = []
            delayed = self._check([message], puts, ports)
            self._append(puts, ports, connection, call, atomic=False, fields=self._receipt_fields, delayed=delayed)
        except Refusal as refusal:
            self._refuse(connection, call, refusal, 1)

    def send_batch(self, connection: Connection, call: Call) -> None:
        """Store a batch, all or nothing (D8); receipts per message on request. Empty: 0 (R100)."""
        request = scan_send_batch(call)
        if not request.messages:
            connection.answer(encode_result_reply(call, ResultCode.OK, "empty batch"))
            return
        puts: list[Put] = []
        ports: list[TopicPort] = []
        try:
            try:
                delayed = self._check(request.messages, puts, ports)
            except Refusal as refusal:
                _give_tokens_back(ports)
                text = f"message {len(puts)} of {len(request.messages)}: {refusal.text}; nothing of the batch is stored"
                raise Refusal(refusal.code, text) from refusal
            fields = self._batch_fields if request.receipts else _no_fields
            self._append(puts, ports, connection, call, atomic=True, fields=fields, delayed=delayed)
        except Refusal as refusal:
            self._refuse(connection, call, refusal, len(request.messages))

    def send_delay(self, connection: Connection, call: Call) -> None:
        """Refuse a delay message: no topic of this version is a delay topic (D21, code 18)."""
        scan_delay(call)
        self._metrics.counter(SENDS_REFUSED, str(int(ResultCode.FAIL_TOPIC_IS_NOT_DELAY))).add()
        text = "this version has no delay topics: send the message with sendSync"
        connection.answer(encode_delay_result_reply(call, ResultCode.FAIL_TOPIC_IS_NOT_DELAY, text, ""))

    # Messages.

    def _check(self, messages: Sequence[SendMessage], puts: list[Put], ports: list[TopicPort]) -> Sequence[int]:
        """Check messages in order and choose their queues.

        Returns:
            The places of those that are delayed, whose puts go to the schedule topic.

        Raises:
            Refusal: The message after those in `puts` and `ports` is refused; rate tokens were taken for these.
        """
        known_ports = self._ports
        body_bytes_max = self._body_bytes_max
        block_of = self._rules.block
        levels: dict[int, int] = {}
        # Unpacked at once: an attribute of a named tuple costs more than a local, and this runs for every message.
        for topic, key, value, hash_id, tags, partition_id, body, _, properties, level, deliver_at, delay in messages:
            port = known_ports.get(topic)
            if port is None:
                port = self._new_port(topic)
            content = value if body is None else body
            if not content or len(content) > body_bytes_max:
                raise self._body_refusal(content)
            if level or deliver_at or delay:
                levels[len(puts)] = _checked_level(level, deliver_at, delay)
            block = block_of(key, tags, properties)
            queues = port.queue_count
            if partition_id >= 0:
                queue_id = partition_id % queues
            elif partition_id < -1:
                queue_id = self._random.randrange(queues)
            elif hash_id:
                queue_id = abs(hash_id) % queues
            elif key:
                queue_id = (self._key_hash(key) & 0x7FFF_FFFF) % queues
            else:
                queue_id = port.round = (port.round + 1) % queues
            if port.guarded:
                if port.topic.message_type is not MessageType.MIXED:
                    ordered = bool(hash_id) or partition_id >= 0
                    delayed = bool(level or deliver_at or delay)
                    self._check_type(port.topic, MessageKind(False, delayed, ordered or bool(key), ordered))
                if port.limit is not None:
                    self._take_token(port)
            puts.append(_new_put(Put, (port.topic, queue_id, content, block, tags or b"", b"", 0, 0, 0, 0)))
            ports.append(port)
        if levels:
            self._delay(puts, ports, levels)
        return tuple(levels)

    def _delay(self, puts: list[Put], ports: list[TopicPort], levels: Mapping[int, int]) -> None:
        """Send puts, by place, to the schedule topic. Raises Refusal; the refused and those behind it are left out."""
        for place, level in levels.items():
            try:
                puts[place] = self._store.delayed.put(puts[place], level)
            except StoreError as error:
                _give_tokens_back(ports[place:])
                del puts[place:], ports[place:]
                raise self._store_refusal(error) from error

    def _body_refusal(self, content: Buffer | None) -> Refusal:
        if not content:
            return Refusal(ResultCode.FAIL_ILLEGAL_MSG, "the body is empty: neither body nor value holds a byte")
        text = f"the body has {len(content)} bytes, the limit is {self._body_bytes_max}"
        return Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)

    @staticmethod
    def _check_type(topic: Topic, kind: MessageKind) -> None:
        problem = mismatch(topic.message_type, kind)
        if problem is not None:
            code = _MISMATCH_CODES.get(problem, ResultCode.FAIL_ILLEGAL_MSG)
            raise Refusal(code, f"topic {topic.name} is of the type {topic.message_type}: it {problem}")

    @staticmethod
    def _take_token(port: TopicPort) -> None:
        limit = port.limit
        assert limit is not None, "called for limited topics"
        available = limit.available()
        if available is not None and available < 1:
            text = f"topic {port.topic.name} is above its maxTps: send more slowly"
            raise Refusal(ResultCode.FAIL_REFUSED_BY_RATE_LIMITER, text)
        limit.take(1)

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
        ports: list[TopicPort],
        connection: Connection,
        call: Call,
        *,
        atomic: bool,
        fields: Callable[[Sequence[Position]], _Fields],
        delayed: Sequence[int] = (),
    ) -> None:
        """Stage puts; the reply follows the flush that settles them. Raises Refusal when nothing was staged."""
        if self._state() == "draining":
            _give_tokens_back(ports)
            text = "the node is draining: send to another node, or again in a moment"
            raise Refusal(ResultCode.FAIL_SERVER_SHUTDOWN, text)
        if self._budget.level >= Pressure.REFUSING:
            _give_tokens_back(ports)
            text = "the node is short of memory (memoryMax): send again in a moment"
            raise Refusal(ResultCode.FAIL_REFUSED_BY_RATE_LIMITER, text)

        def done(error: StoreError | None) -> None:
            if error is not None:
                self._metrics.counter(SENDS_REFUSED, str(int(ResultCode.FAIL_UNKNOWN))).add(len(puts))
                slot.answer(encode_result_reply(call, ResultCode.FAIL_UNKNOWN, str(error)))
                return
            port = ports[0]
            if ports.count(port) == len(ports):
                port.messages.value += len(puts)
                port.body_bytes.value += sum([len(put[2]) for put in puts])
            else:
                for put, port in zip(puts, ports, strict=True):
                    port.messages.value += 1
                    port.body_bytes.value += len(put[2])
            slot.answer(encode_result_reply(call, ResultCode.OK, "OK", **fields(positions)))

        try:
            positions = self._store.append(
                puts,
                born_ms=self._clock.wall_ms(),
                born_host=self._born_host(connection.address),
                done=done,
                atomic=atomic,
            )
        except StoreError as error:
            _give_tokens_back(ports)
            raise self._store_refusal(error) from error
        for place in delayed:
            # Where it waits is of no use to a producer: what consumers get has another place.
            positions[place] = positions[place]._replace(queue_id=-1, offset=-1)
        slot = connection.later()
        # Puts are slices of the frame and keep all of it until they are written.
        self._budget.stage(len(call.frame))

    @staticmethod
    def _store_refusal(error: StoreError) -> Refusal:
        if isinstance(error, MessageRefused):
            return Refusal(ResultCode.FAIL_ILLEGAL_MSG, str(error))
        if isinstance(error, DiskFull):
            return Refusal(ResultCode.FAIL_UNKNOWN, f"disk full: {error}")
        return Refusal(ResultCode.FAIL_UNKNOWN, str(error))

    def _refuse(self, connection: Connection, call: Call, refusal: Refusal, count: int) -> None:
        self._metrics.counter(SENDS_REFUSED, str(int(refusal.code))).add(count)
        connection.answer(encode_result_reply(call, refusal.code, refusal.text))

    def _receipt_fields(self, positions: Sequence[Position]) -> _Fields:
        position = positions[0]
        if position.offset < 0:
            return {"msg_id": position.unique_key.decode()}
        return {
            "msg_id": position.unique_key.decode(),
            "qid": f"{self._qid_prefix}{position.queue_id}",
            "offset": position.offset,
        }

    def _batch_fields(self, positions: Sequence[Position]) -> _Fields:
        prefix = self._qid_prefix
        receipts = [
            Receipt(each.unique_key.decode(), f"{prefix}{each.queue_id}" if each.offset >= 0 else "", each.offset)
            for each in positions
        ]
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


def _give_tokens_back(ports: Sequence[TopicPort]) -> None:
    """Return the rate tokens of messages that are not stored after all."""
    for port in ports:
        if port.limit is not None:
            port.limit.take(-1)


def _checked_level(level: int | None, deliver_at_ms: int | None, delay_ms: int | None) -> int:
    """Return a message's delay level. Raises Refusal: it cannot be delayed so."""
    if deliver_at_ms or delay_ms:
        text = "delays by time are not in this version: leave deliverAtMs and delayMs out, or use delayLevel"
        raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
    if level is None or level < 0:
        text = f"delayLevel {level} is negative: use 1 and above (docs/delays.md), or leave it out"
        raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
    return level


def _no_fields(_: Sequence[Position]) -> _Fields:
    return {}
