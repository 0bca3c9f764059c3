"""What timers count; docs/metrics.md lists it."""

from __future__ import annotations

from broker.runtime.metrics import declare

ENQUEUED = declare("pyddmq_timers_enqueued_total", "Records of the timer topic entered in the wheel")
DELIVERED = declare("pyddmq_timers_delivered_total", "Timed messages delivered to their topics")
ROLLED = declare("pyddmq_timers_rolled_total", "Timed messages rewritten because they are due in more than two days")
CANCELLED = declare("pyddmq_timers_cancelled_total", "Timed messages cancelled or rescheduled before they were due")
REFUSED = declare("pyddmq_timers_refused_total", "Refused deliveries of timed messages; they are kept and retried")
DEFERRED = declare(
    "pyddmq_timers_deferred_total",
    "Refused timed messages rewritten for a later attempt, since too many are refused already",
)
LOST = declare("pyddmq_timers_lost_total", "Timed messages whose record was damaged, deleted or without a real topic")
WAITS = declare("pyddmq_timers_waits_total", "Times that timers waited because the disk was full")
PUT_BACK = declare(
    "pyddmq_timers_put_back_total", "Timed messages moved to the log's tail before their log file was deleted"
)
DAMAGED = declare("pyddmq_timers_damaged_total", "Times that timer log or wheel were found damaged")
REBUILT = declare("pyddmq_timers_rebuilt_total", "Rebuilds of timer log and wheel from the commit log")
LATE_MAX = declare(
    "pyddmq_timers_late_ms_max",
    "Longest time from due to durable of a timed message that was not refused, since the start, in ms",
    kind="gauge",
)
PENDING = declare("pyddmq_timers_pending", "Pending timed messages, by topic", ("topic",), kind="gauge")
REFUSED_NOW = declare("pyddmq_timers_aside", "Timed messages that are due and whose delivery was refused", kind="gauge")
LAG = declare("pyddmq_timers_enqueue_lag", "Records of the timer topic that are not in the wheel yet", kind="gauge")
STAGE_DEPTH = declare("pyddmq_timers_stage_depth", "Timed messages that wait before a stage", ("stage",), kind="gauge")
STAGE_US = declare("pyddmq_timers_stage_microseconds_total", "Time spent in a stage, in microseconds", ("stage",))
STAGE_COUNT = declare("pyddmq_timers_stage_messages_total", "Timed messages that passed a stage", ("stage",))
STAGE_PAUSED = declare("pyddmq_timers_stage_paused", "1 while a stage is paused", ("stage",), kind="gauge")
