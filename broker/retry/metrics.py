"""What retries count."""

from __future__ import annotations

from broker.runtime.metrics import declare

SENT_BACK = declare(
    "pyddmq_retries_sent_back_total", "Failed messages sent back to their group's retry topic.", ("group",)
)
REFUSED = declare(
    "pyddmq_retries_refused_total",
    "Retries that the store refused. By reason, for consumers inside the program: waits (retried every "
    "second), unfit (the message can never be stored again and becomes a dead letter); for groups of the "
    "proxy, which then retry in place: full (the disk), failed (the store), refused (the message cannot be "
    "a timer), unreadable.",
    ("group", "reason"),
)
KNOWN_FINISHED = declare(
    "pyddmq_retries_known_finished_total",
    "Messages not delivered to a listener, since the log shows that they were sent back or dead-lettered "
    "before a stop.",
    ("group",),
)
RECOVERED = declare(
    "pyddmq_retries_recovered_total", "Messages finished at start because their retry record exists.", ("group",)
)
REDRIVEN = declare("pyddmq_dead_letters_redriven_total", "Dead letters that were redriven to a topic.", ("group",))
REDRIVE_REFUSED = declare(
    "pyddmq_dead_letters_not_redriven_total",
    "Dead letters that a redrive could not send; by reason: origin_unknown, no_topic, system_topic, "
    "message_type, unstorable, unreadable. They are kept.",
    ("group", "reason"),
)
