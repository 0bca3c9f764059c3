"""What an operator may do about alarms through the admin port: mute a group for a while."""

from __future__ import annotations

from typing import Annotated

import msgspec

from broker.log.awaited import AwaitedSteps, saved
from lag.alarms.model import Mute
from proxy.access.rules import Action
from proxy.node.node import Node
from proxy.operate.changes.desk import Change, ChangeBody, ChangeRefused
from proxy.operate.changes.groups import group_of, need_ready
from proxy.operate.changes.steps import run_steps
from proxy.operate.views.alarms import MuteResult


class MuteBody(ChangeBody, frozen=True):
    """A group, up to when, and why; a moment that has passed ends its mute."""

    group: str
    until_ms: Annotated[int, msgspec.Meta(ge=0, le=4_102_444_800_000)]
    reason: Annotated[str, msgspec.Meta(max_length=200)] = ""


def alarm_changes(node: Node) -> list[Change]:
    """Return the changes of alarms."""
    return [
        Change(
            name="mute_alarms",
            path="/api/lag/mute",
            action=Action.OPERATE,
            on=lambda body: (body.group,),
            run=_Alarms(node).mute,
            body=MuteBody,
        )
    ]


class _Alarms:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def mute(self, body: MuteBody) -> MuteResult:
        need_ready(self._node)
        group_of(self._node, body.group)
        is_muted = body.until_ms > self._node.seams.clock.wall_ms()
        reason = " ".join(body.reason.split())
        alarms = self._node.recorder.alarms
        alarms.mute(body.group, Mute(until_ms=body.until_ms, reason=reason) if is_muted else None)
        await run_steps(_kept(saved(self._node.store, alarms.writing())))
        return MuteResult(group=body.group, until_ms=body.until_ms if is_muted else None)


def _kept(steps: AwaitedSteps[None]) -> AwaitedSteps[None]:
    try:
        yield from steps
    except OSError as error:
        raise ChangeRefused(503, f"It holds until a restart: it could not be written ({error.strerror}).") from error
