"""From judged rounds to alarms: pure, the clock is the rounds' own.

An alarm is of a group and a status: it is open while any queue of the group has the status. What is told goes to the
state's outbox in the same step, so that one write of the state makes both durable, or neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lag.alarms.model import (
    CLOSED,
    OPENED,
    REPEATED,
    SILENT,
    SINKS,
    UNDECIDED,
    Alarm,
    AlarmRule,
    AlarmState,
    Finding,
    JudgedRound,
    Mute,
    event_of,
)

OUTBOX_MAX: Final = 1_000
"""Tellings that wait for a place; of more the oldest go."""


def nobody(_group: str) -> tuple[str, ...]:
    """Name nobody."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmPolicy:
    """What is an alarm, and for whom.

    Attributes:
        rules: The first that fits a group and status counts.
        recipients: Whom the alarms of a group are for.
        silence_ms: How long a node may record nothing.
        mutes: Mutes of the configuration, by group, besides those of the state.
    """

    rules: tuple[AlarmRule, ...]
    recipients: Callable[[str], tuple[str, ...]] = nobody
    silence_ms: int = 60_000
    mutes: Mapping[str, Mute] = field(default_factory=dict)

    def rule_of(self, group: str, status: str) -> AlarmRule | None:
        """Return the rule that counts; null: it is no alarm."""
        return next((rule for rule in self.rules if rule.fits(group, status)), None)


def take_round(state: AlarmState, judged: JudgedRound, policy: AlarmPolicy) -> bool:
    """Open and close alarms by one round, and put what is to be told into the outbox.

    Args:
        state: Changed in place.
        judged: The round; rounds of a node come in the order in which they were made.
        policy: What is an alarm.

    Returns:
        Whether the state changed.
    """
    found: dict[tuple[str, str], list[Finding]] = {}
    undecided = set()
    for finding in judged.findings:
        found.setdefault((finding.group, finding.status), []).append(finding)
        if finding.status in UNDECIDED:
            undecided.add(finding.group)
    here = (judged.cluster, judged.node)
    known = {key[2:] for key in state.alarms if key[:2] == here}
    before = len(state.outbox), state.dropped, dict(state.alarms), len(state.mutes)
    for group, status in sorted(known | set(found)):
        alarm, rule = state.alarms.get((*here, group, status)), policy.rule_of(group, status)
        if rule is None:
            if alarm is not None:
                # A reload took its rule out: it is of no interest any more.
                _Step(state, policy, AlarmRule(sinks=SINKS), judged.time_ms).close(alarm)
            continue
        step, findings = _Step(state, policy, rule, judged.time_ms), found.get((group, status), [])
        if findings:
            if alarm is None:
                alarm = Alarm(cluster=here[0], node=here[1], group=group, status=status, since_ms=judged.time_ms)
            step.hold(alarm, findings)
        elif alarm is not None and (group not in undecided or status in UNDECIDED):
            step.miss(alarm)
    for group in [group for group, mute in state.mutes.items() if mute.until_ms <= judged.time_ms]:
        del state.mutes[group]
    return before != (len(state.outbox), state.dropped, state.alarms, len(state.mutes))


def take_silence(state: AlarmState, node: tuple[str, str], last_ms: int, now_ms: int, policy: AlarmPolicy) -> bool:
    """Open an alarm about a node that recorded nothing for too long; its next round closes it.

    It opened when the silence had lasted for `silence_ms`, whenever it is found out.

    Args:
        state: Changed in place.
        node: Cluster and name.
        last_ms: Moment of its last round.
        now_ms: The present moment of who looks.
        policy: What is an alarm.

    Returns:
        Whether the state changed.
    """
    rule, at_ms = policy.rule_of("", SILENT), last_ms + policy.silence_ms
    known = state.alarms.get((*node, "", SILENT))
    if rule is None or now_ms < at_ms:
        return False
    if known is not None and known.gone_ms is None and not (
        rule.repeat_ms and now_ms - known.told_ms >= rule.repeat_ms
    ):  # fmt: skip
        return False
    evidence = f"the last round of node {node[1]} is of {last_ms}"
    finding = Finding(group="", topic="", queue=-1, status=SILENT, evidence=evidence, advice="Look whether it runs.")
    alarm = known or Alarm(cluster=node[0], node=node[1], group="", status=SILENT, since_ms=last_ms, opened_ms=at_ms)
    _Step(state, policy, rule, at_ms if known is None else now_ms).hold(alarm, [finding])
    return True


@dataclass(frozen=True, slots=True)
class _Step:
    """What one moment does to one alarm."""

    state: AlarmState
    policy: AlarmPolicy
    rule: AlarmRule
    time_ms: int

    def hold(self, alarm: Alarm, findings: Sequence[Finding]) -> None:
        """Note that a status holds; open it when that lasted for long enough, tell it where it is due."""
        worst = max(findings, key=lambda each: (each.lag or -1, each.time_lag_ms or -1, each.topic, -each.queue))
        time_ms, rule = self.time_ms, self.rule
        # After a step of the clock back, what began in the future begins now.
        since_ms = min(alarm.since_ms, time_ms)
        opened_ms = alarm.opened_ms
        if opened_ms is None and time_ms - since_ms >= rule.for_ms:
            opened_ms = time_ms
        alarm = replace(
            alarm,
            since_ms=since_ms,
            opened_ms=opened_ms,
            gone_ms=None,
            queues=len(findings),
            topic=worst.topic,
            queue=worst.queue,
            cause=worst.cause,
            evidence=worst.evidence,
            advice=worst.advice,
            lag=worst.lag,
            time_lag_ms=worst.time_lag_ms,
        )
        mutes = [by_group.get(alarm.group) for by_group in (self.state.mutes, self.policy.mutes)]
        if opened_ms is not None and not any(mute is not None and time_ms < mute.until_ms for mute in mutes):
            if not alarm.told:
                alarm = self.tell(alarm, OPENED)
            elif rule.repeat_ms and time_ms - alarm.told_ms >= rule.repeat_ms:
                alarm = self.tell(alarm, REPEATED)
        self.state.alarms[alarm.key] = alarm

    def miss(self, alarm: Alarm) -> None:
        """Note that a status is gone; close its alarm when that lasted for long enough."""
        gone_ms = self.time_ms if alarm.gone_ms is None else min(alarm.gone_ms, self.time_ms)
        if alarm.opened_ms is None or self.time_ms - gone_ms >= self.rule.close_after_ms:
            self.close(alarm)
        else:
            self.state.alarms[alarm.key] = replace(alarm, gone_ms=gone_ms)

    def close(self, alarm: Alarm) -> None:
        """Forget an alarm; whoever was told that it opened is told that it closed, muted or not."""
        if alarm.told:
            self.tell(alarm, CLOSED)
        del self.state.alarms[alarm.key]

    def tell(self, alarm: Alarm, event: str) -> Alarm:
        """Put an event into the outbox; returns the alarm that was told."""
        state = self.state
        if self.rule.sinks:
            told = event_of(alarm, event, self.time_ms, self.policy.recipients(alarm.group))
            state.outbox.append((told, self.rule.sinks))
        over = len(state.outbox) - OUTBOX_MAX
        if over > 0:
            state.dropped += over
            del state.outbox[:over]
        return replace(alarm, told=alarm.told + 1, told_ms=self.time_ms)
