"""sendDelaySync: DDMQ's delayed messages and loops, and their cancel (docs/loops.md).

A message is asked what every message is asked, then what is asked of delayed ones alone (R102), and goes to the log as
one timed message. The answer follows the flush that covers it, for a cancel too, and there always is one (W75).

DDMQ's client libraries send again whatever is not answered in 100 ms (S9). An add that comes again has the id of the
first and is answered like it, without being stored a second time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from broker.deduplication.deduplication import NumberedRun
from broker.errors import StoreError
from broker.format.java import queue_of_key, string_hash
from broker.log.durability import AwaitedSteps
from broker.log.put import LogPosition, Put, owned
from broker.runtime.bundle import Runtime
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
from proxy.services.access.guard import Guard, owner_of
from proxy.services.client_counts import check_pending, ending, last_due_ms, note_pending
from proxy.services.delay_rules import CANCEL, check_action, check_add, check_cancel
from proxy.services.kafka.ports import KafkaPort, Until
from proxy.services.kafka.sends import KafkaSends
from proxy.services.keyed_sends import Again, KeyedSends, delay_id, keyed
from proxy.services.limited_sends import LimitedSends
from proxy.services.message_checks import MessageChecks, give_tokens_back, store_refusal
from proxy.services.message_rules import Refusal
from proxy.services.publishing import Publishing
from proxy.services.sinks import CheckedSend, Route
from proxy.services.topic_port import TopicPort
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
_Add = tuple[str, str, str | None]
"""Its topic, its id, and whose it is: what another principal adds under the same id is another message."""
_OUTCOMES = {CancelEffect.CANCELLED: 1, CancelEffect.TOO_LATE: 2, CancelEffect.UNKNOWN: 3}
"""As `DelayResult.cancelOutcome` (D33)."""
_OUTCOME_TEXTS = {
    CancelEffect.CANCELLED: "cancelled",
    CancelEffect.TOO_LATE: "too late: the last delivery has been made",
    CancelEffect.UNKNOWN: "unknown: the topic does not have this message, or its records were deleted",
}


class DelayService:
    """The handler of sendDelaySync.

    Args:
        checks: What messages are asked.
        publishing: Stores and answers.
        keyed_sends: Knows what was sent before.
        limited: Sends above a rate that are tried again.
        guard: Looks at rights, where there are rules.
        loops: Makes what waits.
        timers: What waits, where it is cancelled.
        kafka: Takes what is for Kafka; None where there is no cluster.
        runtime: Wall clock; runs the steps of cancels; counts.
        interval_max: Longest interval of a loop, seconds.
    """

    def __init__(  # noqa: PLR0917 - what all its calls share
        self,
        checks: MessageChecks,
        publishing: Publishing,
        keyed_sends: KeyedSends,
        limited: LimitedSends,
        guard: Guard,
        loops: Loops,
        timers: Timers,
        *,
        kafka: KafkaSends | None,
        runtime: Runtime,
        interval_max: int,
    ) -> None:
        self._checks = checks
        self._publishing = publishing
        self._keyed = keyed_sends
        self._limited = limited
        self._guard = guard
        self._loops = loops
        self._timers = timers
        self._route = Route(publishing, kafka, keyed_sends.stored)
        self._random = runtime.random
        metrics = self._metrics = runtime.metrics
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._runner = StepRunner(partial(runtime.scheduler.call_later, 0))
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
            self._publishing.refuse_text(slot, error, partial(_refused, ""))
            return
        take = partial(self._take, slot, message, timeout_ms)
        if connection in self._limited.waiting:
            self._limited.follow(slot, take)
        else:
            take()

    def _take(self, slot: ReplySlot, message: Mapping[str, Any], timeout_ms: int | None) -> None:
        """Do what a call asks, or have it tried again where it is above a rate."""
        said, connection = "", slot.connection
        try:
            if connection.rights is not None:
                self._guard.topic(connection, "sendDelaySync", message.get("topic", ""))
                key = message.get("uniqKey") if message.get("action") != CANCEL else None
                self._guard.numbers(connection, "sendDelaySync", None if key is None else key.encode())
            judged = self._judge(message)
            if judged is not None and judged.places:
                encode = partial(self._stored_again, message)
                self._keyed.answer(slot, [message["uniqKey"].encode()], judged, encode, partial(_refused, ""))
                return
            put, port = self._check(message)
            if check_action(message) == CANCEL:
                said = message.get("uniqDelayMsgId", "")
                cancelled = check_cancel(message)
                self._checks.charge(port)
                self._cancel(slot, port, cancelled, timeout_ms)
                return
            now_s = self._clock.wall_ms() // 1000
            occurrence = check_add(message, now_s=now_s, interval_max=self._interval_max)
            self._checks.charge(port)
            self._add(slot, put, port, occurrence, judged, timeout_ms)
        except Refusal as refusal:
            take = partial(self._take, slot, message, timeout_ms)
            if not self._limited.wait(refusal, slot, timeout_ms, take):
                self._publishing.refuse(slot, refusal, 1, partial(_refused, said))

    def _judge(self, message: Mapping[str, Any]) -> NumberedRun | None:
        """Say what is known of an add that has a number of its producer's. Raises Refusal."""
        key = message.get("uniqKey")
        if key is None or message.get("action") == CANCEL:
            return None
        return self._keyed.judge([key.encode()])

    def _stored_again(self, message: Mapping[str, Any], call: Call, again: Sequence[Again], repeat: Repeat) -> bytes:
        """Answer an add that was answered before, or should have been."""
        said = delay_id(again[0])
        if not said:
            # Its record is gone; what it asked for says its id as well.
            with contextlib.suppress(Refusal):
                said = check_add(message, now_s=self._clock.wall_ms() // 1000, interval_max=self._interval_max).id
        return encode_delay_result_reply(call, ResultCode.OK, "OK", said, repeat=repeat)

    def _check(self, message: Mapping[str, Any]) -> tuple[Put, TopicPort]:
        """Ask what every message is asked, but for its rate, which is its topic's (R105). Raises Refusal."""
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
        puts: list[Put] = []
        ports: list[TopicPort] = []
        self._checks.check([sent], puts, ports, charge=False)
        return puts[0], ports[0]

    def _add(  # noqa: PLR0917 - what was found out of one message
        self,
        slot: ReplySlot,
        put: Put,
        port: TopicPort,
        occurrence: Occurrence,
        judged: NumberedRun | None,
        timeout_ms: int | None,
    ) -> None:
        """Have a message or loop wait. Raises Refusal; its token is given back."""
        connection = slot.connection
        owner = owner_of(connection)
        key = put.topic.name, occurrence.id, owner
        if key in self._recent:
            give_tokens_back([port])
            self._repeat(slot, key)
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
        put = put if judged is None else keyed(put, judged.key)
        stored, refused = partial(self._stored, key), partial(self._not_stored, key)
        self._route.append(CheckedSend(slot, [put], [port], stored, refused, judged, timeout_ms))
        if connection.quota is not None:
            note_pending(connection, [last_due_ms(occurrence)])
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

    def _stored(self, key: _Add, call: Call, _: Sequence[LogPosition]) -> bytes:
        for slot in self._recent.get(key) or ():
            slot.answer(_stored_reply(slot.call, key[1]))
        self._recent[key] = None
        return _stored_reply(call, key[1])

    def _not_stored(
        self, key: _Add, call: Call, code: ResultCode, text: str, *, retry_after_ms: int | None = None
    ) -> bytes:
        for slot in self._recent.pop(key, None) or ():
            slot.answer(_refused("", slot.call, code, text))
        return _refused("", call, code, text, retry_after_ms=retry_after_ms)

    def _cancel(self, slot: ReplySlot, port: TopicPort, occurrence: Occurrence, timeout_ms: int | None) -> None:
        """Begin to cancel; what arrived before is flushed and visible when the first step runs (D18)."""
        try:
            self._publishing.check_open()
        except Refusal:
            give_tokens_back([port])
            raise
        slot.wait()
        owner, ended = owner_of(slot.connection), ending(slot.connection, occurrence)
        if isinstance(port, KafkaPort):
            answer = partial(self._cancelled_in_kafka, slot, occurrence, ended)
            identity = Identity(port.topic.name, owner or "", occurrence.first.id)
            port.waiting.requests.ask(identity, 0, (timeout_ms or CANCEL_MS) / 1000, answer)
            return
        steps = cancelling_delay(self._timers, port.topic.name, occurrence, owner=owner)
        self._scheduler.call_later(0, self._runner.run, self._answering(steps, slot, occurrence, ended))

    def _cancelled_in_kafka(
        self, slot: ReplySlot, occurrence: Occurrence, ended: Callable[[], None], said: str
    ) -> None:
        self._cancelled(slot, occurrence, ended, _KAFKA_OUTCOMES.get(said, CancelEffect.UNKNOWN))

    def _cancelled(
        self, slot: ReplySlot, occurrence: Occurrence, ended: Callable[[], None], outcome: CancelEffect
    ) -> None:
        """Answer a cancel that was decided."""
        self._metrics.counter(counted.CANCELS, outcome.value).add()
        if outcome is CancelEffect.CANCELLED:
            ended()
        text = _OUTCOME_TEXTS[outcome]
        slot.answer(encode_delay_result_reply(slot.call, ResultCode.OK, text, occurrence.id, _OUTCOMES[outcome]))

    def _answering(
        self,
        steps: AwaitedSteps[CancelEffect],
        slot: ReplySlot,
        occurrence: Occurrence,
        ended: Callable[[], None],
    ) -> AwaitedSteps[None]:
        try:
            outcome = yield from steps
        except (StoreError, OSError) as error:
            refusal = Refusal(ResultCode.FAIL_UNKNOWN, str(error))
            self._publishing.refuse(slot, refusal, 1, partial(_refused, occurrence.id))
        else:
            self._cancelled(slot, occurrence, ended, outcome)


def _encoded(properties: Mapping[str, str]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    return tuple(name.encode() for name in properties), tuple(value.encode() for value in properties.values())


def _stored_reply(call: Call, delay_id: str) -> bytes:
    return encode_delay_result_reply(call, ResultCode.OK, "OK", delay_id)


def _refused(delay_id: str, call: Call, code: ResultCode, text: str, *, retry_after_ms: int | None = None) -> bytes:
    """Encode a refusal; that of a cancel has the id that it was given (R106)."""
    return encode_delay_result_reply(call, code, text, delay_id, retry_after_ms=retry_after_ms)
