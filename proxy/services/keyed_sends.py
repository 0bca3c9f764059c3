"""Sends whose messages have a number of their producer's: new ones are let through, repeats answered (D39).

What is asked here comes before every other check, so that a repeat takes no rate token and is answered whatever the
node is about to do. docs/deduplication.md has the rules.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.deduplication.deduplication import Deduplication, NumberedRun
from broker.errors import MessageRefused, StoreError
from broker.format.numbers import whole_number
from broker.format.properties import find_property
from broker.format.record import RecordSummary
from broker.format.wait_properties import REAL_TOPIC_NAME
from broker.log.put import LogPosition, Put
from broker.scheduled.delay.levels import SCHEDULE_NAME
from broker.scheduled.timer.handle import RecallHandle
from broker.scheduled.timer.names import TIMER_NAME
from broker.store import Store
from proxy.services.kafka.numbers import KafkaNumbers
from proxy.services.message_rules import Refusal
from proxy.services.send_call import Again, TakenSend
from proxy.wire.values import Receipt
from pyddmq.codes import Repeat, ResultCode

_KEYS_NAME = b"KEYS"


class KeyedSends:
    """Judges and answers for the services of one producer port.

    Args:
        deduplication: What is known.
        store: Where records are read.
        qid_prefix: Text in front of the queue number in a qid.
        broker_name: Stands in the handles of timers.

    Attributes:
        in_kafka: What is known of messages that went to Kafka.
    """

    def __init__(
        self,
        deduplication: Deduplication,
        *,
        store: Store,
        qid_prefix: str,
        broker_name: str,
    ) -> None:
        self._deduplication = deduplication
        self.in_kafka = KafkaNumbers(deduplication)
        self._store = store
        self._qid_prefix = qid_prefix
        self._broker_name = broker_name

    def judge(self, keys: Sequence[bytes | None]) -> NumberedRun:
        """Say what is known of the messages of a call, of which the first has a key.

        Raises:
            Refusal: Their keys are wrong, or there is a gap before them.
        """
        given = [key for key in keys if key is not None]
        if len(given) != len(keys):
            text = "some messages of the batch have a uniqKey and others have none; set it for all or none"
            raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
        try:
            judged = self._deduplication.judge(given)
        except MessageRefused as error:
            raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, error.text) from error
        if judged.places is None or self.in_kafka.has_hole_before(judged):
            text = (
                f"message {given[0].decode()} follows a message of its producer that is missing here; "
                "resend from that message in order, or under a new name"
            )
            raise Refusal(ResultCode.FAIL_GAP, text)
        return judged

    def stored(self, judged: NumberedRun, positions: Sequence[LogPosition]) -> None:
        """Enter what was judged new and is staged now."""
        self._deduplication.stored(judged, [position.physical for position in positions])
        self.in_kafka.filled(judged, len(judged.places or positions))

    def answer(self, send: TakenSend) -> None:
        """Answer a call whose messages are all stored, or about to be, when they are durable."""
        assert send.judged is not None, "it was judged"
        send.slot.wait()
        if max(send.judged.places or ()) >= self._store.end:
            self._store.commit.when_reported(send.repeated)
        else:
            self.repeated(send, None)

    def repeated(self, send: TakenSend, error: StoreError | None) -> None:
        """Answer it now: they are durable, or the flush of one has failed."""
        assert send.judged is not None, "it was judged"
        places = send.judged.places or ()
        if error is None and max(places) >= self._store.end:
            # What was staged when the store failed is not returned to later callers.
            error = self._store.failed
        if error is not None:
            send.refuse(Refusal(ResultCode.FAIL_UNKNOWN, str(error)))
        else:
            send.slot.answer(send.stored_again(*self.found(send.keys, places)))

    def found(self, keys: Sequence[bytes | None], places: Sequence[int]) -> tuple[list[Again], Repeat]:
        """Look up messages that are stored; whether all of them were found."""
        record_of = self._deduplication.record_of
        again = [
            Again(key, record_of(key, place), self.in_kafka.receipt(key, place))
            for key, place in zip(keys, places, strict=True)
            if key is not None
        ]
        older = any(each.entry is None and each.in_kafka is None for each in again)
        return again, Repeat.OLDER if older else Repeat.FIRST_RECEIPT

    def receipt(self, again: Again) -> Receipt:
        """Return the first receipt of a message: its id alone where no more is known."""
        key, entry, in_kafka = again
        text = key.decode()
        if in_kafka is not None:
            return Receipt(text, *in_kafka)
        if entry is None or entry.topic == SCHEDULE_NAME:
            return Receipt(text, "", -1)
        if entry.topic == TIMER_NAME:
            return Receipt(text, "", -1, self._handle(entry, text))
        return Receipt(text, f"{self._qid_prefix}{entry.queue_id}", entry.queue_offset)

    def _handle(self, entry: RecordSummary, key: str) -> str | None:
        topic = find_property(entry.properties, REAL_TOPIC_NAME)
        out_ms = whole_number(find_property(entry.properties, b"TIMER_OUT_MS"))
        if not topic or out_ms is None:
            return None
        return str(RecallHandle(topic.decode("utf-8", "replace"), self._broker_name, out_ms + 1, key))


def delay_id(again: Again) -> str:
    """Return the id of a delayed message or loop; "" when it is not known any more."""
    keys = find_property(again.entry.properties, _KEYS_NAME) if again.entry is not None else None
    return (keys or b"").partition(b" ")[0].decode("utf-8", "replace")


def keyed(put: Put, key: bytes) -> Put:
    """Return a put with a key of its producer's, where what it was made of had none."""
    if put.unique_key:
        return put
    block = put.properties
    if block and not block.endswith(b"\x02"):
        block += b"\x02"
    return put._replace(properties=b"%bUNIQ_KEY\x01%b\x02" % (block, key), unique_key=key)
