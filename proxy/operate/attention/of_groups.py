"""Findings about consumer groups."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from msgspec.structs import replace

from broker.format.numbers import whole_number
from lag.rules.limits import LagLimits
from proxy.node.trouble_facts import Labels, Risen
from proxy.operate.attention.kinds import command, found
from proxy.operate.text import age, amount, byte_size, short
from proxy.operate.views.findings import Finding
from upstream.views import GroupView, PushView, StuckKey, SubscriptionView, TargetView, whereabouts

STUCK_SECONDS = 60.0
"""A key that is held this long is named; shorter is ordinary work."""
SILENT_SECONDS = 60.0
"""A client that has messages this long without an answer is named."""
EXPIRES_SHARE = 0.1
"""Part of a retention limit that is left when it becomes a finding."""
LOST_SECONDS = 24 * 3600.0
"""How long a loss is shown; for the window of the lag rules as bad."""
SINK_SECONDS = 1.0
"""A sink that waits this long is shown; a failover is often shorter."""
FAILURES = 5
"""Failures of a URL in a row that are a finding, also where the circuit stays closed."""
TIMEOUTS = 3
FLOOD = 10
"""Timeouts, and dead letters, of one group and topic within a minute that are a finding."""
STORM = 100
"""Failed attempts within a minute, more than what was finished, that are a storm of retries."""
_NAMED = 5
_TOPICS_AT_ONCE = 128
"""Topics of a group that are looked at in one step."""
_WINDOW_SECONDS = LagLimits().window_ms / 1000


def findings(group: GroupView, risen: Risen, now_ms: int) -> Generator[None, None, list[Finding]]:
    """Return the findings about a group, in steps.

    Args:
        group: The group.
        risen: By how much counters rose within the last minute.
        now_ms: Now, by the wall clock.
    """
    made = []
    for number, topic in enumerate(group.topics, start=1):
        for finding in _of_topic(group, topic, risen, now_ms):
            made.append(replace(finding, group=group.group, topic=topic.topic))
        if number % _TOPICS_AT_ONCE == 0:
            yield
    return [*made, *_of_holders(group, now_ms)]


def _of_topic(group: GroupView, topic: SubscriptionView, risen: Risen, now_ms: int) -> Iterator[Finding]:
    where = f"Group {group.group} on topic {topic.topic}"
    if topic.paused_since_ms is not None:
        since = age((now_ms - topic.paused_since_ms) / 1000)
        resume = command("groups", "resume", group.group, "--topic", topic.topic)
        text = f"{where}: paused for {since}, from {topic.paused_by}. To continue: {resume}"
        yield found("paused", False, text, since_ms=topic.paused_since_ms)
    if topic.owner is not None:
        text = f"{where}: waits for its queues, which {topic.owner} consumes inside the program."
        yield found("queues_owned", False, text)
    if topic.problem:
        yield found("not_starting", True, f"{where}: does not start: {short(topic.problem)}", reason=topic.problem)
    if topic.push is not None:
        yield from _of_push(where, topic.push, now_ms)
    yield from _of_sinks(where, topic, now_ms)
    yield from _of_retention(where, topic, now_ms)
    if topic.reading_stopped:
        text = f"{where}: reading has stopped, {topic.waiting:,} messages wait for earlier ones of their keys."
        yield found("reading_stopped", True, text, count=topic.waiting)
    yield from _of_stops(where, group, topic, now_ms)
    yield from _of_calls(where, group, topic, now_ms)
    yield from _of_keys(where, group, topic, now_ms)
    if topic.dead_letters_refused:
        text = f"{where}: {amount(topic.dead_letters_refused, 'dead letter')} cannot be written, and their keys wait."
        yield found("dead_letters_refused", True, text, count=topic.dead_letters_refused)
    yield from _of_rises(where, (group.group, topic.topic), risen)


def _of_stops(where: str, group: GroupView, topic: SubscriptionView, now_ms: int) -> Iterator[Finding]:
    """Messages that are out of attempts and wait for an operator."""
    for each in topic.stopped[:_NAMED]:
        what = f"key {each.key}" if each.key is not None else "a message without a key"
        behind = f", {amount(each.waiting, 'message')} behind it" if each.waiting else ""
        why = f" The last failure: {short(each.reason)}." if each.reason else ""
        since = age((now_ms - each.since_ms) / 1000)
        text = f"{where}: {what} is stopped, failing for {since} ({_place(each)}{behind}).{why}{_way_out(group, each)}"
        yield found("stopped", True, text, **_about(each))
    if topic.stopped_total > _NAMED:
        more = topic.stopped_total - min(_NAMED, len(topic.stopped))
        yield found("stopped", True, f"{where}: {amount(more, 'more message')} that are stopped.", count=more)


def _of_push(where: str, push: PushView, now_ms: int) -> Iterator[Finding]:
    """URLs that are out, or fail again and again though nothing puts them out."""
    for url in failing_urls(push):
        since = age((now_ms - (url.since_ms or now_ms)) / 1000)
        every = all(each.state != "closed" for each in push.urls)
        what = "No URL is left: its messages wait." if every else "The others take its messages."
        text = (
            f"{where}: pushes to {url.url} fail for {since}: {amount(url.failures, 'failure')} in a row, "
            f"the last with: {short(url.reason or 'unknown')}. {what}"
        )
        yield found("push_failing", every, text, count=url.failures, reason=url.reason, since_ms=url.since_ms)


def _of_sinks(where: str, topic: SubscriptionView, now_ms: int) -> Iterator[Finding]:
    """Sinks that wait for their servers."""
    for sink in topic.sinks:
        seconds = (now_ms - sink.since_ms) / 1000
        if seconds < SINK_SECONDS:
            continue
        what = "Some messages wait, others are written." if sink.messages_alone else "All its messages wait."
        text = (
            f"{where}: {sink.action} has waited {age(seconds)} for {sink.server}, "
            f"the last time with: {short(sink.reason)}. {what}"
        )
        yield found("sink_waits", not sink.messages_alone, text, reason=sink.reason, since_ms=sink.since_ms)


def failing_urls(push: PushView) -> list[TargetView]:
    """Return the URLs that are shown to an operator."""
    return [each for each in push.urls if each.state != "closed" or each.failures >= FAILURES]


def _of_calls(where: str, group: GroupView, topic: SubscriptionView, now_ms: int) -> Iterator[Finding]:
    """Calls of actions that continue beyond their time limits."""
    for each in topic.calls_stuck[:_NAMED]:
        queue = _queue(each.qid)
        place = ("--topic", topic.topic, "--queue", queue, "--offset", str(each.offset), "--force")
        text = (
            f"{where}: action {each.action} has had a message for {age((now_ms - each.since_ms) / 1000)}, "
            f"beyond its limit of {each.limit_ms:,} ms (queue {queue}, offset {each.offset}); its key waits "
            f"until it returns. To continue without it: {command('groups', 'skip', group.group, *place)} "
            "(or dead-letter)"
        )
        about = {"since_ms": each.since_ms, "queue": whole_number(queue, 9), "offset": each.offset}
        yield found("call_stuck", True, text, reason=each.action, **about)
    if topic.calls_stuck_total > _NAMED:
        more = topic.calls_stuck_total - min(_NAMED, len(topic.calls_stuck))
        yield found("call_stuck", True, f"{where}: {amount(more, 'more message')} in calls beyond limits.", count=more)


def _of_keys(where: str, group: GroupView, topic: SubscriptionView, now_ms: int) -> Iterator[Finding]:
    """Messages that fail again and again, and keys that are held otherwise."""
    failing = {(each.qid, each.offset) for each in topic.failing}
    for each in topic.failing[:_NAMED]:
        what = f"key {each.key}" if each.key is not None else "a message without a key"
        since = f"{'more than ' if each.earlier else ''}{age((now_ms - each.since_ms) / 1000)}"
        why = f", the last time with: {short(each.reason)}" if each.reason else ""
        text = (
            f"{where}: {what} fails repeatedly: {amount(each.attempts, 'delivery')} in {since} "
            f"({_place(each)}){why}.{_end(group, each)}"
        )
        yield found("poison", True, text, **_about(each))
    if topic.failing_total > _NAMED:
        more = topic.failing_total - min(_NAMED, len(topic.failing))
        yield found("poison", True, f"{where}: {amount(more, 'more message')} that fail repeatedly.", count=more)
    stuck = [key for key in topic.stuck_keys if now_ms - key.since_ms >= STUCK_SECONDS * 1000]
    held = sorted((key for key in stuck if (key.qid, key.offset) not in failing), key=lambda each: each.since_ms)
    for key in held[:_NAMED]:
        text = f"{where}: {_held_text(key, now_ms)}{_way_out(group, key)}"
        yield found("key_held", False, text, **_about(key))
    if len(held) > _NAMED:
        more = len(held) - _NAMED
        # Only the keys held longest are listed in the view.
        least = "at least " if topic.stuck_keys_total > len(topic.stuck_keys) else ""
        text = f"{where}: {least}{more} more keys are blocked for a minute or longer."
        yield found("key_held", False, text, count=more)


def _of_rises(where: str, labels: Labels, risen: Risen) -> Iterator[Finding]:
    def rise(name: str) -> int:
        return risen.get(name, {}).get(labels, 0)

    def by_reason(name: str) -> dict[str, int]:
        return {each[2]: count for each, count in risen.get(name, {}).items() if each[:2] == labels}

    again = rise("pyddmq_retries_sent_back_again_total")
    if again:
        waits = command("timers", "list", "--topic", f"%RETRY%{labels[0]}")
        text = (
            f"{where}: messages that had failed five times or more failed again {again:,} times within the last minute."
        )
        yield found("poison_retried", True, f"{text} They wait in the retry topic: {waits}", count=again)
    timeouts = rise("pyddmq_timeout_attempts_total")
    if timeouts >= TIMEOUTS:
        text = f"{where}: {timeouts:,} deliveries of the last minute were not answered within the timeout."
        yield found("timeouts", False, text, count=timeouts)
    failed = timeouts + rise("pyddmq_failed_attempts_total") + rise("pyddmq_error_attempts_total")
    finished = rise("pyddmq_finished_messages_total")
    if failed >= STORM and failed > finished:
        text = f"{where}: {failed:,} attempts of the last minute failed, {amount(finished, 'message')} finished."
        yield found("retry_storm", True, text, count=failed)
    letters = by_reason("pyddmq_dead_letters_total")
    count = sum(letters.values())
    if count >= FLOOD:
        most = max(letters, key=lambda reason: letters[reason])
        text = f"{where}: {count:,} messages went to the dead letters within the last minute, most for {most}."
        yield found("dead_letters", True, text, reason=most, count=count)
    skipped = by_reason("pyddmq_skipped_messages_total")
    unreadable = skipped.get("damaged", 0) + skipped.get("gone", 0)
    if unreadable:
        text = f"{where}: {amount(unreadable, 'message')} of the last minute could not be read, and were skipped."
        yield found("unreadable", True, text, count=unreadable)


def _of_retention(where: str, topic: SubscriptionView, now_ms: int) -> Iterator[Finding]:
    """What the group lost to retention within a day, and what it is about to lose."""
    ago = (now_ms - (topic.lost_at_ms or 0)) / 1000
    if topic.lost and ago < LOST_SECONDS:
        lost = amount(topic.lost, "message")
        text = f"{where}: {lost} deleted before the group received them, the last {age(ago)} ago."
        yield found("lost_to_retention", ago < _WINDOW_SECONDS, text, count=topic.lost, since_ms=topic.lost_at_ms)
    share = topic.expires_share
    if share is None or share >= EXPIRES_SHARE:
        return
    limits = []
    if topic.expires_seconds is not None:
        limits.append(f"by age in {age(topic.expires_seconds)}")
    if topic.expires_bytes is not None:
        when = (
            f"after another {byte_size(topic.expires_bytes)} of messages"
            if topic.expires_bytes
            else "with the next messages"
        )
        limits.append(f"by size {when}")
    text = f"{where}: retention deletes its oldest unfinished message {' or '.join(limits)}."
    yield found("near_retention", False, text)


def _of_holders(group: GroupView, now_ms: int) -> Iterator[Finding]:
    """Clients that do not answer; those who hold a key that others wait for are named with that."""
    named = {
        (key.topic, key.holder)
        for topic in group.topics
        for key in (*topic.stuck_keys, *topic.failing)
        if now_ms - key.since_ms >= STUCK_SECONDS * 1000
    }
    silent: dict[tuple[str, str], list[int]] = {}
    for each in group.in_flight:
        if now_ms - each.since_ms >= SILENT_SECONDS * 1000 and (each.topic, each.holder) not in named:
            silent.setdefault((each.topic, each.holder), []).append(each.since_ms)
    for (topic, holder), since in sorted(silent.items(), key=lambda item: min(item[1]))[:_NAMED]:
        long = age((now_ms - min(since)) / 1000)
        what = f"{holder} has {amount(len(since), 'message')} for {long}, unanswered"
        text = f"Group {group.group} on topic {topic}: {what}."
        about = {"group": group.group, "topic": topic, "since_ms": min(since)}
        yield found("no_answer", False, text, count=len(since), **about)


def _about(key: StuckKey) -> dict[str, Any]:
    """The fields of a finding about one message."""
    return {
        "since_ms": key.since_ms,
        "queue": whole_number(_queue(key.qid), 9),
        "offset": key.offset,
        "key": key.key,
        "attempts": key.attempts,
        "reason": key.reason,
    }


def _queue(qid: str) -> str:
    return qid.rpartition("_")[2]


def _place(key: StuckKey) -> str:
    return f"queue {_queue(key.qid)}, offset {key.offset}"


def _head_command(what: str, group: GroupView, key: StuckKey) -> str:
    place = ("--topic", key.topic, "--queue", _queue(key.qid), "--offset", str(key.offset))
    force = ("--force",) if key.holder else ()
    return command("groups", what, group.group, *place, *force)


def _end(group: GroupView, key: StuckKey) -> str:
    """The command that gives a message up."""
    return f" To end it: {_head_command('dead-letter', group, key)} (or skip)"


def _way_out(group: GroupView, key: StuckKey) -> str:
    """The command that retries a stuck key's first message; `skip` and `dead-letter` take the same options.

    Empty where a pull is all that is missing.
    """
    if not key.holder and key.state in ("buffered", "ready"):
        return ""
    return f" To end it: {_head_command('retry', group, key)} (or skip, dead-letter)"


def _held_text(key: StuckKey, now_ms: int) -> str:
    since = age((now_ms - key.since_ms) / 1000)
    behind = f", {amount(key.waiting, 'message')} behind it" if key.waiting else ""
    facts = f"(offset {key.offset}, {amount(key.attempts, 'delivery')}{behind})"
    if key.reason or key.earlier:
        # It is since the first failure, and it may have gone out a moment ago.
        where = f"now with {key.holder}" if key.holder else whereabouts(key.state)
        why = f"; the last failure: {short(key.reason)}" if key.reason else ""
        return f"key {key.key} has been blocked for {since} {facts}, {where}{why}."
    who = f"is in flight with {key.holder}" if key.holder else f"({whereabouts(key.state)}) has been blocked"
    return f"key {key.key} {who} for {since} {facts}."
