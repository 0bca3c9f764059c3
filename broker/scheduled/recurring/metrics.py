"""What loops count; docs/metrics.md lists it."""

from __future__ import annotations

from broker.runtime.metrics import declare

DELIVERED = declare("pyddmq_loops_delivered_total", "Occurrences of loops delivered to their topics")
ENDED = declare("pyddmq_loops_ended_total", "Loops without further occurrences; how: exhausted, cancelled", ("how",))
SKIPPED = declare(
    "pyddmq_loops_skipped_total", "Missed occurrences of loops that are not delivered, since too many were missed"
)
REPEATED = declare("pyddmq_loops_repeated_adds_total", "Repeated adds of sendDelaySync that stored nothing")
CANCELS = declare(
    "pyddmq_delay_cancels_total", "Cancels of sendDelaySync by outcome: cancelled, too_late, unknown", ("outcome",)
)
