"""Alarms of a running node, as they are shown."""

from __future__ import annotations

from lag.alarms.model import SEVERITIES, Alarm
from proxy.node.node import Node
from proxy.operate.views.alarms import LagAlarm, LagAlarmsAnswer, LagMute


def alarms_of(node: Node, *, limit: int, group: str | None = None) -> LagAlarmsAnswer | None:
    """Return what is open, or None when a name is given and no group has it."""
    if group is not None and group not in node.groups:
        return None
    alarms, now_ms = node.recorder.alarms, node.seams.clock.wall_ms()
    mutes = [
        LagMute(group=name, until_ms=mute.until_ms, reason=mute.reason, configured=configured)
        for configured, by_group in ((True, alarms.policy.mutes), (False, alarms.state.mutes))
        for name, mute in by_group.items()
        if mute.until_ms > now_ms and group in (None, name)
    ]
    muted = {mute.group for mute in mutes}
    found = [each for each in alarms.state.open_alarms() if group in (None, each.group)]
    return LagAlarmsAnswer(
        now_ms=now_ms,
        rules=len(alarms.policy.rules),
        alarms=[
            _alarm(each, is_muted=each.group in muted, people=alarms.policy.recipients(each.group))
            for each in found[:limit]
        ],
        mutes=sorted(mutes, key=lambda mute: (mute.group, mute.until_ms)),
        waiting=sum(len(sinks) for _, sinks in alarms.state.outbox),
        dropped=alarms.state.dropped,
        troubles=dict(sorted(alarms.troubles.items())),
    )


def _alarm(alarm: Alarm, *, is_muted: bool, people: tuple[str, ...]) -> LagAlarm:
    return LagAlarm(
        id=alarm.id,
        group=alarm.group,
        status=alarm.status,
        severity=SEVERITIES[alarm.level],
        since_ms=alarm.since_ms,
        opened_ms=alarm.opened_ms or 0,
        gone_ms=alarm.gone_ms,
        muted=is_muted,
        told=alarm.told,
        queues=alarm.queues,
        topic=alarm.topic,
        queue=alarm.queue,
        lag=alarm.lag,
        time_lag_ms=alarm.time_lag_ms,
        cause=alarm.cause,
        evidence=alarm.evidence,
        advice=alarm.advice,
        alarm_group=people,
    )
