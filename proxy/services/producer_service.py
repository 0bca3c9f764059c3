"""ProducerService: sendSync, sendAsync and sendBatchSync; `proxy.services.delay_service` has sendDelaySync.

The sends of a turn are handled as a list (`proxy.port.calls_pass`), station by station:

========== ==========================================================================================================
scan       bodies stay slices of the received frame; a message that breaks a rule of the wire is answered
authorize  rights to topics, and to the names of numbered messages
judge      numbered messages: repeats are answered, gaps refused (`proxy.services.keyed_sends`)
check      DDMQ's rules, queue, RocketMQ's property block, rates (`proxy.services.message_checks`): the usual ones of
           neighbours at once, the others one by one
sink       the store, or Kafka
stage      single sends of the store, up to a batch or the end of the pass, are one append (`SendRun`); a batch is
           one by itself, stored whole or not at all (D8)
write      when the flush that covers them has returned (`proxy.services.publishing`, D1)
========== ==========================================================================================================

Nothing is staged before all that came before it on its connection. A send above a rate leaves the list and waits for
its second try (`proxy.services.limited_sends`); later sends of its connection wait behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from broker.deduplication.deduplication import MISSING, NumberedRun
from broker.deduplication.numbers import NAME_BYTES
from broker.log.put import LogPosition, Put
from broker.scheduled.timer.handle import RecallHandle
from proxy.port.calls_pass import Fail, PassLine
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.services.access.guard import Guard, owner_of
from proxy.services.client_counts import check_pending, note_pending
from proxy.services.encoders import Stored
from proxy.services.kafka.ports import KafkaPort
from proxy.services.kafka.sends import KafkaSends
from proxy.services.keyed_sends import Again, KeyedSends
from proxy.services.limited_sends import LimitedSends
from proxy.services.message_checks import Delay, MessageChecks, give_tokens_back
from proxy.services.message_rules import Refusal
from proxy.services.publishing import Publishing, SendRun
from proxy.services.sinks import CheckedSend, Route
from proxy.services.topic_port import TopicPort
from proxy.services.write_service import WriteService
from proxy.wire import replies
from proxy.wire.call import Call
from proxy.wire.errors import MessageError
from proxy.wire.replies import encode_result_reply
from proxy.wire.scanning.scan import scan_send, scan_send_batch, scan_sends
from proxy.wire.values import Receipt, SendMessage
from pyddmq.codes import Repeat, ResultCode

HEARTBEAT_TOPIC = b"carrera_heartbeat"
"""R90: a send to it is answered 0 and stores nothing."""

_OK = ResultCode.OK
_PLAIN = (None, None, None, None)
"""The last fields of a message without delay and number."""
_NONE_WAITS: Mapping[int, int] = {}


class ScannedSend(NamedTuple):
    """A send that was scanned.

    Attributes:
        slot: Its place.
        messages: Its messages; none of a batch that is a declaration, or empty.
        timeout_ms: How long its client waits, as sent; None without such a bound.
        receipts: A batch: whether each message is to have its receipt. None: a single message.
    """

    slot: ReplySlot
    messages: Sequence[SendMessage]
    timeout_ms: int | None
    receipts: bool | None


_new_send = tuple.__new__


class ProducerService:
    """The sends of the producer port.

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

    Attributes:
        line: Handles the sends of a pass.
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
        self._route = Route(publishing, kafka, keyed.stored)
        self._writes = writes
        self._guard = guard
        self._qid_prefix = qid_prefix
        self._qid_bytes = qid_prefix.encode()
        self._broker_name = broker_name
        self.line = PassLine(("sendSync", "sendAsync", "sendBatchSync"), self.take, awaits_disk=kafka is None)

    def take(self, slots: Sequence[ReplySlot], fail: Fail) -> None:
        """Handle the sends of a pass, in order of arrival."""
        run = SendRun()
        neighbours: list[ScannedSend] = []
        for send in self._scanned(slots, fail):
            if self._is_plain(send):
                neighbours.append(send)
                continue
            if neighbours:
                self._check(neighbours, run, fail)
                neighbours = []
            if send.slot.connection in self._limited.waiting:
                self._follow(send, fail)
            else:
                self._guarded(send, fail, partial(self._one, send, run, fail))
        if neighbours:
            self._check(neighbours, run, fail)
        self._stage(run, fail)

    # Scan

    def _scanned(self, slots: Sequence[ReplySlot], fail: Fail) -> Iterator[ScannedSend]:
        usual = scan_sends([slot.call for slot in slots])
        for slot, found in zip(slots, usual, strict=True):
            call, connection = slot.call, slot.connection
            try:
                if call.method == "sendBatchSync":
                    messages, receipts = scan_send_batch(call)
                    if messages:
                        connection.note_client(messages[0].version)
                    yield _new_send(ScannedSend, (slot, messages, None, receipts))
                    continue
                message, timeout_ms = found or scan_send(call)
                if not connection.client:
                    connection.note_client(message.version)
                if message.topic == HEARTBEAT_TOPIC:
                    slot.answer(encode_result_reply(call, _OK, "heartbeat"))
                else:
                    yield _new_send(ScannedSend, (slot, (message,), timeout_ms, None))
            except MessageError as error:
                text = str(error)
                if call.method == "sendBatchSync":
                    text = _of_batch(error.place or 0, error.count, text)
                self._publishing.refuse_text(slot, error, text=text)
            except Exception as error:
                fail(slot, call, error)

    # Authorize

    def _is_plain(self, send: ScannedSend) -> bool:
        """Whether a send is a single message without number or delay, to a topic that its client may send to."""
        slot, messages, _, receipts = send
        if receipts is not None:
            return False
        (message,) = messages
        connection = slot.connection
        rights = connection.rights
        return (
            message[9:] == _PLAIN
            and (rights is None or message.topic in rights.produces)
            and connection not in self._limited.waiting
        )

    def _authorize(self, send: ScannedSend) -> None:
        """Look at the rights to topics and numbers. Raises Refusal."""
        connection, method, messages = send.slot.connection, send.slot.call.method, send.messages
        self._guard.produce(connection, method, messages)
        first = next((each.unique_key for each in messages if each.unique_key is not None), None)
        self._guard.numbers(connection, method, first, len(messages))

    # Check, and the sink

    def _check(self, sends: Sequence[ScannedSend], run: SendRun, fail: Fail) -> None:
        """Check plain sends, and have those for the store join a run."""
        while sends:
            puts: list[Put] = []
            ports: list[TopicPort] = []
            stop: Exception | None = None
            try:
                self._checks.check([send.messages[0] for send in sends], puts, ports)
            except Exception as error:
                stop = error
            if self._kafka is not None and any(port.in_kafka for port in ports):
                for send, put, port in zip(sends, puts, ports, strict=False):
                    if port.in_kafka:
                        self._guarded(send, fail, partial(self._route.append, self._checked(send, [put], [port])))
                    else:
                        run.add(send.slot, put, port)
            else:
                run.slots += [send.slot for send in sends[: len(puts)]]
                run.puts += puts
                run.ports += ports
            if stop is None:
                return
            send, sends = sends[len(puts)], sends[len(puts) + 1 :]
            self._failed(send, stop, fail)
            if self._limited.waiting:
                for each in sends:
                    if each.slot.connection in self._limited.waiting:
                        self._follow(each, fail)
                sends = [each for each in sends if each.slot.connection not in self._limited.waiting]

    def _checked(
        self,
        send: ScannedSend,
        puts: Sequence[Put],
        ports: Sequence[TopicPort],
        waiting: Mapping[int, int] = _NONE_WAITS,
        judged: NumberedRun | None = None,
        *,
        stored: Stored | None = None,
    ) -> CheckedSend:
        """Return what goes to a sink."""
        slot, _, timeout_ms, receipts = send
        is_batch = receipts is not None
        if stored is None:
            is_reported = receipts or not is_batch
            stored = partial(self._stored_mixed, ports, waiting, is_batch) if is_reported else _stored_unreported
        return CheckedSend(slot, puts, ports, stored, judged=judged, timeout_ms=timeout_ms, atomic=is_batch)

    # One by one

    def _guarded(self, send: ScannedSend, fail: Fail, work: Callable[[], None]) -> None:
        """Do a part of what a send asks; it is answered where that is refused or fails."""
        try:
            work()
        except Exception as error:
            self._failed(send, error, fail)

    def _failed(self, send: ScannedSend, error: Exception, fail: Fail) -> None:
        """Answer a send that is refused or failed, or have it tried once more where it is above a rate."""
        slot, messages, timeout_ms, _ = send
        if not isinstance(error, Refusal):
            fail(slot, slot.call, error)
        elif not self._limited.wait(error, slot, timeout_ms, partial(self._take_again, send, fail)):
            self._publishing.refuse(slot, error, len(messages))

    def _one(self, send: ScannedSend, run: SendRun, fail: Fail) -> None:
        """Take one send of any kind, behind those of a run."""
        if send.slot.connection.rights is not None and send.messages:
            self._authorize(send)
        if send.receipts is None:
            self._single(send, run, fail)
        else:
            self._stage(run, fail)
            self._batch(send, fail)

    def _single(self, send: ScannedSend, run: SendRun, fail: Fail) -> None:
        """Judge and check a single message, and have it join a run or go to Kafka. Raises Refusal."""
        slot, messages, _, _ = send
        key, judged, stored = messages[0].unique_key, None, None
        if key is not None:
            if key[:NAME_BYTES] in run.producers:
                # What its producer numbered before it is known once it is staged.
                self._stage(run, fail)
            if self._is_under_way(send, [key], fail):
                return
            judged = self._keyed.judge([key])
            if judged.places:
                self._keyed.answer(slot, [key], judged, partial(self._stored_again, batch=False), encode_result_reply)
                return
        puts: list[Put] = []
        ports: list[TopicPort] = []
        delays = self._checks.check(messages, puts, ports, keyed=judged is not None)
        waiting = self._wait(slot.connection, puts, ports, delays) if delays else _NONE_WAITS
        if ports[0].in_kafka:
            self._route.append(self._checked(send, puts, ports, waiting, judged))
            return
        if waiting:
            stored = partial(self._stored_mixed, ports, waiting, False)
        run.add(slot, puts[0], ports[0], stored, judged)
        if key is not None:
            run.producers.add(key[:NAME_BYTES])

    def _is_under_way(self, send: ScannedSend, keys: Sequence[bytes | None], fail: Fail) -> bool:
        """Whether a call's messages are on their way to Kafka already; then it is taken again when they are decided."""
        take = partial(self._take_again, send, fail)
        return self._kafka is not None and self._kafka.wait(keys, send.slot, send.timeout_ms, take)

    def _take_again(self, send: ScannedSend, fail: Fail) -> None:
        """Take a send that has waited."""
        run = SendRun()
        self._guarded(send, fail, partial(self._one, send, run, fail))
        self._stage(run, fail)

    def _follow(self, send: ScannedSend, fail: Fail) -> None:
        """Take a send when those of its connection that wait for a rate are answered."""
        self._limited.follow(send.slot, partial(self._take_again, send, fail))

    # Batches

    def _batch(self, send: ScannedSend, fail: Fail) -> None:
        """Stage a batch, or what of it is not stored yet, all or nothing (D8); empty: a declaration, or 0 (R100)."""
        slot, messages, _, receipts = send
        if not messages:
            if not self._writes.answer(slot):
                slot.answer(encode_result_reply(slot.call, _OK, "empty batch"))
            return
        if messages[0].unique_key is None:
            self._append_batch(send, messages)
            return
        keys = [message.unique_key for message in messages]
        if self._is_under_way(send, keys, fail):
            return
        judged = self._keyed.judge(keys)
        if not judged.places:
            self._append_batch(send, messages, judged)
            return
        encode = partial(self._stored_again, batch=bool(receipts))
        given = [key for key in keys if key is not None]
        missing = [at for at, place in enumerate(judged.places) if place == MISSING]
        if not missing:
            self._keyed.answer(slot, given, judged, encode, encode_result_reply)
            return
        places = list(judged.places)

        def stored(call: Call, positions: Sequence[LogPosition]) -> bytes:
            for at, position in zip(missing, positions, strict=True):
                places[at] = position.physical
            return encode(call, *self._keyed.found(given, places))

        self._append_batch(send, [messages[at] for at in missing], judged, stored)

    def _append_batch(
        self,
        send: ScannedSend,
        messages: Sequence[SendMessage],
        judged: NumberedRun | None = None,
        stored: Stored | None = None,
    ) -> None:
        """Check and stage a batch, or what of one is to be stored. Raises Refusal."""
        puts: list[Put] = []
        ports: list[TopicPort] = []
        try:
            delays = self._checks.check(messages, puts, ports, keyed=judged is not None)
            waiting = self._wait(send.slot.connection, puts, ports, delays) if delays else _NONE_WAITS
        except Refusal as refusal:
            give_tokens_back(ports)
            refusal.text = _of_batch(len(puts), len(messages), refusal.text)
            raise
        self._route.append(self._checked(send, puts, ports, waiting, judged, stored=stored))

    # Stage

    def _stage(self, run: SendRun, fail: Fail) -> None:
        """Stage what has joined a run; the run is empty then."""
        if not run.puts:
            return
        slots, puts, ports, special = run.take()
        positions = self._publishing.append_run(slots, puts, ports, partial(self._stored_run, special))
        if positions is not None:
            for place, (_, judged) in special.items():
                if judged is not None:
                    self._keyed.stored(judged, [positions[place]])
            return
        for place, (slot, put, port) in enumerate(zip(slots, puts, ports, strict=True)):
            stored, judged = special.get(place, (None, None))
            try:
                self._route.append(CheckedSend(slot, [put], [port], stored or self._stored, judged=judged))
            except Refusal as refusal:
                self._publishing.refuse(slot, refusal, 1)
            except Exception as error:
                fail(slot, slot.call, error)

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

    def _stored_run(
        self,
        special: Mapping[int, tuple[Stored | None, NumberedRun | None]],
        slots: Sequence[ReplySlot],
        positions: Sequence[LogPosition],
    ) -> list[bytes]:
        """Encode the replies of a run."""
        encoded = replies.encode_stored_replies([slot.call for slot in slots], positions, self._qid_bytes)
        for place, (stored, _) in special.items():
            if stored is not None:
                encoded[place] = stored(slots[place].call, (positions[place],))
        return encoded

    def _stored(self, call: Call, positions: Sequence[LogPosition]) -> bytes:
        queue_id, offset, _, unique_key = positions[0]
        return encode_result_reply(
            call, _OK, "OK", msg_id=unique_key.decode(), qid=f"{self._qid_prefix}{queue_id}", offset=offset
        )

    def _stored_mixed(
        self,
        ports: Sequence[TopicPort],
        waiting: Mapping[int, int],
        is_batch: bool,
        call: Call,
        positions: Sequence[LogPosition],
    ) -> bytes:
        """Of messages that may wait, or be in Kafka.

        What waits has no place: that is of no use to a producer, and what consumers get has another.
        """
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


def _stored_unreported(call: Call, _: Sequence[LogPosition]) -> bytes:
    return encode_result_reply(call, _OK, "OK")
