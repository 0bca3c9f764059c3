"""Names and numbers of RocketMQ's transactions, and the private properties that this broker adds.

A transaction's handle is what a producer gives back to decide it, opaque to it.

`offset-physical-id`: queue offset and commit-log offset of the half in decimal digits, and the transaction's id. The
id finds the half again when it was put elsewhere in the log; the offsets only save the search.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple

from broker.feature import Feature, SystemTopic
from broker.format.numbers import whole_number

HANDLE_CHARS_MAX = 1024


class TransactionHandle(NamedTuple):
    """Queue offset and commit-log offset of the half, transaction id."""

    offset: int
    physical: int
    transaction_id: str

    def __str__(self) -> str:
        return f"{self.offset}-{self.physical}-{self.transaction_id}"


def parse_handle(text: str) -> TransactionHandle | None:
    """Return what a handle says; None when it is none."""
    offset, _, rest = text[: HANDLE_CHARS_MAX + 1].partition("-")
    physical, _, transaction_id = rest.partition("-")
    places = whole_number(offset), whole_number(physical)
    if len(text) > HANDLE_CHARS_MAX or not transaction_id or places[0] is None or places[1] is None:
        return None
    return TransactionHandle(places[0], places[1], transaction_id)


HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
"""Its offsets in `consumerOffset.json` show how far half and op queue are."""

HALF_NAME, OP_NAME, DISCARD_NAME = HALF_TOPIC.encode(), OP_TOPIC.encode(), DISCARD_TOPIC.encode()

OP_TAG = b"d"
SYS_COMMIT = 0x8

TRANSACTION = b"TRAN_MSG"
PRODUCER_GROUP = b"PGROUP"
REAL_TOPIC = b"REAL_TOPIC"
REAL_QUEUE = b"REAL_QID"
TRANSACTION_ID = b"__transactionId__"
CHECK_TIMES = b"TRANSACTION_CHECK_TIMES"
IMMUNITY = b"CHECK_IMMUNITY_TIME_IN_SECONDS"
PREPARED_OFFSET = b"TRAN_PREPARED_QUEUE_OFFSET"

DECISIONS = b"__PYDDMQ_DECISIONS"
"""Of an op record: a letter per member of its body (`Fate`)."""
LEVEL = b"__PYDDMQ_COMMIT_LEVEL"
DELIVER_AT = b"__PYDDMQ_COMMIT_AT_MS"
DELAY_MS = b"__PYDDMQ_COMMIT_DELAY_MS"
"""The delay that a commit starts: a level, a moment (ms since the epoch), or ms from the commit (D32)."""
AGE_MS = b"__PYDDMQ_HALF_AGE_MS"
"""Of a half that was put again: how old it was then, in ms of the broker's uptime."""


class State(IntEnum):
    """What a producer says of its transaction, in RocketMQ's numbers."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


class Fate(StrEnum):
    """What became of a half, as a letter of an op record; c and r are decisions, the others say where it is."""

    COMMITTED = "c"
    ROLLED_BACK = "r"
    MOVED = "m"
    DISCARDED = "d"


FATES = {State.COMMIT: Fate.COMMITTED, State.ROLLBACK: Fate.ROLLED_BACK}
STATES = {fate: state for state, fate in FATES.items()}

TRANSACTION_FEATURE = Feature(
    name="transaction", needs=("delay", "timer"), topics=(SystemTopic(name=HALF_TOPIC, published=True),)
)
"""Transactions, as `Store.open` takes them; a commit may start a delay."""
