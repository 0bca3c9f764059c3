"""Findings about the node itself."""

from __future__ import annotations

from collections.abc import Iterator

from broker.errors import some_of
from broker.runtime.store_metrics import FILES_DELETED, REFUSED
from proxy.node.trouble_facts import NodeTroubles, Risen, TlsView
from proxy.node.views import by_group
from proxy.operate.attention.kinds import found
from proxy.operate.live_node import LiveNode
from proxy.operate.moments import moment_text
from proxy.operate.text import age, amount, byte_size, short
from proxy.operate.views.findings import Finding

LOOP_LAG_SECONDS = 0.5
SLOW_SYNC_SECONDS = 1.0
FREE_BYTES_LOW = 512 * 1024 * 1024
RECENT_SECONDS = 600.0
"""How long a fault inside the node, or a clock that was set forward, is a finding."""
DAY_SECONDS = 24 * 3600.0
CLOCK_BEHIND_SECONDS = 1.0
LATE_MS = 3_000
"""How late timers are when that is a finding."""
REFUSALS = 30
"""Refusals of one kind within a minute that are a flood."""


def findings(node: LiveNode, troubles: NodeTroubles) -> Iterator[Finding]:
    """Return the findings about a node."""
    yield from _of_state(node, troubles)
    yield from _of_disk(node, troubles)
    yield from _of_damage(node, troubles)
    yield from _of_process(node, troubles, node.loop_lag())
    yield from _of_configuration(troubles)
    yield from _of_waiting(troubles)
    yield from _of_refusals(troubles.risen)
    yield from _of_kafka(troubles)
    yield from _of_tls(troubles.tls, node.clock.wall_ms())


def _of_tls(tls: TlsView, now_ms: int) -> Iterator[Finding]:
    if tls.refused:
        text = (
            f"Certificates were refused at {moment_text(tls.refused_ms)}, the present ones stay: {short(tls.refused)}"
        )
        yield found("tls_reload_refused", True, text)
    kinds = (
        ("tls_expiring", "The certificate", tls.expiring, "every client refuses the port"),
        ("tls_crl_expiring", "A revocation list", tls.crls_expiring, "the clients of its CA are refused"),
    )
    for kind, what, expiring, then in kinds:
        for service, at_ms in expiring.items():
            gone = at_ms <= now_ms
            when = (
                f"expired {age((now_ms - at_ms) / 1000)} ago" if gone else f"expires in {age((at_ms - now_ms) / 1000)}"
            )
            text = f"{what} of the {service} port {when} ({moment_text(at_ms)}); {then}{'' if gone else ' then'}."
            yield found(kind, gone or at_ms - now_ms < DAY_SECONDS * 1000, text)


def _of_kafka(troubles: NodeTroubles) -> Iterator[Finding]:
    """Each trouble once, with the groups that have it."""
    for said in dict.fromkeys(troubles.kafka.values()):
        groups = ", ".join(sorted(name for name, each in troubles.kafka.items() if each == said))
        text = f"This node cannot read from Kafka for {groups}: {said}. Deliveries are stopped until then."
        yield found("kafka_trouble", True, text)
    for cluster, said in troubles.kafka_unreachable.items():
        text = f"Kafka cluster {cluster} does not respond: {said}. Sends to it fail, its groups' lag is unknown."
        yield found("kafka_unreachable", True, text)
    for cluster, said in troubles.kafka_producers.items():
        text = f"The producer of Kafka cluster {cluster} failed and is being replaced: {said}."
        yield found("kafka_producer_broken", True, text)
    for said, names in troubles.kafka_topics.items():
        yield found("kafka_topic_trouble", True, f"Kafka, for {', '.join(names)}: {said}.")
    for why, names in troubles.kafka_classic.items():
        yield found("kafka_classic", False, f"groupProtocol auto is classic for {', '.join(names)}: {why}.")
    for cluster, texts in troubles.kafka_waiting.items():
        for text in texts:
            yield found("kafka_waiting", True, f"Delays and transactions on Kafka cluster {cluster}: {text}.")


def _of_state(node: LiveNode, troubles: NodeTroubles) -> Iterator[Finding]:
    why = " ".join(node.reasons)
    if troubles.acks_refused:
        yield found("acks_refused", True, f"Acks and pulls are refused now. {why}".rstrip())
    elif node.state != "ready":
        kind = "failed" if node.state == "failed" else "not_ready"
        yield found(kind, node.state == "failed", f"The node is {node.state}. {why}".rstrip())


def _of_disk(node: LiveNode, troubles: NodeTroubles) -> Iterator[Finding]:
    store = node.store()
    if store is None:
        return
    free = byte_size(store.free_bytes)
    if troubles.publishes_refused:
        needed = byte_size(troubles.file_bytes)
        text = (
            f"The disk is full: publishes are refused now. {store.path} has {free} free; the next file needs {needed}."
        )
        yield found("disk_full", True, text)
    elif store.free_bytes < FREE_BYTES_LOW:
        text = f"Only {free} are free in {store.path}; publishes are refused when it is full."
        yield found("disk_low", store.free_bytes == 0, text)
    if troubles.reserve_missing:
        text = "No space is reserved for dead letters: on a full disk they would wait, and their keys with them."
        yield found("reserve_missing", False, text)
    if troubles.retention_blocked:
        text = "A log file is due for deletion, and its pending messages cannot be moved: retention waits."
        yield found("retention_blocked", True, text)
    if troubles.retention_waits is not None:
        counts = by_group(troubles.retention_waits) or "unknown"
        text = f"The configured retention limits would delete unfinished messages: {counts}."
        yield found("retention_waits", False, text)
    if troubles.sync_seconds >= SLOW_SYNC_SECONDS:
        text = f"A sync of the log took {age(troubles.sync_seconds)} within the last minute; publishes wait for it."
        yield found("slow_sync", False, text)


def _of_damage(node: LiveNode, troubles: NodeTroubles) -> Iterator[Finding]:
    damage, deleted = troubles.damage, sorted(name for (name,) in troubles.risen.get(FILES_DELETED, ()))
    if deleted:
        text = f"Deleted by another program within the last minute, and written again: {', '.join(deleted)}."
        yield found("files_deleted", True, text)
    if damage:
        parts = []
        if damage.holes:
            parts.append(f"{amount(damage.holes, 'place')} of {byte_size(damage.hole_bytes)}")
        if damage.records:
            parts.append(f"{amount(damage.records, 'record')} met by reads")
        lost = f"; {amount(damage.fillers, 'message')} of the queues with it" if damage.fillers else ""
        where = f"{' and '.join(parts)}, the first at offset {damage.first:,}"
        text = f"The log is damaged: {where}. Its data is lost{lost}."
        yield found("damage", True, text, count=max(1, damage.fillers, damage.records))
    # Findings of a start are shown for a day.
    if troubles.uptime_seconds >= DAY_SECONDS:
        return
    if troubles.acks_damaged:
        text = f"The ack journal was damaged in {amount(troubles.acks_damaged, 'place')} at the start."
        yield found("acks_damaged", False, text)
    if troubles.files_damaged:
        text = f"Damaged at the start, and rebuilt from a copy or the log: {', '.join(troubles.files_damaged)}."
        yield found("file_damaged", False, text)


def _of_process(node: LiveNode, troubles: NodeTroubles, loop_lag_seconds: float) -> Iterator[Finding]:
    memory = node.memory()
    if memory.pressure != "none":
        text = (
            f"{byte_size(memory.held_bytes)} of {byte_size(memory.max_bytes)} (memoryMax) are held: {memory.pressure}."
        )
        yield found("memory", memory.pressure in ("refusing", "closing"), text)
    if loop_lag_seconds > LOOP_LAG_SECONDS:
        text = f"The event loop was {loop_lag_seconds:.1f} s late within the last 20 s; every answer waits."
        yield found("loop_late", False, text)
    if troubles.index_failed:
        yield found("index_failed", False, "A write to an index file failed: indexing stops until a restart.")
    if troubles.clock_forward_seconds and troubles.clock_forward_ago < RECENT_SECONDS:
        by, ago = age(troubles.clock_forward_seconds), age(troubles.clock_forward_ago)
        yield found("clock_forward", False, f"The wall clock was set forward by {by}, {ago} ago.")
    if troubles.clock_behind_seconds > CLOCK_BEHIND_SECONDS:
        by = age(troubles.clock_behind_seconds)
        text = f"The wall clock was set back: it is {by} earlier than it has been."
        if troubles.stamps_ahead_seconds > CLOCK_BEHIND_SECONDS:
            ahead = age(troubles.stamps_ahead_seconds)
            text += (
                f" Store times are {ahead} ahead of it until it reaches them: messages stored before this "
                "start count as stored at the start."
            )
        yield found("clock_back", False, text)
    for name, text in sorted(troubles.failing.items()):
        yield found("work_failing", True, f"The node's work {name} fails each time it runs: {short(text)}")
    if troubles.last_fault and troubles.last_fault_ago < RECENT_SECONDS and not troubles.failing:
        count, ago = amount(troubles.faults, "fault"), age(troubles.last_fault_ago)
        text = f"{count} inside the node since its start, the last {ago} ago: {short(troubles.last_fault)}"
        yield found("internal_fault", False, text)
    if troubles.lag_webhook is not None:
        text = f"The last post of a verdict change to `lag.webhook` failed: {short(troubles.lag_webhook)}"
        yield found("lag_webhook", False, text)


def _of_configuration(troubles: NodeTroubles) -> Iterator[Finding]:
    configuration = troubles.configuration
    if configuration.missing_ms:
        since = moment_text(configuration.missing_ms)
        text = f"The configuration file {configuration.file} is missing since {since}; the node continues unchanged."
        yield found("config_missing", True, text)
    elif configuration.refused_ms:
        since = moment_text(configuration.refused_ms)
        problems = configuration.problems
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        text = f"The configuration was refused at {since}, the former one stays in force: {short(problems[0])}{more}"
        yield found("reload_refused", True, text, count=len(problems))


def _of_waiting(troubles: NodeTroubles) -> Iterator[Finding]:
    waiting = troubles.waiting
    if waiting.late_ms >= LATE_MS:
        text = f"Timed messages are late: the first has been due for {age(waiting.late_ms / 1000)}."
        yield found("timers_late", True, text)
    if waiting.refused:
        text = f"Due and not deliverable: {amount(waiting.refused, 'message')}; {short(waiting.refused_because)}"
        yield found("timers_refused", True, text, count=waiting.refused)
    if waiting.paused:
        yield found("timers_paused", False, f"Paused stages of the timers: {', '.join(waiting.paused)}.")
    if waiting.undecided and waiting.undecided_ms > waiting.checked_ms:
        count, old = amount(waiting.undecided, "transaction"), age(waiting.undecided_ms / 1000)
        text = f"{count} undecided, the oldest for {old}: no producer answers the checks, or none knows the outcome."
        yield found("undecided", False, text, count=waiting.undecided)
    unread = troubles.retries_unread
    if unread:
        names = some_of([f"{topic}: {messages:,}" for topic, messages in unread.items()])
        text = f"No group of this node reads these retry topics, and their messages are not delivered: {names}."
        yield found("retries_unread", False, text, count=sum(unread.values()))


def _of_refusals(risen: Risen) -> Iterator[Finding]:
    lost = sum(risen.get("pyddmq_log_lines_lost_total", {}).values())
    if lost:
        text = f"{amount(lost, 'log line')} could not be written within the last minute."
        yield found("log_lines_lost", False, text, count=lost)
    for (service, reason), count in sorted(risen.get("pyddmq_connections_refused_total", {}).items()):
        if count >= REFUSALS:
            text = f"{count:,} connections of the {service} port closed within the last minute: {reason}."
            yield found("connections_refused", False, text, count=count)
    full = sum(risen.get(REFUSED, {}).values())
    for (code,), count in sorted(risen.get("pyddmq_sends_refused_total", {}).items()):
        if count >= REFUSALS and not (full and code == "10"):
            text = f"{count:,} publishes refused within the last minute with code {code}."
            yield found("publishes_refused", False, text, count=count)
    for (reason,), count in sorted(risen.get("pyddmq_pulls_refused_total", {}).items()):
        if count >= REFUSALS:
            text = f"{count:,} pulls refused within the last minute: {reason}."
            yield found("pulls_refused", False, text, count=count)
