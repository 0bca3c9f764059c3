"""Declarations of writes: a sendBatchSync without messages that has a `declaration` (docs/deduplication.md#writes)."""

from __future__ import annotations

import re
from typing import NamedTuple

from broker.deduplication.numbers import first_number, parse_key
from broker.deduplication.writes import PARTITIONS_MAX, Declaration, WriteLedger, WriteVerdict
from proxy.port.reply_slot import ReplySlot
from proxy.services.access.guard import Guard
from proxy.services.message_rules import Refusal
from proxy.services.publishing import Publishing, encode_refusal, illegal
from proxy.wire.errors import MessageError
from proxy.wire.generic.calls import decode_arguments
from proxy.wire.replies import encode_result_reply
from pyddmq.codes import Repeat, ResultCode

_is_digest = re.compile(r"[0-9a-f]{32}").fullmatch
_CODES = {
    WriteVerdict.SEND: ResultCode.OK,
    WriteVerdict.SKIP: ResultCode.OK,
    WriteVerdict.FORGOTTEN: ResultCode.FAIL_GAP,
    WriteVerdict.DIFFERS: ResultCode.FAIL_WRITE_DIFFERS,
    WriteVerdict.WAITS: ResultCode.FAIL_WRITE_WAITS,
}


class WriteService:
    """Answers declarations for the producer port."""

    def __init__(self, ledger: WriteLedger, publishing: Publishing, guard: Guard) -> None:
        self._ledger = ledger
        self._publishing = publishing
        self._guard = guard

    def answer(self, slot: ReplySlot) -> bool:
        """Answer a call without messages when it declares; returns whether it does."""
        connection, call = slot.connection, slot.call
        try:
            fields = decode_arguments(call).get("declaration")
            if fields is None:
                return False
            declaration = _declaration(fields)
            if connection.rights is not None:
                self._guard.topic(connection, call.method, fields.get("topic", ""))
                for each in (declaration.name.encode(), declaration.producer):
                    self._guard.numbers(connection, call.method, b"%b%012X" % (each, first_number(each)))
            self._publishing.check_open()
        except (MessageError, Refusal) as error:
            refusal, count = (illegal(error), error.count) if isinstance(error, MessageError) else (error, 1)
            self._publishing.refuse(slot, refusal, encode_refusal(call, refusal), count)
            return True
        slot.wait()
        self._ledger.declare(declaration, _Declared(slot, declaration.producer.decode()).decided)
        return True


class _Declared(NamedTuple):
    """A declaration that waits for its verdict."""

    slot: ReplySlot
    name: str

    def decided(self, verdict: WriteVerdict, text: str) -> None:
        """Answer."""
        repeat = Repeat.FIRST_RECEIPT if verdict is WriteVerdict.SKIP else None
        slot = self.slot
        slot.answer(encode_result_reply(slot.call, _CODES[verdict], text, msg_id=self.name, repeat=repeat))


def _declaration(fields: dict[str, object]) -> Declaration:
    """Return what the fields of a Write say. Raises Refusal."""
    name, producer = str(fields.get("name", "")), str(fields.get("producer", "")).encode()
    run, digest = str(fields.get("run", "")), str(fields.get("digest", ""))
    batch, partition, rows = (fields.get(each, -1) for each in ("batch", "partition", "rows"))
    assert isinstance(batch, int), "the interface definition says so"
    assert isinstance(partition, int), "the interface definition says so"
    assert isinstance(rows, int), "the interface definition says so"
    wrong = [each for each in (name.encode(), producer) if parse_key(each + b"F" * 12) is None]
    if wrong or not _is_digest(run) or not _is_digest(digest):
        text = "a write needs a name and a producer of 20 digits, and a run and a digest of 32 (docs/deduplication.md)"
        raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
    if batch < 0 or rows < 0 or not 0 <= partition <= PARTITIONS_MAX:
        text = f"batch and rows of a write must not be negative, and a batch has at most {PARTITIONS_MAX} partitions"
        raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
    return Declaration(name, batch, run, partition, rows, digest, bool(fields.get("ends")), producer)
