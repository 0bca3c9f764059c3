"""ProducerService: sendSync, sendAsync and sendBatchSync; `proxy.delay_service` has sendDelaySync.

A message is checked by DDMQ's rules, gets a queue and RocketMQ's property block (`proxy.message_checks`), and its body
goes to the log as the slice of the received frame. The reply is queued when the flush that covers the record has
returned (`proxy.publishing`, D1). A batch is validated whole and stored whole or not at all (D8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from broker.store import Position, Put
from broker.timer.handle import RecallHandle
from proxy.connection import Connection
from proxy.message_checks import MessageChecks, give_tokens_back
from proxy.message_rules import Refusal
from proxy.publishing import Publishing
from proxy.server import Handler
from proxy.topic_ports import TopicPort
from proxy.wire import (
    Call,
    Receipt,
    encode_result_reply,
    scan_send,
    scan_send_batch,
)
from proxy.wire.codes import ResultCode

HEARTBEAT_TOPIC = b"carrera_heartbeat"
"""R90: a send to it is answered 0 and stores nothing."""

_NONE_WAITS: Mapping[int, int] = {}


class ProducerService:
    """The handlers of the producer port.

    Args:
        checks: What messages are asked.
        publishing: Stores and answers.
        qid_prefix: Text in front of the queue number in a qid, "<cluster>_<broker>_".
        broker_name: Stands in the handles of timers.
    """

    def __init__(self, checks: MessageChecks, publishing: Publishing, *, qid_prefix: str, broker_name: str) -> None:
        self._checks = checks
        self._publishing = publishing
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
        message = scan_send(call).message
        if message.topic == HEARTBEAT_TOPIC:
            connection.answer(encode_result_reply(call, ResultCode.OK, "heartbeat"))
            return
        puts: list[Put] = []
        ports: list[TopicPort] = []
        stored = self._stored
        try:
            delays = self._checks.check([message], puts, ports)
            if delays:
                waiting = self._checks.delay(puts, ports, delays)
                if waiting:
                    stored = partial(self._stored_waiting, ports[0], waiting[0])
            self._publishing.append(puts, ports, connection, call, stored=stored)
        except Refusal as refusal:
            self._publishing.refuse(connection, call, refusal, 1)

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
                delays = self._checks.check(request.messages, puts, ports)
                waiting = self._checks.delay(puts, ports, delays) if delays else _NONE_WAITS
            except Refusal as refusal:
                give_tokens_back(ports)
                text = f"message {len(puts)} of {len(request.messages)}: {refusal.text}; nothing of the batch is stored"
                raise Refusal(refusal.code, text) from refusal
            stored = partial(self._stored_batch, ports, waiting) if request.receipts else _stored_untold
            self._publishing.append(puts, ports, connection, call, stored=stored, atomic=True)
        except Refusal as refusal:
            self._publishing.refuse(connection, call, refusal, len(request.messages))

    # Replies.

    def _stored(self, call: Call, positions: Sequence[Position]) -> bytes:
        queue_id, offset, _, unique_key = positions[0]
        return encode_result_reply(
            call, ResultCode.OK, "OK", msg_id=unique_key.decode(), qid=f"{self._qid_prefix}{queue_id}", offset=offset
        )

    def _stored_waiting(self, port: TopicPort, out_ms: int, call: Call, positions: Sequence[Position]) -> bytes:
        """Without a place: where it waits is of no use to a producer, what consumers get has another."""
        unique_key = positions[0].unique_key.decode()
        handle = self._handle(port, out_ms, unique_key)
        return encode_result_reply(call, ResultCode.OK, "OK", msg_id=unique_key, handle=handle)

    def _stored_batch(
        self, ports: Sequence[TopicPort], waiting: Mapping[int, int], call: Call, positions: Sequence[Position]
    ) -> bytes:
        prefix = self._qid_prefix
        receipts = [Receipt(each.unique_key.decode(), f"{prefix}{each.queue_id}", each.offset) for each in positions]
        for place, out_ms in waiting.items():
            unique_key = receipts[place].msg_id
            receipts[place] = Receipt(unique_key, "", -1, self._handle(ports[place], out_ms, unique_key))
        return encode_result_reply(call, ResultCode.OK, "OK", receipts=receipts)

    def _handle(self, port: TopicPort, out_ms: int, unique_key: str) -> str | None:
        """Return what names a timer; messages of a delay level have no handle (reference 5.6)."""
        return str(RecallHandle(port.topic.name, self._broker_name, out_ms + 1, unique_key)) if out_ms else None


def _stored_untold(call: Call, _: Sequence[Position]) -> bytes:
    return encode_result_reply(call, ResultCode.OK, "OK")
