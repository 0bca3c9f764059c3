"""The table of kinds of findings: what each is about, and what to do.

docs/operations.md shows the table, and a test holds the two together and stages each trouble.
"""

from __future__ import annotations

import shlex
from typing import Any, Literal, NamedTuple

from proxy.operate.views.findings import Finding

_HELD = ("BLOCKED", "STALL", "STOP")
_STANDS = (*_HELD, "NOT_CONSUMED")


class FindingKind(NamedTuple):
    """A kind of findings.

    Attributes:
        trouble: The trouble in a few words.
        advice: What to do about it.
        statuses: Lag statuses of the same group and topic that it explains (`proxy.operate.attention.judgement`).
        causes: Causes that it explains, whatever the lag status is.
        stops_all: Whether, of the node, it stops every group.
    """

    trouble: str
    advice: str
    statuses: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    stops_all: bool = False


KINDS: dict[str, FindingKind] = {
    # The node.
    "failed": FindingKind(
        "a write or a sync failed",
        "Check the disk and the kernel's log; restart the node once the disk is repaired.",
        stops_all=True,
    ),
    "not_ready": FindingKind(
        "the node starts, recovers or stops", "Wait; /readyz?verbose and the log show the progress.", stops_all=True
    ),
    "acks_refused": FindingKind(
        "the disk is full, even for the ack journal",
        "Free space; or lower retentionBytes, which may need `pyddmq reload --accept-loss`.",
        stops_all=True,
    ),
    "disk_full": FindingKind(
        "the disk is full",
        "Free space; or lower retentionBytes, which may need `pyddmq reload --accept-loss`.",
        stops_all=True,
    ),
    "disk_low": FindingKind(
        "the disk is nearly full", "Free space; or lower retentionBytes, which may need `pyddmq reload --accept-loss`."
    ),
    "reserve_missing": FindingKind(
        "no space is reserved for dead letters",
        "Free space for two log files; then the node reserves the space without a restart.",
    ),
    "retention_blocked": FindingKind(
        "retention has stopped: pending messages cannot be moved",
        "Free space by other means; then retention continues.",
    ),
    "retention_waits": FindingKind(
        "lower limits of retention are configured and not in force",
        "Let the groups finish, or delete their messages by `pyddmq reload --accept-loss`.",
    ),
    "slow_sync": FindingKind("the disk is slow", "Check the disk, and what else writes to it."),
    "damage": FindingKind(
        "damage that lost messages",
        "`pyddmq store check DATA` shows what is lost; stop the node, repair with --repair --yes, check a backup.",
    ),
    "file_damaged": FindingKind(
        "small files were damaged",
        "No data is lost; check the disk, and repair the files with `pyddmq store check --repair`.",
    ),
    "files_deleted": FindingKind(
        "files of the running node were deleted",
        "No data is lost while the node runs; find the program that deletes files in the data directory.",
    ),
    "acks_damaged": FindingKind(
        "the ack journal was damaged", "Acknowledged messages may be redelivered; check the disk."
    ),
    "index_failed": FindingKind(
        "a write to the index failed", "Searches by key read the log instead; check the disk, then restart the node."
    ),
    "tls_expiring": FindingKind(
        "the certificate of a TLS port expires soon, or has expired",
        "Replace the files with a new certificate and key; they are applied within seconds, without a restart.",
    ),
    "tls_crl_expiring": FindingKind(
        "a revocation list expires soon, or has expired: then clients of its CA are refused",
        "Write the CA's new list to the file in `tls.crl`; it is applied within seconds.",
    ),
    "tls_reload_refused": FindingKind(
        "new certificates cannot be used, the present ones stay in force",
        "Fix the file that the finding names; it is read again when it changes, and with `pyddmq reload`.",
    ),
    "kafka_trouble": FindingKind(
        "a Kafka cluster cannot be reached, or rejects requests",
        "Follow the finding; otherwise check the brokers, the network and the section `kafka`. The node retries.",
    ),
    "kafka_unreachable": FindingKind(
        "a Kafka cluster does not respond",
        "Check the brokers, the network and the section `kafka`. The node retries.",
    ),
    "kafka_producer_broken": FindingKind(
        "nothing can be sent to a Kafka cluster",
        "Check the error in the finding; a denied user needs IdempotentWrite on the cluster and Write on its topics.",
    ),
    "kafka_topic_trouble": FindingKind(
        "a topic in Kafka cannot be read, or lost messages",
        "Check the topic that the finding names; the group's other topics are still read.",
    ),
    "kafka_waiting": FindingKind(
        "waiting messages on Kafka are late, or need an operator",
        "Do what the finding says. Messages are kept, and delivered late once the cause is removed.",
    ),
    "kafka_classic": FindingKind(
        "a group uses Kafka's classic group protocol",
        "Fix what the finding names, to use KIP-848; or write groupProtocol `classic` if this is intended.",
    ),
    "memory": FindingKind(
        "the memory limit is near", "Check which client holds most under Clients; otherwise raise memoryMax and reload."
    ),
    "loop_late": FindingKind(
        "the event loop is late", "Check for a slow disk, an action that blocks, or other work on this core."
    ),
    "clock_forward": FindingKind(
        "the wall clock was set forward",
        "Messages that became due were delivered, and retention counts the time; set the clock right, and check NTP.",
    ),
    "clock_back": FindingKind(
        "the wall clock was set back",
        "Set the clock right, and check NTP. If it is right, it was ahead before: timers sent then are due "
        "later (cancel or move them), and retention by age may be late by the time since the start.",
    ),
    "reload_refused": FindingKind(
        "a reload was refused",
        "Fix the file, then `pyddmq reload`. `pyddmq config check FILE` shows whether a restart would work.",
    ),
    "config_missing": FindingKind(
        "the configuration file is missing",
        "Restore the file: a restart would fail; until then the node continues unchanged.",
    ),
    "work_failing": FindingKind(
        "work of the node fails repeatedly", "The log has the traceback; report it, and restart the node."
    ),
    "lag_webhook": FindingKind(
        "changes of verdicts do not reach the webhook",
        "Check `lag.webhook` and its server; a change that the server refused is lost.",
    ),
    "internal_fault": FindingKind("a fault inside the node", "The log has the traceback; report it."),
    "log_lines_lost": FindingKind(
        "log lines cannot be written",
        "Check the program that reads the node's stderr, or the disk that it is written to.",
    ),
    "connections_refused": FindingKind(
        "many connections are closed by the node",
        "Check for clients that speak another protocol or hold too much; the log has their addresses.",
    ),
    "publishes_refused": FindingKind(
        "many publishes are refused", "Look up the code in docs/protocol.md, and the producer in the log."
    ),
    "pulls_refused": FindingKind("many pulls are refused", "Check for clients with a wrong group, topic or protocol."),
    "client_limited": FindingKind(
        "a client is at its own limit",
        "See `pyddmq limits`; lower its request rate, or raise its entry under `limits` and reload.",
    ),
    "timers_late": FindingKind(
        "timers or delayed messages are late", "Check the disk's space and `pyddmq timers stats`."
    ),
    "timers_refused": FindingKind(
        "timers, loops or delayed messages are refused by their topics",
        "Create the topic again, or cancel them with `pyddmq timers cancel`; the node retries.",
    ),
    "timers_paused": FindingKind("a stage of the timers is paused", "To continue: `pyddmq timers resume all`."),
    "undecided": FindingKind(
        "transactions stay undecided",
        "Start a process of their producer group, or decide them with `pyddmq transactions`.",
    ),
    "retries_unread": FindingKind(
        "messages wait in retry topics that no group reads",
        "Set `retryTopic: true` for their groups, or pass over them by `pyddmq offsets reset`; messages of POP's retry "
        "topics need RocketMQ's POP consumers.",
    ),
    # Groups.
    "stopped": FindingKind(
        "a message is out of attempts, and its key or queue waits for an operator",
        "Fix the cause, then end the wait with the command: retry, skip or dead-letter.",
        statuses=_HELD,
    ),
    "poison": FindingKind(
        "a message fails repeatedly",
        "Fix the consumer, or end the message with the command; others of its key wait.",
        statuses=_HELD,
        causes=("poison_message", "all_fail"),
    ),
    "poison_retried": FindingKind(
        "messages in the retry topic fail repeatedly",
        "Fix the consumer, or end them with `pyddmq timers cancel` while they wait.",
    ),
    "call_stuck": FindingKind(
        "a call of an action runs beyond its time limit",
        "Check what the action waits for; `process: true` allows the node to kill such calls.",
        statuses=_HELD,
    ),
    "key_held": FindingKind(
        "a key is blocked for a minute",
        "Check the client that holds it, or end the message with the command.",
        statuses=_HELD,
        causes=("unanswered",),
    ),
    "no_answer": FindingKind(
        "a client holds messages and does not answer",
        "Check that client; stop it if it hangs.",
        statuses=_HELD,
        causes=("unanswered",),
    ),
    "timeouts": FindingKind(
        "messages are redelivered since clients do not answer in time",
        "Check the clients, or raise `timeout` above the longest processing time of a batch.",
    ),
    "retry_storm": FindingKind(
        "more attempts fail than succeed",
        "Fix the consumers or their dependencies; `pyddmq groups pause` stops deliveries until then.",
        statuses=("STALL",),
    ),
    "dead_letters": FindingKind(
        "many messages go to the dead letters",
        "See `pyddmq dlq stats`; pause the group if the cause is external, and redrive when it is resolved.",
    ),
    "dead_letters_refused": FindingKind(
        "dead letters cannot be written", "Free space: their keys wait until the store accepts them.", statuses=_HELD
    ),
    "unreadable": FindingKind(
        "messages were skipped, since they cannot be read",
        "Run `pyddmq store check`; a backup may have them.",
    ),
    "reading_stopped": FindingKind(
        "too many messages wait for their keys, so reading has stopped",
        "Finish the messages that block keys (see Keys that block others), or raise maxWaitingPerTopic and reload.",
        statuses=_STANDS,
    ),
    "no_puller": FindingKind(
        "no client pulls",
        "Start the group's clients; check that they use this group's name and this port.",
        statuses=("STOP", "NOT_CONSUMED"),
    ),
    "push_failing": FindingKind(
        "a URL that messages are pushed to fails",
        "Fix the receiver; the node probes it, and its messages wait or go to the other URLs.",
        statuses=_STANDS,
        causes=("push_target_failing",),
    ),
    "sink_waits": FindingKind(
        "a sink waits: its server does not respond, is full, or rejects the password",
        "Fix the cause in the finding; passwords and certificates are read again, and the messages continue.",
        statuses=_STANDS,
        causes=("sink_waits",),
    ),
    "paused": FindingKind("a group is paused", "Resume it with the command."),
    "queues_owned": FindingKind(
        "another consumer has the group's queues",
        "Stop that consumer, or remove the group here.",
        statuses=_STANDS,
    ),
    "not_starting": FindingKind(
        "a subscription does not start",
        "Fix the cause in the finding; the start is retried every few seconds.",
        statuses=_STANDS,
    ),
    "lost_to_retention": FindingKind(
        "messages were deleted before they were delivered to a group",
        "Unless the topic was deleted on purpose: raise retentionHours or retentionBytes and reload; a backup may have "
        "the messages.",
        statuses=("DATA_LOSS",),
    ),
    "near_retention": FindingKind(
        "retention is about to delete messages of a group",
        "Let the group catch up, or raise retentionHours or retentionBytes and reload.",
        statuses=("RETENTION_RISK",),
    ),
    "lag": FindingKind(
        "the lag rules find queues of a group not OK",
        "Follow the finding; `pyddmq lag explain STATUS` and `pyddmq lag explain CAUSE` show more.",
    ),
}
"""By name; the order is that of the page among equals."""


def found(kind: str, bad: bool, text: str, **about: Any) -> Finding:
    """Return a finding of a kind of `KINDS`, which has the advice."""
    severity: Literal["bad", "watch"] = "bad" if bad else "watch"
    return Finding(finding=kind, severity=severity, text=text, advice=KINDS[kind].advice, **about)


def command(*words: str) -> str:
    """A command line of `pyddmq`, to be typed into a shell as it is."""
    return shlex.join(("pyddmq", *words))
