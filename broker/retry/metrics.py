"""What retries count."""

from __future__ import annotations

from broker.runtime.metrics import declare

SENT_BACK = declare(
    "pyddmq_retries_sent_back_total", "Failed messages sent back to their group's retry topic.", ("group",)
)
REFUSED = declare(
    "pyddmq_retries_refused_total",
    "Retries that the store refused. By reason, of consumers inside the program: waits (tried again every second), "
    "unfit (the message can never be stored again and is a dead letter instead); of groups of the proxy, which retry "
    "in place then: full (the disk), failed (the store), refused (the message takes no timer), unreadable.",
    ("group", "reason"),
)
KNOWN_FINISHED = declare(
    "pyddmq_retries_known_finished_total",
    "Messages that a listener did not get again: by the log they were sent back or dead-lettered before a stop.",
    ("group",),
)
RECOVERED = declare(
    "pyddmq_retries_recovered_total", "Messages finished at start because their retry record exists.", ("group",)
)
REDRIVEN = declare("pyddmq_dead_letters_redriven_total", "Dead letters that were sent to a topic again.", ("group",))
REDRIVE_REFUSED = declare(
    "pyddmq_dead_letters_not_redriven_total",
    "Dead letters that a redrive could not send again; by reason: origin_unknown, no_topic, system_topic, "
    "message_type, unstorable, unreadable. They stay where they are.",
    ("group", "reason"),
)
