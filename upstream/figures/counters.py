"""What the consuming side counts, per group and topic."""

from __future__ import annotations

from functools import partial

from broker.runtime.metrics import Metrics, declare

_LABELS = ("group", "topic")
_REASONS = ("group", "topic", "reason")

DELIVERED = declare("pyddmq_delivered_messages_total", "Messages delivered to pulls, redeliveries included", _LABELS)
PULLS = declare("pyddmq_delivered_batches_total", "Pulls answered with at least one message", _LABELS)
FINISHED = declare("pyddmq_finished_messages_total", "Messages finished by a success or by an action", _LABELS)
FAILED = declare("pyddmq_failed_attempts_total", "Attempts failed by a client's fail or an action's FAIL", _LABELS)
ERRORS = declare("pyddmq_error_attempts_total", "Attempts failed by an exception in an action", _LABELS)
TIMEOUTS = declare("pyddmq_timeout_attempts_total", "Deliveries whose timeout expired without a result", _LABELS)
GIVEN_BACK = declare("pyddmq_given_back_messages_total", "Messages whose reply never left the node (D18)", _LABELS)
LATE = declare("pyddmq_late_successes_total", "Successes of an earlier delivery or connection that counted", _LABELS)
REPEATED = declare("pyddmq_repeated_successes_total", "Successes of offsets that were finished already", _LABELS)
STALE = declare(
    "pyddmq_stale_results_total",
    "Offsets in results that changed nothing; by reason: unknown_offset, never_delivered, another_message, stale_fail, "
    "already_finished, sent_back",
    _REASONS,
)
UNKNOWN_QUEUE = declare(
    "pyddmq_unknown_queue_results_total",
    "Offsets in results for a topic or queue that the group does not have",
    ("group",),
)
SKIPPED = declare(
    "pyddmq_skipped_messages_total",
    "Messages finished without delivery; by reason: tag_filter, pressure_traffic, damaged, gone (deleted), "
    "expired, dead_letter_exhausted, operator",
    _REASONS,
)
UNORDERED = declare("pyddmq_unordered_messages_total", "Messages without the configured order key", _LABELS)
DEAD_LETTERS = declare("pyddmq_dead_letters_total", "Messages moved to the group's dead-letter topic", _REASONS)
STOPPED = declare(
    "pyddmq_stopped_messages_total",
    "Messages out of attempts that wait for an operator, with their key or queue (onExhausted); by reason: fails, "
    "errors, timeouts, unprocessable",
    _REASONS,
)
DEAD_LETTERS_REFUSED = declare(
    "pyddmq_dead_letters_refused_total", "Dead-letter appends refused by the store; retried, the key waits", _LABELS
)
UNDECIDED = declare(
    "pyddmq_messages_undecided_total",
    "Messages whose dead letter or retry was being written when the disk failed; the log says after the restart "
    "whether it is there, and their keys wait until then",
    _LABELS,
)
BODIES_UNUSABLE = declare(
    "pyddmq_bodies_unusable_total",
    "Messages dead-lettered because their body cannot be decompressed; by reason: too_large, damaged, "
    "unknown_compression, no_library, inner_batch",
    _REASONS,
)
RETRIED_LATER = declare(
    "pyddmq_retried_later_total", "Messages that an action deferred without counting an attempt", _LABELS
)
KEPT_IN_PLACE = declare(
    "pyddmq_retries_kept_in_place_total",
    "Failures with `retryTopic` that are retried in place, since another delivery of the message may still be answered",
    _LABELS,
)
SENT_BACK_AGAIN = declare(
    "pyddmq_retries_sent_back_again_total",
    "Failed messages sent back to the retry topic that had failed five times or more",
    _LABELS,
)
PARKED_REFUSED = declare("pyddmq_parked_pulls_refused_total", "Pulls refused because too many already wait", ("group",))
READING_STOPPED = declare(
    "pyddmq_reading_stopped_total", "Times that reading stopped because too many jobs wait for their keys", _LABELS
)


class SubscriptionCounters:
    """The series of one group on one topic, looked up once."""

    def __init__(self, metrics: Metrics, group: str, topic: str) -> None:
        self.delivered = metrics.counter(DELIVERED, group, topic)
        self.batches = metrics.counter(PULLS, group, topic)
        self.finished = metrics.counter(FINISHED, group, topic)
        self.failed = metrics.counter(FAILED, group, topic)
        self.errors = metrics.counter(ERRORS, group, topic)
        self.timeouts = metrics.counter(TIMEOUTS, group, topic)
        self.given_back = metrics.counter(GIVEN_BACK, group, topic)
        self.late = metrics.counter(LATE, group, topic)
        self.repeated = metrics.counter(REPEATED, group, topic)
        self.unordered = metrics.counter(UNORDERED, group, topic)
        self.sent_back_again = metrics.counter(SENT_BACK_AGAIN, group, topic)
        self.retried_later = metrics.counter(RETRIED_LATER, group, topic)
        self.kept_in_place = metrics.counter(KEPT_IN_PLACE, group, topic)
        self.undecided = metrics.counter(UNDECIDED, group, topic)
        self.refused = metrics.counter(DEAD_LETTERS_REFUSED, group, topic)
        self.reading_stopped = metrics.counter(READING_STOPPED, group, topic)
        self.stale = partial(metrics.counter, STALE, group, topic)
        """Results that changed nothing, for one reason."""
        self.skipped = partial(metrics.counter, SKIPPED, group, topic)
        """Messages finished without delivery, for one reason."""
        self.dead_letters = partial(metrics.counter, DEAD_LETTERS, group, topic)
        """Messages moved to the dead-letter topic, for one kind of reason."""
        self.stopped = partial(metrics.counter, STOPPED, group, topic)
        """Messages that wait for an operator, for one kind of reason."""
        self.bodies_unusable = partial(metrics.counter, BODIES_UNUSABLE, group, topic)
        """Messages whose body cannot be unpacked, for one reason."""
