"""RocketMQ's property block: `name 01 value 02`, pair after pair, in UTF-8; at most 32,767 bytes.

Nothing in it is escaped, so 0x01 and 0x02 in a name or value would shift everything behind them: they are refused
(D7). The block as stored ends in up to two properties of the broker's own, in this order: `__PYDDMQ_BATCH` on members
of an atomic batch and `__CRC32#` on every record (`broker.format.record`); readers here never show those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.errors import MessageRefused

PROPERTIES_BYTES_MAX = 32_767
CRC_NAME = "__CRC32#"
BATCH_NAME = "__PYDDMQ_BATCH"
_OWN_NAMES = frozenset((CRC_NAME, BATCH_NAME))


def encode_properties(pairs: Mapping[str, str] | Iterable[tuple[str, str]]) -> bytes:
    """Encode name and value pairs in their order; pairs with an empty value are left out, as a reader drops them.

    Raises:
        MessageRefused: A name is empty, or a name or value holds 0x01 or 0x02.
    """
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    parts = []
    for name, value in items:
        if not name:
            raise MessageRefused("a property has an empty name")
        if "\x01" in name or "\x02" in name or "\x01" in value or "\x02" in value:
            raise MessageRefused(f"property {name!r} contains the character 0x01 or 0x02, which separate properties")
        if value:
            parts.append(f"{name}\x01{value}\x02")
    return "".join(parts).encode("utf-8", "surrogatepass")


def parse_properties(block: bytes) -> dict[str, str]:
    """Decode a block; the last of two equal names wins, pairs with an empty value or without separator are dropped.

    Bytes that are not UTF-8 are replaced by U+FFFD. The broker's own properties are left out.
    """
    pairs: dict[str, str] = {}
    for token in block.decode("utf-8", "replace").split("\x02"):
        name, _, value = token.partition("\x01")
        if value and name and name not in _OWN_NAMES:
            pairs[name] = value
    return pairs


def find_property(block: bytes, name: bytes) -> bytes | None:
    """Value of one property without decoding the others; None when it is absent or empty.

    The last of two equal names wins, as in RocketMQ and in `parse_properties`.
    """
    start = block.rfind(b"\x02" + name + b"\x01")
    if start >= 0:
        at = start + len(name) + 2
    elif block.startswith(name + b"\x01"):
        at = len(name) + 1
    else:
        return None
    end = block.find(b"\x02", at)
    return (block[at:end] if end >= 0 else block[at:]) or None


SYSTEM_PROPERTIES = frozenset(
    # R91: the names that DDMQ reserves.
    b"KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID "
    b"ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY "
    b"MAX_RECONSUME_TIMES CONSUME_START_TIME "
    # RocketMQ 5's further names for transactions, timers, POP, inner batches, clusters and sums.
    b"__transactionId__ TRANSACTION_CHECK_TIMES TRAN_PREPARED_QUEUE_OFFSET CHECK_IMMUNITY_TIME_IN_SECONDS "
    b"TRANSACTION_PREPARED_QUEUE_OFFSET TIMER_DELIVER_MS TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DEL_UNIQKEY "
    b"TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DELAY_LEVEL INNER_NUM INNER_BASE "
    b"POP_CK 1ST_POP_TIME CLUSTER INSTANCE_ID REACHED_TIMES __CRC32#".split()
)
"""Names of the broker's own: never shown to consumers or actions (R11), and so refused from producers (D34), since what
is taken must not vanish. Names that begin with `PRIVATE_PREFIX` are added to these; the properties of a dead letter
(`DLQ_...`) are for consumers and stay."""

PRIVATE_PREFIX = b"__PYDDMQ_"

LETTER_PROPERTIES = (
    *b"DLQ_GROUP DLQ_ORIGIN_TOPIC DLQ_ORIGIN_QUEUE DLQ_ORIGIN_OFFSET DLQ_ORIGIN_MESSAGE_ID".split(),
    *b"DLQ_REASON DLQ_ACTION DLQ_ATTEMPTS DLQ_RETRY_OFFSET DLQ_CUT".split(),
)
"""What a dead letter says of its end (`broker.retry.dead_letter`)."""

OWN_PROPERTIES = frozenset(
    b"REAL_TOPIC REAL_QID RETRY_TOPIC ORIGIN_MESSAGE_ID TRAN_MSG PGROUP __transactionId__ TRANSACTION_CHECK_TIMES "
    b"TRAN_PREPARED_QUEUE_OFFSET TIMER_OUT_MS TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS "
    b"TIMER_DELAY_LEVEL __CRC32#".split()
).union(LETTER_PROPERTIES)
"""Names that the broker writes and reads back, those that begin with `PRIVATE_PREFIX` besides: no producer may give
them, by whatever way (docs/protocol.md lists who writes and who reads each)."""


def check_given(name: bytes) -> None:
    """Check that a producer may give a property of this name.

    Raises:
        MessageRefused: The broker writes it and reads it back.
    """
    if name in OWN_PROPERTIES or name.startswith(PRIVATE_PREFIX):
        raise MessageRefused(f"property {name.decode('utf-8', 'replace')} is reserved by the broker; remove it")


def is_system_property(name: bytes) -> bool:
    """Whether a property is the broker's own."""
    return name in SYSTEM_PROPERTIES or name.startswith(PRIVATE_PREFIX)
