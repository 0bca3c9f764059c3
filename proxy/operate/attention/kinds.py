"""The table of kinds of findings: what each is about, and what to do.

docs/operations.md shows the table, and a test holds the two together and stages each trouble.
"""

from __future__ import annotations

import shlex
from typing import Any, Literal, NamedTuple

from proxy.operate.views.findings import Finding

_HELD = ("BLOCKED", "STALL", "STOP")
_STANDS = (*_HELD, "NOT_CONSUMED")


class Kind(NamedTuple):
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


KINDS: dict[str, Kind] = {
    # The node.
    "failed": Kind(
        "a write or a sync failed",
        "Look at the disk and the kernel's log; restart the node once the disk is sound.",
        stops_all=True,
    ),
    "not_ready": Kind(
        "the node starts, recovers or stops", "Wait; /readyz?verbose and the log say how far it is.", stops_all=True
    ),
    "acks_refused": Kind(
        "the disk is full, even for the ack journal",
        "Free space; or lower retentionBytes, which may need `pyddmq reload --accept-loss`.",
        stops_all=True,
    ),
    "disk_full": Kind(
        "the disk is full",
        "Free space; or lower retentionBytes, which may need `pyddmq reload --accept-loss`.",
        stops_all=True,
    ),
    "disk_low": Kind(
        "the disk is nearly full", "Free space; or lower retentionBytes, which may need `pyddmq reload --accept-loss`."
    ),
    "reserve_missing": Kind(
        "nothing is set aside for dead letters",
        "Free space for two log files; then the space is set aside by itself.",
    ),
    "retention_blocked": Kind(
        "retention has stopped: pending messages cannot be put elsewhere",
        "Free space by other means; it goes on by itself.",
    ),
    "retention_waits": Kind(
        "lower limits of retention are configured and not in force",
        "Let the groups finish, or delete their messages by `pyddmq reload --accept-loss`.",
    ),
    "slow_sync": Kind("the disk is slow", "Look at the disk, and at what else writes to it."),
    "damage": Kind(
        "damage that lost messages",
        "`pyddmq store check DATA` says what is lost; stop the node, repair with --repair --yes, see a backup.",
    ),
    "file_damaged": Kind(
        "small files were damaged",
        "Nothing is lost; look at the disk, and mend them with `pyddmq store check --repair`.",
    ),
    "files_deleted": Kind(
        "files of the running node were deleted",
        "Nothing is lost while the node runs; find the program that deletes files in the data directory.",
    ),
    "acks_damaged": Kind(
        "the ack journal was damaged", "Messages that were acknowledged may come again; look at the disk."
    ),
    "index_failed": Kind(
        "a write to the index failed", "Searches by key read the log instead; look at the disk, then restart the node."
    ),
    "tls_expiring": Kind(
        "the certificate of a TLS port expires soon, or has",
        "Put a new certificate and key in place of the files; they are taken up within seconds, without a restart.",
    ),
    "tls_crl_expiring": Kind(
        "a revocation list expires soon, or has: then its CA's clients are refused",
        "Fetch the CA's new list into the file that `tls.crl` names; it is taken up within seconds.",
    ),
    "tls_reload_refused": Kind(
        "new certificates cannot be used, the old ones stay in force",
        "Mend the file that the finding names; it is read again when it changes, and with `pyddmq reload`.",
    ),
    "kafka_trouble": Kind(
        "a Kafka cluster cannot be reached, or refuses",
        "Do what the finding says; else look at the brokers, the network and the section `kafka`. It is tried again.",
    ),
    "kafka_producer_broken": Kind(
        "nothing can be sent to a Kafka cluster",
        "Look at what the finding quotes; a denied user needs IdempotentWrite on the cluster and Write on its topics.",
    ),
    "kafka_topic_trouble": Kind(
        "a topic in Kafka cannot be read, or lost messages",
        "Look at the topic that the finding names; the group's other topics are read on.",
    ),
    "kafka_classic": Kind(
        "a group uses Kafka's classic group protocol",
        "Mend what the finding names, for KIP-848; or write groupProtocol `classic` if that is what you want.",
    ),
    "memory": Kind("the memory ceiling is near", "See who holds most under Clients; else raise memoryMax and reload."),
    "loop_late": Kind(
        "the event loop is late", "Look for a slow disk, an action that blocks, or other work on this core."
    ),
    "clock_forward": Kind(
        "the wall clock was set forward",
        "What was due meanwhile has gone out, and retention counts the time; set the clock right, and look at NTP.",
    ),
    "clock_back": Kind(
        "the wall clock was set back",
        "Set the clock right, and look at NTP. If it is right, it was ahead before: timers sent then wait for their "
        "moments (cancel or move them), and retention by age may be late by the time since the start.",
    ),
    "reload_refused": Kind(
        "a reload was refused",
        "Mend the file, then `pyddmq reload`. `pyddmq config check FILE` says whether a restart would work.",
    ),
    "config_missing": Kind(
        "the configuration file is gone", "Put the file back: a restart would fail; the node goes on as it was."
    ),
    "work_failing": Kind(
        "work of the node fails again and again", "The log has the traceback; report it, and restart the node."
    ),
    "lag_webhook": Kind(
        "changes of verdicts do not reach the webhook",
        "Check `lag.webhook` and its server; a change that the server refused is lost.",
    ),
    "internal_fault": Kind("a fault inside the node", "The log has the traceback; report it."),
    "log_lines_lost": Kind(
        "log lines cannot be written", "Look at what reads the node's stderr, or at the disk that it goes to."
    ),
    "connections_refused": Kind(
        "many connections are closed by the node",
        "Look for clients that speak something else or hold too much; the log names addresses.",
    ),
    "publishes_refused": Kind(
        "many publishes are refused", "Look up the code in docs/protocol.md, and the producer in the log."
    ),
    "pulls_refused": Kind("many pulls are refused", "Look for clients with a wrong group, topic or protocol."),
    "client_limited": Kind(
        "a client is held to a limit of its own",
        "See `pyddmq limits`; have it ask less, or raise its line under `limits` and reload.",
    ),
    "timers_late": Kind(
        "timers or delayed messages are late", "Look at the disk's space and at `pyddmq timers stats`."
    ),
    "timers_refused": Kind(
        "timers, loops or delayed messages are refused by their topics",
        "Make the topic again, or cancel them with `pyddmq timers cancel`; they are tried again by themselves.",
    ),
    "timers_paused": Kind("a stage of the timers is paused", "To go on: `pyddmq timers resume all`."),
    "undecided": Kind(
        "transactions stay undecided",
        "Start a process of their producer group, or decide them with `pyddmq transactions`.",
    ),
    "retries_unread": Kind(
        "messages wait in retry topics that no group reads",
        "Set `retryTopic: true` for their groups, or pass over them by `pyddmq offsets reset`; messages of POP's retry "
        "topics need RocketMQ's POP consumers.",
    ),
    # Groups.
    "stopped": Kind(
        "a message is out of attempts, and its key or queue waits for you",
        "Mend the cause, then end the wait with the command: retry, skip or dead-letter.",
        statuses=_HELD,
    ),
    "poison": Kind(
        "a message fails again and again",
        "Mend the consumer, or end it with the command; others of its key wait.",
        statuses=_HELD,
        causes=("poison_message", "all_fail"),
    ),
    "poison_retried": Kind(
        "messages in the retry topic fail again and again",
        "Mend the consumer, or end them with `pyddmq timers cancel` while they wait.",
    ),
    "call_stuck": Kind(
        "a call of an action goes on beyond its time limit",
        "Look at what the action waits for; `process: true` lets such calls be killed.",
        statuses=_HELD,
    ),
    "key_held": Kind(
        "a key is held for a minute",
        "Look at the client that has it, or end it with the command.",
        statuses=_HELD,
        causes=("unanswered",),
    ),
    "no_answer": Kind(
        "a client holds messages and does not answer",
        "Look at that client; stop it if it hangs.",
        statuses=_HELD,
        causes=("unanswered",),
    ),
    "timeouts": Kind(
        "messages come again since clients do not answer in time",
        "Look at the clients, or raise `timeout` above the longest time that they work on a batch.",
    ),
    "retry_storm": Kind(
        "more attempts fail than succeed",
        "Mend the consumers or what they need; `pyddmq groups pause` stops deliveries meanwhile.",
        statuses=("STALL",),
    ),
    "dead_letters": Kind(
        "many messages go to the dead letters",
        "See `pyddmq dlq stats`; pause the group if the cause is outside, and redrive when it is gone.",
    ),
    "dead_letters_refused": Kind(
        "dead letters cannot be written", "Free space: their keys wait until the store takes them.", statuses=_HELD
    ),
    "unreadable": Kind(
        "messages were skipped, since they cannot be read",
        "Run `pyddmq store check`; a backup may have them.",
    ),
    "reading_stopped": Kind(
        "too many messages wait for their keys, so reading has stopped",
        "End what holds the keys (see Keys that hold others up), or raise maxWaitingPerTopic and reload.",
        statuses=_STANDS,
    ),
    "no_puller": Kind(
        "no client pulls",
        "Start the group's clients; see that they use this group's name and this port.",
        statuses=("STOP", "NOT_CONSUMED"),
    ),
    "push_failing": Kind(
        "a URL that messages are pushed to fails",
        "Mend the receiver; it is probed by itself, and its messages wait or go to the other URLs.",
        statuses=_STANDS,
        causes=("push_target_failing",),
    ),
    "sink_waits": Kind(
        "a sink waits: its server is away, full, or refuses the password",
        "Mend what the finding quotes; passwords and certificates are read again, and the messages continue.",
        statuses=_STANDS,
        causes=("sink_waits",),
    ),
    "paused": Kind("a group is paused", "Resume it with the command."),
    "queues_owned": Kind(
        "the group's queues are consumed by somebody else",
        "Stop that consumer, or take the group out here.",
        statuses=_STANDS,
    ),
    "not_starting": Kind(
        "a subscription does not start",
        "Mend what its action says; it is tried again every few seconds.",
        statuses=_STANDS,
    ),
    "lost_to_retention": Kind(
        "messages were deleted that a group was not given",
        "Unless the topic was deleted on purpose: raise retentionHours or retentionBytes and reload; a backup may have "
        "the messages.",
        statuses=("DATA_LOSS",),
    ),
    "near_retention": Kind(
        "retention is about to delete messages of a group",
        "Let the group catch up, or raise retentionHours or retentionBytes and reload.",
        statuses=("RETENTION_RISK",),
    ),
    "lag": Kind(
        "the lag rules find queues of a group not OK",
        "Do what the finding says; `pyddmq lag explain STATUS` and `pyddmq lag explain CAUSE` have more.",
    ),
}
"""By name; the order is that of the page among equals."""


def found(kind: str, bad: bool, text: str, **about: Any) -> Finding:
    """Return a finding of a kind of `KINDS`, which has the advice."""
    severity: Literal["bad", "watch"] = "bad" if bad else "watch"
    return Finding(finding=kind, severity=severity, text=text, advice=KINDS[kind].advice, **about)


def command(*words: str) -> str:
    """A command line of `pyddmq`, to be typed into a shell as it stands."""
    return shlex.join(("pyddmq", *words))
