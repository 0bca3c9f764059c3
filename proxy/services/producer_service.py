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

from collections.abc import Iterator, Sequence

from broker.deduplication.deduplication import MISSING
from broker.deduplication.numbers import NAME_BYTES
from broker.log.put import LogPosition, Put
from broker.scheduled.timer.handle import RecallHandle
from proxy.port.calls_pass import PassLine
from proxy.port.reply_slot import ReplySlot
from proxy.services.access.guard import owner_of
from proxy.services.client_counts import check_pending, note_pending, take_back_pending
from proxy.services.kafka.ports import KafkaPort
from proxy.services.message_checks import give_tokens_back
from proxy.services.message_rules import Refusal
from proxy.services.publishing import ScannedSend, SendRun, StagedRun, encode_refusal, illegal
from proxy.services.send_call import Again
from proxy.services.stations import StationedSend, Stations
from proxy.services.topic_port import TopicPort
from proxy.services.write_service import WriteService
from proxy.wire import replies
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
_new_send = tuple.__new__


class ProducerService:
    """The sends of the producer port.

    Args:
        stations: What all its services share.
        writes: Answers declarations of writes.
        qid_prefix: Text in front of the queue number in a qid, "<cluster>_<broker>_".
        broker_name: Stands in the handles of timers.

    Attributes:
        line: Handles the sends of a pass.
    """

    def __init__(self, stations: Stations, *, writes: WriteService, qid_prefix: str, broker_name: str) -> None:
        self.stations = stations
        self.writes = writes
        self.qid_prefix = qid_prefix
        self.broker_name = broker_name
        self._qid_bytes = qid_prefix.encode()
        self._waiting = stations.limited.waiting
        self.line = PassLine(("sendSync", "sendAsync", "sendBatchSync"), self.take, awaits_disk=stations.kafka is None)

    def take(self, slots: Sequence[ReplySlot]) -> None:
        """Handle the sends of a pass, in order of arrival."""
        run = SendRun()
        neighbours: list[ScannedSend] = []
        for send in self._scanned(slots):
            if self._is_plain(send):
                neighbours.append(send)
                continue
            if neighbours:
                self._check(neighbours, run)
                neighbours = []
            SingleCall(self, send, None if send.slot.connection in self._waiting else run).begin()
        if neighbours:
            self._check(neighbours, run)
        self.stage(run)

    # Scan

    def _scanned(self, slots: Sequence[ReplySlot]) -> Iterator[ScannedSend]:
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
                refusal = illegal(error, text)
                self.stations.publishing.refuse(slot, refusal, encode_refusal(call, refusal), error.count)
            except Exception as error:
                connection.fail(slot, error)

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
            and connection not in self._waiting
        )

    # Check, and the sink

    def _check(self, sends: Sequence[ScannedSend], run: SendRun) -> None:
        """Check plain sends, and have those for the store join a run."""
        while sends:
            puts: list[Put] = []
            ports: list[TopicPort] = []
            stop: Exception | None = None
            try:
                self.stations.checks.check([send.messages[0] for send in sends], puts, ports)
            except Exception as error:
                stop = error
            if self.stations.kafka is not None and any(port.in_kafka for port in ports):
                for send, put, port in zip(sends, puts, ports, strict=False):
                    if port.in_kafka:
                        SingleCall(self, send).send_on(put, port)
                    else:
                        run.sends.append(send)
                        run.puts.append(put)
                        run.ports.append(port)
            else:
                run.sends += sends[: len(puts)]
                run.puts += puts
                run.ports += ports
            if stop is None:
                return
            send, sends = sends[len(puts)], sends[len(puts) + 1 :]
            SingleCall(self, send).fail(stop)
            if self._waiting:
                for each in sends:
                    if each.slot.connection in self._waiting:
                        SingleCall(self, each).begin()
                sends = [each for each in sends if each.slot.connection not in self._waiting]

    # Stage, and write

    def stage(self, run: SendRun) -> None:
        """Stage what has joined a run; the run is empty then."""
        if not run.puts:
            return
        staged = StagedRun(self.stations.publishing, run, self._encoded)
        if self.stations.publishing.append_run(staged):
            for place, call in staged.special.items():
                if call.judged is not None:
                    self.stations.keyed.stored(call.judged, [staged.positions[place]])
            return
        for place, (send, put, port) in enumerate(zip(staged.sends, staged.puts, staged.ports, strict=True)):
            (staged.special.get(place) or SingleCall(self, send)).send_on(put, port)

    def _encoded(self, run: StagedRun) -> list[bytes]:
        """Encode the replies of a run."""
        positions = run.positions
        encoded = replies.encode_stored_replies([send.slot.call for send in run.sends], positions, self._qid_bytes)
        for place, call in run.special.items():
            # A number alone changes nothing of a reply.
            if call.waiting:
                encoded[place] = call.stored((positions[place],))
        return encoded


class SingleCall(StationedSend):
    """A send, or a batch, that is taken by itself.

    Attributes:
        messages: What it sends.
        receipts: As in `ScannedSend`.
        missing: Of a batch that was stored in part, places of the messages that were not.
        dues_ms: When its messages that wait are due, as they are counted.
    """

    __slots__ = ("_run", "_service", "dues_ms", "messages", "missing", "receipts")

    def __init__(self, service: ProducerService, send: ScannedSend, run: SendRun | None = None) -> None:
        """Set up.

        Args:
            service: Whose.
            send: What was scanned.
            run: Single messages join it where they are taken at once; its caller stages it.
        """
        slot, self.messages, timeout_ms, self.receipts = send
        super().__init__(service.stations, slot, timeout_ms, len(self.messages))
        self._service = service
        self._run = run
        self.atomic = self.receipts is not None
        self.missing: Sequence[int] = ()
        self.dues_ms: Sequence[int] = ()

    def take(self) -> None:
        """Authorize, judge and check; then it joins a run, or goes to its sink. Raises Refusal."""
        run, self._run = self._run, None
        joined = SendRun() if run is None else run
        if self.slot.connection.rights is not None and self.messages:
            self._authorize()
        if self.receipts is None:
            self._take_single(joined)
            if run is None:
                self._service.stage(joined)
        else:
            self._service.stage(joined)
            self._take_batch()

    def _authorize(self) -> None:
        """Look at the rights to topics and numbers. Raises Refusal."""
        connection, method, guard = self.slot.connection, self.slot.call.method, self.stations.guard
        guard.produce(connection, method, self.messages)
        first = next((each.unique_key for each in self.messages if each.unique_key is not None), None)
        guard.numbers(connection, method, first, self.count)

    def _take_single(self, run: SendRun) -> None:
        """Judge and check a single message, and have it join a run or go to Kafka. Raises Refusal."""
        key = self.messages[0].unique_key
        if key is not None:
            if key[:NAME_BYTES] in run.producers:
                # What its producer numbered before it is known once it is staged.
                self._service.stage(run)
            self.keys = (key,)
            if self.is_decided():
                return
        self._check(self.messages)
        if self.ports[0].in_kafka:
            self.append()
            return
        if key is not None or self.waiting:
            run.special[len(run.puts)] = self
        if key is not None:
            run.producers.add(key[:NAME_BYTES])
        run.sends.append(_new_send(ScannedSend, (self.slot, self.messages, self.timeout_ms, None)))
        run.puts += self.puts
        run.ports += self.ports

    def _take_batch(self) -> None:
        """Stage a batch, or what of it is not stored yet, all or nothing (D8); empty: a declaration, or 0 (R100)."""
        slot, messages = self.slot, self.messages
        if not messages:
            if not self._service.writes.answer(slot):
                slot.answer(encode_result_reply(slot.call, _OK, "empty batch"))
            return
        if messages[0].unique_key is not None:
            self.keys = [message.unique_key for message in messages]
            if self.is_decided():
                return
            self.missing = [at for at, place in enumerate(self._places) if place == MISSING]
            if self.missing:
                messages = [messages[at] for at in self.missing]
        try:
            self._check(messages)
        except Refusal as refusal:
            give_tokens_back(self.ports)
            refusal.text = _of_batch(len(self.puts), len(messages), refusal.text)
            raise
        self.append()

    @property
    def _places(self) -> list[int]:
        """Where its messages were stored before, as `NumberedRun` has it."""
        return [] if self.judged is None else list(self.judged.places or ())

    def _check(self, messages: Sequence[SendMessage]) -> None:
        """Check messages; puts that are to wait become so, where their client may have more. Raises Refusal."""
        checks, connection = self.stations.checks, self.slot.connection
        puts: list[Put] = []
        ports: list[TopicPort] = []
        self.puts, self.ports = puts, ports
        delays = checks.check(messages, puts, ports, keyed=self.judged is not None)
        self.waiting = {}
        if not delays:
            return
        dues_ms = checks.dues_ms(delays.values())
        try:
            check_pending(connection, len(dues_ms), checks.now_ms)
        except Refusal:
            place = min(delays)
            give_tokens_back(ports[place:])
            del puts[place:], ports[place:]
            raise
        self.waiting = checks.delay(puts, ports, delays, owner_of(connection))
        note_pending(connection, dues_ms)
        self.dues_ms = dues_ms

    # Replies

    def stored_again(self, again: Sequence[Again], repeat: Repeat) -> bytes:
        """Encode the reply of a call that was answered before, or should have been."""
        call, receipts = self.slot.call, [self.stations.keyed.receipt(each) for each in again]
        if self.receipts:
            return encode_result_reply(call, _OK, "OK", receipts=receipts, repeat=repeat)
        if len(receipts) > 1:
            return encode_result_reply(call, _OK, "OK", repeat=repeat)
        [(msg_id, qid, offset, handle)] = receipts
        place = (qid, offset) if qid else (None, None)
        return encode_result_reply(
            call, _OK, "OK", msg_id=msg_id, qid=place[0], offset=place[1], handle=handle, repeat=repeat
        )

    def stored(self, positions: Sequence[LogPosition]) -> bytes:
        """Encode the reply of messages that may wait, or be in Kafka.

        What waits has no place: that is of no use to a producer, and what consumers get has another.
        """
        call = self.slot.call
        if self.missing:
            places = self._places
            for at, position in zip(self.missing, positions, strict=True):
                places[at] = position.physical
            return self.stored_again(*self.stations.keyed.found(self.keys, places))
        if self.receipts is False:
            return encode_result_reply(call, _OK, "OK")
        receipts = []
        for at, (port, (queue_id, offset, _, unique_key)) in enumerate(zip(self.ports, positions, strict=True)):
            key = unique_key.decode()
            if at in self.waiting:
                receipts.append(Receipt(key, "", -1, self._handle(port, self.waiting[at], key)))
            else:
                prefix = port.qid_prefix if isinstance(port, KafkaPort) else self._service.qid_prefix
                receipts.append(Receipt(key, f"{prefix}{queue_id}", offset))
        if self.receipts:
            return encode_result_reply(call, _OK, "OK", receipts=receipts)
        [(key, qid, offset, handle)] = receipts
        if not qid:
            return encode_result_reply(call, _OK, "OK", msg_id=key, handle=handle)
        return encode_result_reply(call, _OK, "OK", msg_id=key, qid=qid, offset=offset)

    def _handle(self, port: TopicPort, out_ms: int, unique_key: str) -> str | None:
        """Return what names a timer; messages of a delay level have no handle (reference 5.6)."""
        name = port.cluster if isinstance(port, KafkaPort) else self._service.broker_name
        return str(RecallHandle(port.topic.name, name, out_ms + 1, unique_key)) if out_ms else None

    def refused(self, refusal: Refusal) -> bytes:
        """Encode the reply when not all are stored."""
        take_back_pending(self.slot.connection, self.dues_ms, refusal)
        return encode_refusal(self.slot.call, refusal)


def _of_batch(place: int, count: int, text: str) -> str:
    return f"message {place} of {count}: {text}; nothing of the batch is stored"
