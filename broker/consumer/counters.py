"""What consumers inside the program count, per group."""

from __future__ import annotations

from broker.runtime.metrics import declare

_GROUP = ("group",)

CONSUMED = declare("pyddmq_consumer_messages_total", "Messages that a listener inside the program consumed.", _GROUP)
FAILED = declare(
    "pyddmq_consumer_failures_total",
    "Messages that a listener inside the program did not consume; by result: answered, raised, nothing, rollback.",
    ("group", "how"),
)
DEAD_LETTERED = declare(
    "pyddmq_consumer_dead_letters_total",
    "Messages of consumers inside the program moved to the group's dead-letter topic; by reason: exhausted, unusable.",
    ("group", "reason"),
)
DEAD_LETTERS_REFUSED = declare(
    "pyddmq_consumer_dead_letters_refused_total",
    "Dead letters of consumers inside the program that the store refused; retried, the queue waits.",
    _GROUP,
)
UNDECIDED = declare(
    "pyddmq_consumer_messages_undecided_total",
    "Messages of consumers inside the program whose dead letter or retry was being written when the disk failed; the "
    "log says after the restart whether it is there, and no consumer gets them until then.",
    _GROUP,
)
SKIPPED = declare(
    "pyddmq_consumer_skipped_total",
    "Messages of consumers inside the program finished without delivery; by reason: tag_filter, damaged, "
    "gone (deleted), expired, dead_letter_exhausted, broadcast_failed.",
    ("group", "reason"),
)
LOCKS_REFUSED = declare(
    "pyddmq_consumer_locks_refused_total", "Queues assigned to a consumer that another consumer holds.", _GROUP
)
LOCKS_LOST = declare(
    "pyddmq_consumer_locks_lost_total",
    "Queues that a consumer lost because it did not renew their lock in time; later answers for them are ignored.",
    _GROUP,
)
OFFSETS_CLAMPED = declare(
    "pyddmq_consumer_offsets_clamped_total", "Committed offsets beyond the end of their queue, reset to it.", _GROUP
)
SAVE_ERRORS = declare(
    "pyddmq_consumer_save_errors_total",
    "Writes of offsets or retry counts of consumers inside the program that failed; by file.",
    ("file",),
)
