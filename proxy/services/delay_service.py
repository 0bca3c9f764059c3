"""sendDelaySync: DDMQ's delayed messages and loops, and their cancel (docs/loops.md).

A message is asked what every message is asked, then what is asked of delayed ones alone (R102), and goes to the log as
one timed message. The answer follows the flush that covers it, for a cancel too, and there always is one (W75).

DDMQ's client libraries send again whatever is not answered in 100 ms (S9). An add that comes again has the id of the
first and is answered like it, without being stored a second time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from broker.errors import StoreError
from broker.format.java import queue_of_key, string_hash
from broker.log.durability import AwaitedSteps
from broker.log.put import LogPosition, Put, owned
from broker.runtime.bundle import Runtime
from broker.runtime.metrics import Metrics
from broker.runtime.steps import StepRunner
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.recurring import metrics as counted
from broker.scheduled.recurring.cancel import cancelling_delay
from broker.scheduled.recurring.loops import Loops, delivered
from broker.scheduled.recurring.occurrence import Occurrence
from broker.scheduled.timer.timers import Timers
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.port.server import Handler
from proxy.services.access.guard import owner_of
from proxy.services.client_counts import check_pending, end_pending, last_due_ms, note_pending, take_back_pending
from proxy.services.delay_rules import CANCEL, check_action, check_add, check_cancel
from proxy.services.kafka.ports import KafkaPort, Until
from proxy.services.keyed_sends import delay_id, keyed
from proxy.services.message_checks import give_tokens_back, store_refusal
from proxy.services.message_rules import Refusal
from proxy.services.publishing import illegal
from proxy.services.send_call import Again
from proxy.services.stations import StationedSend, Stations
from proxy.wire.call import Call
from proxy.wire.errors import TextError
from proxy.wire.replies import encode_delay_result_reply
from proxy.wire.scanning.scan import scan_delay
from proxy.wire.values import SendMessage
from pyddmq.codes import Repeat, ResultCode
from upstream.kafka.waiting.records import CANCELLED, TOO_LATE, Identity

RECENT_MAX = 16_384
"""Adds that are known by their id if they come again."""
MARK = "from_chronos"
"""Property of a delivered delay message (R93; DDMQ's scheduler of delays is called chronos)."""
_ANY_LEVEL = 1
CANCEL_MS = 5_000
"""How long the owner of a message in Kafka is waited for, where the call has no timeout."""
_KAFKA_OUTCOMES = {CANCELLED: CancelEffect.CANCELLED, TOO_LATE: CancelEffect.TOO_LATE}
_KAFKA_UNKNOWN = "unknown: the topic does not have this message, or its owner has not responded; cancel it again"
_Add = tuple[str, str, str | None]
"""Its topic, its id, and whose it is: what another principal adds under the same id is another message."""
_OUTCOMES = {CancelEffect.CANCELLED: 1, CancelEffect.TOO_LATE: 2, CancelEffect.UNKNOWN: 3}
"""As `DelayResult.cancelOutcome` (D33)."""
_OUTCOME_TEXTS = {
    CancelEffect.CANCELLED: "cancelled",
    CancelEffect.TOO_LATE: "too late: the last delivery has been made",
    CancelEffect.UNKNOWN: "unknown: the topic does not have this message, or its records were deleted",
}


class _DelaySend(StationedSend):
    """An add or a cancel on its way.

    Attributes:
        message: What was sent.
        said: The id that its refusal has: of a cancel the one that it was given (R106).
        key: Which add it is, once that is known.
        counted: As what it is counted among those that wait; None: it is not.
    """

    __slots__ = ("_service", "counted", "key", "message", "said")

    def __init__(
        self, service: DelayService, slot: ReplySlot, message: Mapping[str, Any], timeout_ms: int | None
    ) -> None:
        super().__init__(service.stations, slot, timeout_ms)
        self._service = service
        self.message = message
        self.said = ""
        self.key: _Add | None = None
        self.counted: Occurrence | None = None
        key = message.get("uniqKey")
        if key is not None and message.get("action") != CANCEL:
            self.keys = (key.encode(),)

    def take(self) -> None:
        """Authorize, judge and check; then an add goes to its sink, and a cancel begins. Raises Refusal."""
        connection, message, service = self.slot.connection, self.message, self._service
        if connection.rights is not None:
            guard = self.stations.guard
            guard.topic(connection, "sendDelaySync", message.get("topic", ""))
            guard.numbers(connection, "sendDelaySync", self.keys[0] if self.keys else None)
        if self.keys and self.is_decided():
            return
        self.puts, self.ports = [], []
        service.check(self)
        if check_action(message) == CANCEL:
            self.said = message.get("uniqDelayMsgId", "")
            occurrence = check_cancel(message)
            self.stations.checks.charge(self.ports[0])
            service.cancel(self, occurrence)
        else:
            occurrence = service.check_add(message)
            self.stations.checks.charge(self.ports[0])
            service.add(self, occurrence)

    def stored(self, positions: Sequence[LogPosition]) -> bytes:
        """Encode the reply of an add, and answer those that wait for the same."""
        assert self.key is not None, "it was added"
        self._service.added(self.key)
        return _stored_reply(self.slot.call, self.key[1])

    def stored_again(self, again: Sequence[Again], repeat: Repeat) -> bytes:
        """Encode the reply of an add that was answered before, or should have been."""
        said = delay_id(again[0])
        if not said:
            # Its record is gone; what it asked for says its id as well.
            with contextlib.suppress(Refusal):
                said = self._service.check_add(self.message).id
        return encode_delay_result_reply(self.slot.call, ResultCode.OK, "OK", said, repeat=repeat)

    def refused(self, refusal: Refusal) -> bytes:
        """Encode a refusal; those that wait for the same add are refused with it."""
        if self.key is not None:
            self._service.not_added(self.key, refusal)
        if self.counted is not None:
            dues_ms = [last_due_ms(self.counted)]
            take_back_pending(self.slot.connection, dues_ms, refusal, self.counted.first.id)
        return _refused(self.slot.call, refusal, self.said)


class _Cancelling(NamedTuple):
    """A cancel under way."""

    send: _DelaySend
    occurrence: Occurrence
    metrics: Metrics

    def ended_in_kafka(self, said: str) -> None:
        """Answer by what the owner in Kafka says."""
        outcome = _KAFKA_OUTCOMES.get(said, CancelEffect.UNKNOWN)
        self._ended(outcome, _KAFKA_UNKNOWN if outcome is CancelEffect.UNKNOWN else _OUTCOME_TEXTS[outcome])

    def run(self, steps: AwaitedSteps[CancelEffect]) -> AwaitedSteps[None]:
        """Cancel step by step, then answer."""
        try:
            outcome = yield from steps
        except (StoreError, OSError) as error:
            self.send.said = self.occurrence.id
            self.send.refuse(Refusal(ResultCode.FAIL_UNKNOWN, str(error)))
        else:
            self._ended(outcome, _OUTCOME_TEXTS[outcome])

    def _ended(self, outcome: CancelEffect, text: str) -> None:
        self.metrics.counter(counted.CANCELS, outcome.value).add()
        slot, occurrence = self.send.slot, self.occurrence
        if outcome is CancelEffect.CANCELLED:
            end_pending(slot.connection, occurrence)
        slot.answer(encode_delay_result_reply(slot.call, ResultCode.OK, text, occurrence.id, _OUTCOMES[outcome]))


class DelayService:
    """The handler of sendDelaySync.

    Args:
        stations: What all services of its port share.
        loops: Makes what waits.
        timers: What waits, where it is cancelled.
        runtime: Wall clock; runs the steps of cancels; counts.
        interval_max: Longest interval of a loop, seconds.
    """

    def __init__(
        self, stations: Stations, loops: Loops, timers: Timers, *, runtime: Runtime, interval_max: int
    ) -> None:
        self.stations = stations
        self._checks = stations.checks
        self._loops = loops
        self._timers = timers
        self._random = runtime.random
        metrics = self._metrics = runtime.metrics
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._runner = StepRunner(self._next_turn)
        self._interval_max = interval_max
        self._recent: dict[_Add, list[ReplySlot] | None] = {}
        """Which add -> who else waits for its answer; None once it is stored."""
        self._repeated = metrics.counter(counted.REPEATED)

    def handlers(self) -> dict[str, Handler]:
        """Method name to handler."""
        return {"sendDelaySync": self.send_delay}

    def send_delay(self, connection: Connection, call: Call) -> None:
        """Add or cancel a delayed message."""
        slot = connection.later(call)
        try:
            message, timeout_ms = scan_delay(call)
        except TextError as error:
            refusal = illegal(error)
            self.stations.publishing.refuse(slot, refusal, _refused(call, refusal), error.count)
            return
        _DelaySend(self, slot, message, timeout_ms).begin()

    def check_add(self, message: Mapping[str, Any]) -> Occurrence:
        """Return what an add asks for. Raises Refusal."""
        return check_add(message, now_s=self._clock.wall_ms() // 1000, interval_max=self._interval_max)

    def check(self, send: _DelaySend) -> None:
        """Ask what every message is asked, but for its rate, which is its topic's (R105). Raises Refusal."""
        message = send.message
        # What consumers of DDMQ know a delayed message by, on every delivery of it.
        properties = {**message.get("properties", {}), MARK: "true"}
        topic = message.get("topic", "").encode()
        sent = SendMessage(
            topic=topic,
            key=None,
            value=None,
            hash_id=0,
            tags=message["tags"].encode() if message.get("tags") else None,
            # Where its partitions need not be known: a cancel has none.
            partition_id=0 if self._checks.cluster_of(topic) is None else -1,
            body=memoryview(message.get("body", b"")),
            version=None,
            properties=_encoded(properties),
            # Any delay: it is what a topic's message type looks at.
            delay_level=_ANY_LEVEL,
            deliver_at_ms=None,
            delay_ms=None,
        )
        self._checks.check([sent], send.puts, send.ports, charge=False)

    def add(self, send: _DelaySend, occurrence: Occurrence) -> None:
        """Have a message or loop wait. Raises Refusal; its token is given back."""
        connection, [put], [port] = send.slot.connection, send.puts, send.ports
        owner = owner_of(connection)
        key = put.topic.name, occurrence.id, owner
        if key in self._recent:
            give_tokens_back([port])
            self._repeat(send.slot, key)
            return
        try:
            if connection.quota is not None:
                check_pending(connection, 1, self._checks.now_ms)
            if isinstance(port, KafkaPort):
                port, put = self._until(port, put, occurrence, owner)
            else:
                # All occurrences of a loop in one queue: consumers get them in their order.
                queue_id = queue_of_key(occurrence.uuid, port.queue_count)
                put = self._loops.first(owned(put._replace(queue_id=queue_id), owner), occurrence)
        except (Refusal, StoreError) as error:
            give_tokens_back([port])
            raise store_refusal(error) if isinstance(error, StoreError) else error from error
        send.puts, send.ports = [put if send.judged is None else keyed(put, send.judged.key)], [port]
        send.key = key
        send.append()
        if connection.quota is not None:
            send.counted = occurrence
            note_pending(connection, [last_due_ms(occurrence)], occurrence.first.id)
        self._remember(key)

    def _until(self, port: KafkaPort, put: Put, occurrence: Occurrence, owner: str | None) -> tuple[KafkaPort, Put]:
        """Have a message of a Kafka topic wait there. Raises Refusal.

        Also one whose moment has passed: only the owner of its partition knows whether it was delivered before.
        """
        # All occurrences of a loop in one partition: consumers get them in their order.
        loop_hash = (string_hash(occurrence.uuid) or 1) if occurrence.is_loop else 0
        queue_id = port.place(-1, loop_hash, self._random)
        until = Until(occurrence.at_s * 1000, "loop", owner or "", occurrence.id, occurrence.id, always=True)
        port = port.until(until, self._clock.wall_ms())
        return port, delivered(put._replace(queue_id=queue_id), occurrence)

    def _remember(self, key: _Add) -> None:
        """Know an add that is under way, if it comes again."""
        if len(self._recent) >= RECENT_MAX:
            stored = [each for each, waiters in self._recent.items() if waiters is None]
            for old in stored[: RECENT_MAX // 2]:
                del self._recent[old]
        self._recent[key] = []

    def _repeat(self, slot: ReplySlot, key: _Add) -> None:
        """Answer an add that came before with what becomes, or became, of that."""
        self._repeated.add()
        waiters = self._recent[key]
        if waiters is None:
            slot.answer(_stored_reply(slot.call, key[1]))
        else:
            slot.wait()
            waiters.append(slot)

    def added(self, key: _Add) -> None:
        """Answer those that wait for an add: it is stored."""
        for slot in self._recent.get(key) or ():
            slot.answer(_stored_reply(slot.call, key[1]))
        self._recent[key] = None

    def not_added(self, key: _Add, refusal: Refusal) -> None:
        """Likewise: it is not."""
        refusal = Refusal(refusal.code, refusal.text)
        for slot in self._recent.pop(key, None) or ():
            slot.answer(_refused(slot.call, refusal))

    def cancel(self, send: _DelaySend, occurrence: Occurrence) -> None:
        """Begin to cancel; what arrived before is flushed and visible when the first step runs (D18)."""
        slot, port = send.slot, send.ports[0]
        try:
            self.stations.publishing.check_open()
        except Refusal:
            give_tokens_back([port])
            raise
        slot.wait()
        owner, cancelling = owner_of(slot.connection), _Cancelling(send, occurrence, self._metrics)
        if isinstance(port, KafkaPort):
            identity = Identity(port.topic.name, owner or "", occurrence.first.id)
            timeout_ms = send.timeout_ms if send.timeout_ms and send.timeout_ms > 0 else CANCEL_MS
            port.waiting.requests.ask(identity, 0, timeout_ms / 1000, cancelling.ended_in_kafka)
            return
        steps = cancelling_delay(self._timers, port.topic.name, occurrence, owner=owner)
        self._scheduler.call_later(0, self._runner.run, cancelling.run(steps))

    def _next_turn(self, step: Callable[[], object]) -> None:
        self._scheduler.call_later(0, step)


def _encoded(properties: Mapping[str, str]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    return tuple(name.encode() for name in properties), tuple(value.encode() for value in properties.values())


def _stored_reply(call: Call, delay_id: str) -> bytes:
    return encode_delay_result_reply(call, ResultCode.OK, "OK", delay_id)


def _refused(call: Call, refusal: Refusal, delay_id: str = "") -> bytes:
    return encode_delay_result_reply(call, refusal.code, refusal.text, delay_id, retry_after_ms=refusal.after_ms)
