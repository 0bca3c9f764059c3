"""What a person on call should look at first: a few rules over the node's view, each giving a sentence."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proxy.admin.text import age, amount, byte_size
from proxy.admin.view import GroupView, NodeView, StuckKey, SubscriptionView, whereabouts

STUCK_SECONDS = 60.0
"""A key that is held this long is named; shorter is ordinary work."""
UNPULLED_SECONDS = 60.0
"""A lag this old with nothing out with clients means that nobody pulls."""
LOOP_LAG_SECONDS = 0.5
FREE_BYTES_LOW = 512 * 1024 * 1024
EXPIRES_SHARE = 0.1
"""Part of a retention limit that is left when a group is told of."""
LOST_SECONDS = 24 * 3600.0
_KEYS_NAMED = 5


class Finding(NamedTuple):
    """One sentence; `bad` when messages are refused or held now, else something to watch."""

    bad: bool
    text: str


def findings(node: NodeView, groups: Sequence[GroupView], loop_lag_seconds: float) -> list[Finding]:
    """Return what needs attention, the bad first; empty when nothing does."""
    found = [*_of_node(node, loop_lag_seconds)]
    now_ms = node.clock.wall_ms()
    for group in groups:
        for topic in group.topics:
            found.extend(_of_subscription(group, topic, now_ms))
    return sorted(found, key=lambda finding: not finding.bad)


def _of_node(node: NodeView, loop_lag_seconds: float) -> Iterator[Finding]:
    if node.state != "ready":
        why = " ".join(node.reasons)
        yield Finding(node.state == "failed", f"The node is {node.state}. {why}".rstrip())
    store = node.store()
    if store is not None and store.free_bytes < FREE_BYTES_LOW:
        text = f"Only {byte_size(store.free_bytes)} are free in {store.path}; publishes are refused when it is full."
        yield Finding(store.free_bytes == 0, text)
    memory = node.memory()
    if memory.pressure != "none":
        text = (
            f"{byte_size(memory.held_bytes)} of {byte_size(memory.max_bytes)} (memoryMax) are held: {memory.pressure}."
        )
        yield Finding(memory.pressure in ("refusing", "closing"), text)
    if loop_lag_seconds > LOOP_LAG_SECONDS:
        yield Finding(
            False, f"The event loop was {loop_lag_seconds:.1f} s late within the last 20 s; every answer waits."
        )


def _of_subscription(group: GroupView, topic: SubscriptionView, now_ms: int) -> Iterator[Finding]:
    where = f"Group {group.group} on topic {topic.topic}"
    if topic.paused_since_ms is not None:
        since = age((now_ms - topic.paused_since_ms) / 1000)
        resume = command("groups", "resume", group.group, "--topic", topic.topic)
        yield Finding(False, f"{where}: paused for {since}, from {topic.paused_by}. To go on: {resume}")
    elif topic.lag and not topic.in_flight and topic.lag_seconds >= UNPULLED_SECONDS:
        since = age(topic.lag_seconds)
        yield Finding(
            False, f"{where}: {amount(topic.lag, 'message')} behind, the oldest for {since}; no client has any."
        )
    if topic.owner is not None:
        yield Finding(False, f"{where}: waits for its queues, which {topic.owner} consumes inside the program.")
    yield from _of_retention(where, topic, now_ms)
    if topic.reading_stopped:
        yield Finding(True, f"{where}: reading has stopped, {topic.waiting:,} messages wait behind their keys.")
    stuck = [key for key in topic.stuck_keys if now_ms - key.since_ms >= STUCK_SECONDS * 1000]
    for key in sorted(stuck, key=lambda each: each.since_ms)[:_KEYS_NAMED]:
        yield Finding(False, f"{where}: {_stuck_text(key, now_ms)}{_way_out(group, key)}")
    if len(stuck) > _KEYS_NAMED:
        yield Finding(False, f"{where}: {len(stuck) - _KEYS_NAMED} more keys are held for a minute or longer.")


def _way_out(group: GroupView, key: StuckKey) -> str:
    """The command that retries a stuck key's first message; `skip` and `dead-letter` take the same options.

    Empty where a pull is all that is missing.
    """
    if not key.holder and key.state in ("buffered", "ready"):
        return ""
    place = ("--topic", key.topic, "--queue", key.qid.rpartition("_")[2], "--offset", str(key.offset))
    force = ("--force",) if key.holder else ()
    return f" To end it: {command('groups', 'retry', group.group, *place, *force)} (or skip, dead-letter)"


def command(*words: str) -> str:
    """A command line of `pyddmq`, to be typed into a shell as it stands."""
    return shlex.join(("pyddmq", *words))


def _of_retention(where: str, topic: SubscriptionView, now_ms: int) -> Iterator[Finding]:
    """What the group lost to retention within a day, and what it is about to lose."""
    ago = (now_ms - topic.lost_at_ms) / 1000
    if topic.lost and ago < LOST_SECONDS:
        yield Finding(True, f"{where}: {amount(topic.lost, 'message')} lost to retention, the last {age(ago)} ago.")
    share = topic.expires_share
    if share is None or share >= EXPIRES_SHARE:
        return
    limits = []
    if topic.expires_seconds is not None:
        limits.append(f"in {age(topic.expires_seconds)} at the earliest")
    if topic.expires_bytes is not None:
        limits.append(f"after another {byte_size(topic.expires_bytes)} of messages")
    yield Finding(True, f"{where}: retention deletes its oldest unfinished message {' or '.join(limits)}.")


def _stuck_text(key: StuckKey, now_ms: int) -> str:
    who = f"is out with {key.holder}" if key.holder else f"({whereabouts(key.state)}) has been held"
    behind = f", {amount(key.waiting, 'message')} behind it" if key.waiting else ""
    since = age((now_ms - key.since_ms) / 1000)
    return f"key {key.key} {who} for {since} (offset {key.offset}, {amount(key.attempts, 'delivery')}{behind})."
