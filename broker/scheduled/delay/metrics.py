"""What the delivery of delayed messages counts; docs/metrics.md lists it."""

from __future__ import annotations

from broker.runtime.metrics import declare

DELIVERED = declare("pyddmq_delays_delivered_total", "Delayed messages delivered to their topics, by level", ("level",))
REFUSED = declare("pyddmq_delays_refused_total", "Refused deliveries of delayed messages; they are kept and retried")
LOST = declare("pyddmq_delays_lost_total", "Delayed messages whose record was damaged or deleted when they were due")
WAITS = declare("pyddmq_delays_waits_total", "Times that delivery waited because the disk was full")
PUT_BACK = declare(
    "pyddmq_delays_put_back_total", "Refused delayed messages moved to the log's tail before their log file was deleted"
)
CANCELLED = declare("pyddmq_delays_cancelled_total", "Delayed messages that were cancelled before their delivery")
LATE_MAX = declare(
    "pyddmq_delays_late_ms_max",
    "Longest time from due to durable of a delayed message that was not refused, since the start, in ms",
    kind="gauge",
)
PENDING = declare("pyddmq_delays_pending", "Pending delayed messages, by level", ("level",), kind="gauge")
REFUSED_NOW = declare(
    "pyddmq_delays_aside", "Delayed messages that are due and whose delivery was refused", kind="gauge"
)
