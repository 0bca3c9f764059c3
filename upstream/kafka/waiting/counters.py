"""What owners of partitions count."""

from __future__ import annotations

from broker.runtime.metrics import declare

DELIVERED = declare("pyddmq_kafka_waiting_delivered_total", "Waiting messages delivered to Kafka topics", ("cluster",))
REQUESTS = declare(
    "pyddmq_kafka_waiting_requests_total", "Cancels and moves decided by this node, by outcome", ("cluster", "outcome")
)
SKIPPED = declare(
    "pyddmq_kafka_waiting_skipped_total", "Missed occurrences of loops that were not delivered", ("cluster",)
)
ABORTED = declare("pyddmq_kafka_waiting_aborted_total", "Transactions of waiting messages not committed", ("cluster",))
REBUILT = declare(
    "pyddmq_kafka_waiting_rebuilt_total", "Times the cache of a partition was filled from its log again", ("cluster",)
)
DISCARDED = declare(
    "pyddmq_kafka_waiting_discarded_total",
    "Half messages discarded after their checks or their age, decided by an operator", ("cluster",),
)  # fmt: skip
