"""What transactions count; docs/metrics.md lists it."""

from __future__ import annotations

from broker.runtime.metrics import declare

COMMITTED = declare("pyddmq_transactions_committed_total", "Transactions committed, by topic", ("topic",))
ROLLED_BACK = declare("pyddmq_transactions_rolled_back_total", "Transactions rolled back, by topic", ("topic",))
REFUSED = declare(
    "pyddmq_transactions_end_refused_total",
    "Decisions of transactions that were refused, by reason (docs/transactions.md)",
    ("reason",),
)
CHECKS = declare(
    "pyddmq_transactions_checks_total",
    "Checks that producers fetched, by producer group; (other) is all after the first hundred",
    ("group",),
)
DISCARDED = declare(
    "pyddmq_transactions_discarded_total",
    "Half messages moved to TRANS_CHECK_MAX_TIME_TOPIC, by reason: checks (used up) or age",
    ("reason",),
)
RESUMED = declare("pyddmq_transactions_resumed_total", "Discarded half messages that were resumed")
PUT_BACK = declare(
    "pyddmq_transactions_put_back_total",
    "Undecided half messages moved to the log's tail before their log file was deleted",
)
LOST = declare("pyddmq_transactions_lost_total", "Undecided half messages whose record was damaged or deleted")
WAITS = declare("pyddmq_transactions_waits_total", "Times that a discard or move waited because the disk was full")
OPS = declare("pyddmq_transactions_op_records_total", "Op records written")
PENDING = declare("pyddmq_transactions_pending", "Undecided half messages, by topic", ("topic",), kind="gauge")
UNDECIDED = declare("pyddmq_transactions_undecided", "Undecided half messages of all topics", kind="gauge")
OLDEST_SECONDS = declare(
    "pyddmq_transactions_oldest_seconds",
    "Age of the oldest undecided half message by the wall clock, 0 without any",
    kind="gauge",
)
