"""Sends of which some messages, or all, go to Kafka topics: what is under way, and the one answer of each call.

A record is handed to its cluster's producer, which works in threads of its own, so nothing here waits; messages of the
same call for the node's own store are staged as ever. The call is answered when each of its messages is decided, or
when its timeout has passed, with code 12: what comes later is counted, and known to who sends it again with its
number.

A call that is stored in part, or may be, has code 12 as well. So one that is refused with another code has nothing
stored of it, and a producer that counts on that (D39) is not misled. Kafka's records go first, since it is Kafka that
refuses at this point: when the first one is, nothing of the call is stored.

What waits for a cluster is bounded in bytes, a share of `memoryMax` for each: one that hangs takes no room from the
store, nor from another cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.deduplication.deduplication import ELSEWHERE, MISSING
from broker.errors import StoreError
from broker.format.properties import parse_properties
from broker.log.put import LogPosition, Put
from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from broker.runtime.metrics import declare
from broker.runtime.seams import Scheduler
from proxy.services.kafka.codes import is_unknown_topic, refusal_of
from proxy.services.kafka.numbers import KafkaNumbers
from proxy.services.kafka.ports import BY_KEY, UNKNOWN_SECONDS, KafkaPort, refusal_to_wait
from proxy.services.message_checks import give_tokens_back, store_refusal
from proxy.services.message_rules import Refusal
from proxy.services.publishing import Publishing
from proxy.services.send_call import TakenSend
from proxy.services.topic_port import TopicPort
from pyddmq.codes import ResultCode
from upstream.kafka.headers import encode
from upstream.kafka.link import NOT_SENT, KafkaFailure, KafkaProducer, OutgoingRecord
from upstream.kafka.waiting.cluster import WaitingRefused
from upstream.kafka.waiting.records import Identity, WaitingRecord

KAFKA_FAILURES = declare(
    "pyddmq_kafka_sends_failed_total",
    "Messages rejected by a Kafka cluster, by its own code",
    ("cluster", "code"),
)
KAFKA_LATE = declare(
    "pyddmq_kafka_sends_late_total",
    "Messages for Kafka whose outcome became known after their send was answered with code 12; by outcome: "
    "stored, failed",
    ("cluster", "outcome"),
)
KAFKA_WAITING = declare(
    "pyddmq_kafka_sends_waiting", "Messages in flight to a Kafka cluster", ("cluster",), kind="gauge"
)

ANSWER_SECONDS = 10.0
"""When a send without a timeout of its own is answered at the latest (R98: DDMQ's call of a broker)."""
SHARE = 4
"""Kafka's share of memoryMax, for all clusters together: a quarter."""
RECORD_BYTES = 1024
"""What a record takes besides its frame while it is under way: its copy's headers, the producer's and our own parts."""

_UNSENT = "not sent, since another message of its call was refused"


class _Sending:
    """A call of which something is under way.

    Attributes:
        send: What it sends.
        keys: UNIQ_KEY of each message.
        outcomes: Of each where it is, or why it is not; None while that is not known.
        handed: The records that went to a producer.
        left: How many are not known.
        answered: Its timeout has passed.
        timer: Brings that about.
    """

    __slots__ = ("_sends", "answered", "handed", "keys", "left", "outcomes", "send", "timer")

    def __init__(self, sends: KafkaSends, send: TakenSend, keys: list[bytes], scheduler: Scheduler) -> None:
        self._sends = sends
        self.send = send
        self.keys = keys
        self.outcomes: list[LogPosition | Refusal | None] = [None] * len(keys)
        self.handed: list[_Handed] = []
        self.left = len(keys)
        self.answered = False
        self.timer = Later(scheduler, self._time_out)

    @property
    def numbered(self) -> bool:
        """Whether its messages have numbers."""
        return self.send.judged is not None

    def _time_out(self) -> None:
        self._sends.time_out(self)


@dataclass(slots=True, eq=False)
class _Handed:
    """A record that went to a producer; called at its end (`upstream.kafka.link.Produced`)."""

    sends: KafkaSends
    sending: _Sending
    at: int
    port: KafkaPort
    producer: KafkaProducer
    body_bytes: int
    size: int

    def __call__(self, failure: KafkaFailure | None, partition: int, offset: int) -> None:
        """Take its end."""
        self.sends.reported(self, failure, partition, offset)


class _Repeated:
    """A send whose messages are under way already: it is taken again when these are decided, or times out."""

    __slots__ = ("_send", "_timer")

    def __init__(self, send: TakenSend, scheduler: Scheduler) -> None:
        self._send = send
        self._timer = Later(scheduler, self._time_out)
        self._timer.after(_seconds(send.timeout_ms))
        send.park()

    def ended(self) -> None:
        """They are decided."""
        if self._send.slot.data is None:
            self._timer.cancel()
            self._send.go_on()

    def _time_out(self) -> None:
        self._send.unpark()
        text = "the message was sent before, and its Kafka cluster has not responded; it may be stored"
        self._send.refuse(Refusal(ResultCode.FAIL_TIMEOUT, text))


class KafkaSends:
    """What the producer port has under way to Kafka.

    Args:
        publishing: Stages, counts and logs refusals.
        numbers: Knows numbered messages.
        runtime: Clock, timers, metrics.
        new_keys: Makes UNIQ_KEYs for messages without one, given how many and the wall clock.
        clusters: How many clusters share the room.

    Attributes:
        waiting: Calls that are not decided.
    """

    def __init__(
        self,
        publishing: Publishing,
        numbers: KafkaNumbers,
        *,
        runtime: Runtime,
        new_keys: Callable[[int, int], list[bytes]],
        clusters: int,
    ) -> None:
        self.waiting = 0
        self.numbers = numbers
        self._publishing = publishing
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._metrics = runtime.metrics
        self._new_keys = new_keys
        self._clusters = clusters
        self._bytes: dict[str, int] = {}
        """Bytes under way by cluster."""

    def append(self, send: TakenSend) -> None:
        """Send messages on their ways; the reply follows when all are decided, or at the call's timeout.

        Its encoder is given the commit-log offset ELSEWHERE for what is in a partition.

        Raises:
            Refusal: Nothing was sent; rate tokens were given back.
        """
        slot, puts, ports, judged = send.slot, send.puts, send.ports, send.judged
        try:
            self._publishing.check_open()
            self._check_room(puts, ports)
        except Refusal:
            give_tokens_back(ports)
            raise
        now_ms = self._clock.wall_ms()
        keys = [put.unique_key or self._new_keys(1, now_ms)[0] for put in puts]
        sending = _Sending(self, send, keys, self._scheduler)
        places = [MISSING] * len(puts)
        in_store = [at for at, port in enumerate(ports) if not port.in_kafka]
        if self._produce(sending) is None and in_store:
            self._stage(sending, in_store, places)
            self._publishing.budget.stage(len(slot.call.frame))
        # Nothing of the frame is kept but its header: producers have copies of the bodies.
        slot.wait()
        self.waiting += 1
        if judged is not None:
            self.numbers.begin(judged, places, keys)
            for key, outcome in zip(keys, sending.outcomes, strict=True):
                if isinstance(outcome, Refusal):
                    self.numbers.missing(key)
        sending.timer.after(_seconds(send.timeout_ms))

    def wait(self, send: TakenSend) -> bool:
        """Have a send whose messages are under way already taken again when these are decided; False: none is."""
        if not self.numbers.is_under_way(send.keys):
            return False
        self.numbers.when_ended(send.keys, _Repeated(send, self._scheduler).ended)
        return True

    # Sending

    def _check_room(self, puts: Sequence[Put], ports: Sequence[TopicPort]) -> None:
        """Check that there is room for what is to wait for its clusters. Raises Refusal."""
        room = self._publishing.budget.limit // SHARE // max(1, self._clusters)
        wanted: dict[str, int] = {}
        for put, port in zip(puts, ports, strict=True):
            if isinstance(port, KafkaPort):
                wanted[port.cluster] = wanted.get(port.cluster, 0) + _size(put)
        for cluster, size in wanted.items():
            under_way = self._bytes.get(cluster, 0)
            if under_way and under_way + size > room:
                text = f"{under_way} bytes wait for Kafka cluster {cluster}, slow or not reached; send more slowly"
                raise Refusal(ResultCode.FAIL_REFUSED_BY_RATE_LIMITER, text)

    def _produce(self, sending: _Sending) -> Refusal | None:
        """Hand over what goes to Kafka, in order, until one is refused: that and all else has its outcome then.

        Raises:
            Refusal: The first one was refused: nothing was sent; rate tokens were given back.
        """
        under_way = 0
        puts, ports = sending.send.puts, sending.send.ports
        for at, (put, port) in enumerate(zip(puts, ports, strict=True)):
            if not isinstance(port, KafkaPort):
                continue
            try:
                self._hand_over(sending, at, put, port)
            except Refusal as refusal:
                if not under_way:
                    give_tokens_back(ports)
                    raise
                for other, outside in enumerate(ports):
                    if other == at:
                        self._settle(sending, other, refusal)
                    elif other > at or not outside.in_kafka:
                        self._settle(sending, other, Refusal(refusal.code, _UNSENT))
                return refusal
            under_way += 1
        return None

    def _hand_over(self, sending: _Sending, at: int, put: Put, port: KafkaPort) -> None:
        """Give one record to its producer. Raises Refusal: it is not taken."""
        topic, producer = port.topic.name, port.producer
        if port.unknown_until and port.waits is None:
            if producer.partitions(topic):
                port.unknown_until = 0.0
            elif self._clock.monotonic() < port.unknown_until:
                raise refusal_of(KafkaFailure("UNKNOWN_TOPIC_OR_PART", "found so before"), port.cluster, topic)
        size = _size(put)
        handed = _Handed(self, sending, at, port, producer, len(put.body), size)
        record = record_of(put, port, sending.keys[at])
        try:
            producer.produce(*record, handed)
        except KafkaFailure as failure:
            raise self._failed(port, failure) from failure
        sending.handed.append(handed)
        self._bytes[port.cluster] = self._bytes.get(port.cluster, 0) + size
        self._publishing.budget.add(size)
        self._metrics.counter(KAFKA_WAITING, port.cluster).add()

    def _stage(self, sending: _Sending, at: Sequence[int], places: list[int]) -> None:
        """Stage the messages of a call that go to the store, all or none; those at `at` get their `places`."""
        positions: list[LogPosition] = []
        puts, ports = [sending.send.puts[each] for each in at], [sending.send.ports[each] for each in at]

        def done(error: StoreError | None) -> None:
            for number, place in enumerate(at):
                if error is not None:
                    self._settle(sending, place, Refusal(ResultCode.FAIL_UNKNOWN, str(error)))
                else:
                    _count(ports[number], len(puts[number].body))
                    self._settle(sending, place, positions[number])

        try:
            positions += self._publishing.stage(puts, sending.send.slot.connection, done, atomic=True)
        except StoreError as error:
            give_tokens_back(ports)
            for place in at:
                self._settle(sending, place, store_refusal(error))
            return
        for place, position in zip(at, positions, strict=True):
            places[place] = position.physical
            sending.keys[place] = position.unique_key

    # What becomes of it

    def reported(self, handed: _Handed, failure: KafkaFailure | None, partition: int, offset: int) -> None:
        """Take the end of a record."""
        sending, at, port, size = handed.sending, handed.at, handed.port, handed.size
        self._bytes[port.cluster] -= size
        self._publishing.budget.add(-size)
        self._metrics.counter(KAFKA_WAITING, port.cluster).add(-1)
        if sending.answered:
            self._metrics.counter(KAFKA_LATE, port.cluster, "stored" if failure is None else "failed").add()
        key = sending.keys[at]
        if failure is None:
            _count(port, handed.body_bytes)
            if sending.numbered:
                # What waits has no place that a consumer would know.
                waits = port.waits is not None
                self.numbers.stored(key, *(("", -1) if waits else (f"{port.qid_prefix}{partition}", offset)))
            self._settle(sending, at, LogPosition(partition, offset, ELSEWHERE, key))
            return
        if is_unknown_topic(failure):
            port.unknown_until = self._clock.monotonic() + UNKNOWN_SECONDS
        if sending.numbered:
            self.numbers.missing(key)
        self._settle(sending, at, self._failed(port, failure))

    def _failed(self, port: KafkaPort, failure: KafkaFailure) -> Refusal:
        self._metrics.counter(KAFKA_FAILURES, port.cluster, failure.code.lower()).add()
        topic = port.topic.name if port.waits is None else port.waiting.settings.topic
        return refusal_of(failure, port.cluster, topic)

    def _settle(self, sending: _Sending, at: int, outcome: LogPosition | Refusal) -> None:
        """Note what became of one message, once; the last one ends its call."""
        assert sending.outcomes[at] is None, "a message has one outcome"
        sending.outcomes[at] = outcome
        sending.left -= 1
        if not sending.left:
            self._end(sending)

    def _end(self, sending: _Sending) -> None:
        sending.timer.cancel()
        self.waiting -= 1
        if not sending.answered:
            self._answer(sending)
        if sending.numbered:
            self.numbers.end(sending.keys)

    def _answer(self, sending: _Sending) -> None:
        send, outcomes = sending.send, sending.outcomes
        slot = send.slot
        positions = [each for each in outcomes if isinstance(each, LogPosition)]
        count = len(outcomes)
        if len(positions) == count:
            self._publishing.took(slot.received_at, count)
            slot.answer(send.stored(positions))
            return
        send.refuse(Refusal(*self._verdict(sending, len(positions))), count - len(positions))

    def _verdict(self, sending: _Sending, stored: int) -> tuple[ResultCode, str]:
        """Return the code of a call that failed, and the sentence: of the first message that was refused for itself."""
        refusals = [(at, each) for at, each in enumerate(sending.outcomes) if isinstance(each, Refusal)]
        at, first = next((each for each in refusals if each[1].text != _UNSENT), refusals[0])
        code, count = first.code, len(sending.outcomes)
        text = first.text
        if count > 1:
            known = f"{stored} of the batch are stored" if stored else "nothing of the batch is known to be stored"
            text = f"message {at} of {count}: {text}; {known}"
        # What a producer numbered higher may be stored already: it must not give this number to another message.
        is_known = not stored and all(each.code is code for _, each in refusals)
        if not is_known or (sending.numbered and not self.numbers.is_last(sending.keys[-1])):
            code = ResultCode.FAIL_TIMEOUT
        return code, text

    def time_out(self, sending: _Sending) -> None:
        """Answer a call whose client is about to give it up; records that have not left the node are withdrawn."""
        for each in sending.handed:
            if sending.outcomes[each.at] is None and each.producer.withdraw(each):
                each(KafkaFailure(NOT_SENT, "its cluster did not respond within the timeout of the send"), -1, -1)
        if not sending.left:
            return
        sending.answered = True
        known = sum([isinstance(each, LogPosition) for each in sending.outcomes])
        text = "Kafka has not acknowledged it within the timeout of the send; it may still be stored"
        if len(sending.outcomes) > 1:
            text = f"{known} of {len(sending.outcomes)} messages are known to be stored; {text}"
        sending.send.refuse(Refusal(ResultCode.FAIL_TIMEOUT, text), len(sending.outcomes) - known)


def _seconds(timeout_ms: int | None) -> float:
    return timeout_ms / 1000 if timeout_ms and timeout_ms > 0 else ANSWER_SECONDS


def _size(put: Put) -> int:
    return len(put.body) + len(put.properties) + RECORD_BYTES


def _count(port: TopicPort, body_bytes: int) -> None:
    port.messages.value += 1
    port.body_bytes.value += body_bytes


def _waiting(port: KafkaPort, record: OutgoingRecord, unique_key: bytes) -> OutgoingRecord:
    """Return the record that has a message wait in its place. Raises Refusal."""
    waits = port.waits
    assert waits is not None, "the port of a message that waits"
    message = WaitingRecord(
        waits.due_ms, record.partition, record.key, record.value or b"", record.headers, waits.kind, waits.loop,
        half=waits.half, level=waits.level,
    )  # fmt: skip
    try:
        identity = Identity(port.topic.name, waits.principal, waits.id or unique_key.decode())
        return port.waiting.record(identity, message)
    except WaitingRefused as refused:
        raise refusal_to_wait(refused) from refused


def record_of(put: Put, port: KafkaPort, unique_key: bytes) -> OutgoingRecord:
    """Return a message's record, or the one that has it wait. Raises Refusal."""
    properties = parse_properties(put.properties)
    properties.pop("UNIQ_KEY", None)
    key, tag = properties.pop("KEYS", ""), properties.pop("TAGS", "")
    key_bytes, headers = encode(key, tag, properties, unique_key.decode())
    partition = None if put.queue_id == BY_KEY else put.queue_id
    record = OutgoingRecord(port.topic.name, partition, key_bytes, bytes(put.body), headers)
    return record if port.waits is None else _waiting(port, record, unique_key)
