"""Which properties of a stored message are the broker's own and are not shown to consumers or actions (R11).

The first two lines are RocketMQ's 22 names as DDMQ knows them (R91); the others came later: transactions, timers,
inner batches.
"""

from __future__ import annotations

_NAMES = """
KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID ORIGIN_MESSAGE_ID
TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY MAX_RECONSUME_TIMES
CONSUME_START_TIME
__transactionId__ TRANSACTION_CHECK_TIMES TRAN_PREPARED_QUEUE_OFFSET CHECK_IMMUNITY_TIME_IN_SECONDS
TIMER_DELIVER_MS TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DEL_UNIQKEY TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS
TIMER_ROLL_TIMES TIMER_DELAY_LEVEL INNER_NUM INNER_BASE POP_CK 1ST_POP_TIME CLUSTER
"""
SYSTEM_NAMES = frozenset(_NAMES.split())


def is_system_property(name: str) -> bool:
    """Whether a property is the broker's own. What describes a dead letter (`DLQ_...`) is shown."""
    return name in SYSTEM_NAMES
