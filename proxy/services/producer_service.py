"""ProducerService: sendSync, sendAsync and sendBatchSync; `proxy.services.delay_service` has sendDelaySync.

A message is checked by DDMQ's rules, gets a queue and RocketMQ's property block (`proxy.services.message_checks`), and
its body goes to the log as the slice of the received frame. The reply is queued when the flush that covers the record
has returned (`proxy.services.publishing`, D1). A batch is validated whole and stored whole or not at all (D8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from broker.deduplication.deduplication import MISSING, NumberedRun
from broker.log.put import LogPosition, Put
from broker.scheduled.timer.handle import RecallHandle
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.port.server import Handler
from proxy.services.access.guard import Guard, owner_of
from proxy.services.client_counts import check_pending, note_pending
from proxy.services.encoders import Stored
from proxy.services.kafka.ports import KafkaPort
from proxy.services.kafka.sends import KafkaSends
from proxy.services.keyed_sends import Again, KeyedSends
from proxy.services.limited_sends import LimitedSends
from proxy.services.message_checks import Delay, MessageChecks, give_tokens_back
from proxy.services.message_rules import Refusal
from proxy.services.publishing import Publishing
from proxy.services.topic_port import TopicPort
from proxy.services.write_service import WriteService
from proxy.wire.call import Call
from proxy.wire.errors import MessageError
from proxy.wire.replies import encode_result_reply
from proxy.wire.scanning.scan import scan_send, scan_send_batch
from proxy.wire.values import BatchCall, Receipt, SendMessage
from pyddmq.codes import Repeat, ResultCode

HEARTBEAT_TOPIC = b"carrera_heartbeat"
"""R90: a send to it is answered 0 and stores nothing."""

_OK = ResultCode.OK
_NONE_WAITS: Mapping[int, int] = {}


class ProducerService:
    """The handlers of the producer port.

    Args:
        checks: What messages are asked.
        publishing: Stores and answers.
        keyed: Knows what was sent before.
        limited: Sends above a rate that are tried again.
        kafka: Takes calls with messages for Kafka; None where the configuration has no cluster.
        writes: Answers declarations of writes.
        guard: Looks at rights, where there are rules.
        qid_prefix: Text in front of the queue number in a qid, "<cluster>_<broker>_".
        broker_name: Stands in the handles of timers.
    """

    def __init__(
        self,
        checks: MessageChecks,
        publishing: Publishing,
        keyed: KeyedSends,
        limited: LimitedSends,
        kafka: KafkaSends | None,
        *,
        writes: WriteService,
        guard: Guard,
        qid_prefix: str,
        broker_name: str,
    ) -> None:
        self._checks = checks
        self._publishing = publishing
        self._keyed = keyed
        self._limited = limited
        self._kafka = kafka
        self._writes = writes
        self._guard = guard
        self._qid_prefix = qid_prefix
        self._broker_name = broker_name

    def handlers(self) -> dict[str, Handler]:
        """Method name to handler."""
        return {
            "sendSync": self.send,
            "sendAsync": self.send,
            "sendBatchSync": self.send_batch,
        }

    def send(self, connection: Connection, call: Call) -> None:
        """Store one message; the reply carries message id, queue and offset."""
        try:
            message, timeout_ms = scan_send(call)
        except MessageError as error:
            self._publishing.refuse_text(connection, call, error)
            return
        connection.note_client(message.version)
        if message.topic == HEARTBEAT_TOPIC:
            connection.answer(encode_result_reply(call, _OK, "heartbeat"))
        elif connection in self._limited.waiting:
            self._limited.follow(connection, call, partial(self._send, connection, call, message, timeout_ms))
        else:
            self._send(connection, call, message, timeout_ms)

    def _send(
        self,
        connection: Connection,
        call: Call,
        message: SendMessage,
        timeout_ms: int | None,
        slot: ReplySlot | None = None,
        *,
        again: bool = True,
    ) -> None:
        """Store one message, or have it tried again where it is above a rate."""
        puts: list[Put] = []
        ports: list[TopicPort] = []
        stored = self._stored
        key, judged = message.unique_key, None
        rights = connection.rights
        if rights is not None and (key is not None or message.topic not in rights.produces):
            try:
                self._guard.produce(connection, call.method, (message,))
                self._guard.numbers(connection, call.method, key)
            except Refusal as refusal:
                self._publishing.refuse(connection, call, refusal, 1, slot=slot)
                return
        if key is not None and self._kafka is not None:
            after = partial(self._send, connection, call, message, timeout_ms)
            if self._kafka.wait([key], connection, call, timeout_ms=timeout_ms, slot=slot, again=after):
                return
        try:
            if key is not None:
                judged = self._keyed.judge([key])
                if judged.places:
                    encode = partial(self._stored_again, batch=False)
                    self._keyed.answer(connection, call, [key], judged, encode, refused=encode_result_reply, slot=slot)
                    return
            delays = self._checks.check([message], puts, ports, keyed=judged is not None)
            waiting = _NONE_WAITS
            if delays:
                waiting = self._wait(connection, puts, ports, delays)
                if waiting:
                    stored = partial(self._stored_waiting, ports[0], waiting[0])
            if self._kafka is not None and ports[0].in_kafka:
                self._kafka.append(
                    puts,
                    ports,
                    connection,
                    call,
                    stored=partial(self._stored_mixed, ports, waiting, False),
                    judged=judged,
                    timeout_ms=timeout_ms,
                    slot=slot,
                )
                return
            positions = self._publishing.append(puts, ports, connection, call, stored=stored, slot=slot)
            if judged is not None:
                self._keyed.stored(judged, positions)
        except Refusal as refusal:
            retry = partial(self._send, connection, call, message, timeout_ms, again=False)
            if not (
                again and self._limited.wait(refusal, connection, call, timeout_ms=timeout_ms, slot=slot, again=retry)
            ):
                self._publishing.refuse(connection, call, refusal, 1, slot=slot)

    def send_batch(self, connection: Connection, call: Call) -> None:
        """Store a batch, all or nothing (D8); receipts per message on request. Empty: a declaration, or 0 (R100)."""
        try:
            request = scan_send_batch(call)
        except MessageError as error:
            text = _of_batch(error.place or 0, error.count, str(error))
            refusal = Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
            self._publishing.refuse(connection, call, refusal, error.count)
            return
        if not request.messages:
            if not self._writes.answer(connection, call):
                connection.answer(encode_result_reply(call, _OK, "empty batch"))
            return
        connection.note_client(request.messages[0].version)
        if connection in self._limited.waiting:
            self._limited.follow(connection, call, partial(self._send_batch, connection, call, request))
        else:
            self._send_batch(connection, call, request)

    def _send_batch(
        self,
        connection: Connection,
        call: Call,
        request: BatchCall,
        slot: ReplySlot | None = None,
        *,
        again: bool = True,
    ) -> None:
        """Store a batch, or have it tried again where it is above a rate; it has no timeout to go by."""
        try:
            if connection.rights is not None:
                self._guard.produce(connection, call.method, request.messages)
                first = next((each.unique_key for each in request.messages if each.unique_key is not None), None)
                self._guard.numbers(connection, call.method, first, len(request.messages))
            if request.messages[0].unique_key is None:
                self._append_batch(connection, call, request, slot)
                return
            keys = [message.unique_key for message in request.messages]
            after = partial(self._send_batch, connection, call, request)
            if self._kafka is None or not self._kafka.wait(
                keys, connection, call, timeout_ms=None, slot=slot, again=after
            ):
                self._append_numbered(connection, call, request, slot)
        except Refusal as refusal:
            retry = partial(self._send_batch, connection, call, request, again=False)
            if not (again and self._limited.wait(refusal, connection, call, timeout_ms=None, slot=slot, again=retry)):
                self._publishing.refuse(connection, call, refusal, len(request.messages), slot=slot)

    def _append_batch(
        self,
        connection: Connection,
        call: Call,
        request: BatchCall,
        slot: ReplySlot | None,
        *,
        judged: NumberedRun | None = None,
        stored: Stored | None = None,
    ) -> list[LogPosition]:
        """Check and stage a batch, or what of one is to be stored. Raises Refusal.

        Returns:
            Where each message is staged; empty where some go to Kafka.
        """
        puts: list[Put] = []
        ports: list[TopicPort] = []
        try:
            delays = self._checks.check(request.messages, puts, ports, keyed=judged is not None)
            waiting = self._wait(connection, puts, ports, delays) if delays else _NONE_WAITS
        except Refusal as refusal:
            give_tokens_back(ports)
            refusal.text = _of_batch(len(puts), len(request.messages), refusal.text)
            raise
        if self._kafka is not None and any(port.in_kafka for port in ports):
            if stored is None:
                stored = partial(self._stored_mixed, ports, waiting, True) if request.receipts else _stored_untold
            self._kafka.append(puts, ports, connection, call, stored=stored, judged=judged, timeout_ms=None, slot=slot)
            return []
        if stored is None:
            stored = partial(self._stored_batch, ports, waiting) if request.receipts else _stored_untold
        return self._publishing.append(puts, ports, connection, call, stored=stored, atomic=True, slot=slot)

    def _wait(
        self, connection: Connection, puts: list[Put], ports: list[TopicPort], delays: Mapping[int, Delay]
    ) -> dict[int, int]:
        """Turn puts into ones that wait, where their client may have more of these; see `MessageChecks.delay`."""
        if connection.quota is None:
            return self._checks.delay(puts, ports, delays, owner_of(connection))
        dues_ms = self._checks.dues_ms(delays.values())
        try:
            check_pending(connection, len(dues_ms), self._checks.now_ms)
        except Refusal:
            place = min(delays)
            give_tokens_back(ports[place:])
            del puts[place:], ports[place:]
            raise
        waiting = self._checks.delay(puts, ports, delays, owner_of(connection))
        # What is refused after this counts all the same until it would be due: the disk is full then, or worse.
        note_pending(connection, dues_ms)
        return waiting

    def _append_numbered(self, connection: Connection, call: Call, request: BatchCall, slot: ReplySlot | None) -> None:
        """Store a batch whose messages have numbers, or what of it is not stored yet. Raises Refusal."""
        keys = [message.unique_key for message in request.messages]
        judged = self._keyed.judge(keys)
        if not judged.places:
            positions = self._append_batch(connection, call, request, slot, judged=judged)
            if positions:
                self._keyed.stored(judged, positions)
            return
        encode = partial(self._stored_again, batch=request.receipts)
        given = [key for key in keys if key is not None]
        missing = [at for at, place in enumerate(judged.places) if place == MISSING]
        if not missing:
            self._keyed.answer(connection, call, given, judged, encode, refused=encode_result_reply, slot=slot)
            return
        places = list(judged.places)

        def stored(call: Call, positions: Sequence[LogPosition]) -> bytes:
            for at, position in zip(missing, positions, strict=True):
                places[at] = position.physical
            return encode(call, *self._keyed.found(given, places))

        rest = request._replace(messages=[request.messages[at] for at in missing])
        positions = self._append_batch(connection, call, rest, slot, judged=judged, stored=stored)
        if positions:
            self._keyed.stored(judged, positions)

    # Replies.

    def _stored_again(self, call: Call, again: Sequence[Again], repeat: Repeat, *, batch: bool) -> bytes:
        """Encode the reply of a call that was answered before, or should have been."""
        receipts = [self._keyed.receipt(each) for each in again]
        if batch:
            return encode_result_reply(call, _OK, "OK", receipts=receipts, repeat=repeat)
        if len(receipts) > 1:
            return encode_result_reply(call, _OK, "OK", repeat=repeat)
        [(msg_id, qid, offset, handle)] = receipts
        place = (qid, offset) if qid else (None, None)
        return encode_result_reply(
            call, _OK, "OK", msg_id=msg_id, qid=place[0], offset=place[1], handle=handle, repeat=repeat
        )

    def _stored(self, call: Call, positions: Sequence[LogPosition]) -> bytes:
        queue_id, offset, _, unique_key = positions[0]
        return encode_result_reply(
            call, _OK, "OK", msg_id=unique_key.decode(), qid=f"{self._qid_prefix}{queue_id}", offset=offset
        )

    def _stored_waiting(self, port: TopicPort, out_ms: int, call: Call, positions: Sequence[LogPosition]) -> bytes:
        """Without a place: where it waits is of no use to a producer, what consumers get has another."""
        unique_key = positions[0].unique_key.decode()
        handle = self._handle(port, out_ms, unique_key)
        return encode_result_reply(call, _OK, "OK", msg_id=unique_key, handle=handle)

    def _stored_batch(
        self, ports: Sequence[TopicPort], waiting: Mapping[int, int], call: Call, positions: Sequence[LogPosition]
    ) -> bytes:
        prefix = self._qid_prefix
        receipts = [Receipt(each.unique_key.decode(), f"{prefix}{each.queue_id}", each.offset) for each in positions]
        for place, out_ms in waiting.items():
            unique_key = receipts[place].msg_id
            receipts[place] = Receipt(unique_key, "", -1, self._handle(ports[place], out_ms, unique_key))
        return encode_result_reply(call, _OK, "OK", receipts=receipts)

    def _stored_mixed(
        self,
        ports: Sequence[TopicPort],
        waiting: Mapping[int, int],
        is_batch: bool,
        call: Call,
        positions: Sequence[LogPosition],
    ) -> bytes:
        """Of messages of which some are in Kafka."""
        receipts = []
        for at, (port, (queue_id, offset, _, unique_key)) in enumerate(zip(ports, positions, strict=True)):
            key = unique_key.decode()
            if at in waiting:
                receipts.append(Receipt(key, "", -1, self._handle(port, waiting[at], key)))
            else:
                prefix = port.qid_prefix if isinstance(port, KafkaPort) else self._qid_prefix
                receipts.append(Receipt(key, f"{prefix}{queue_id}", offset))
        if is_batch:
            return encode_result_reply(call, _OK, "OK", receipts=receipts)
        [(key, qid, offset, handle)] = receipts
        if not qid:
            return encode_result_reply(call, _OK, "OK", msg_id=key, handle=handle)
        return encode_result_reply(call, _OK, "OK", msg_id=key, qid=qid, offset=offset)

    def _handle(self, port: TopicPort, out_ms: int, unique_key: str) -> str | None:
        """Return what names a timer; messages of a delay level have no handle (reference 5.6)."""
        name = port.cluster if isinstance(port, KafkaPort) else self._broker_name
        return str(RecallHandle(port.topic.name, name, out_ms + 1, unique_key)) if out_ms else None


def _of_batch(place: int, count: int, text: str) -> str:
    return f"message {place} of {count}: {text}; nothing of the batch is stored"


def _stored_untold(call: Call, _: Sequence[LogPosition]) -> bytes:
    return encode_result_reply(call, _OK, "OK")
