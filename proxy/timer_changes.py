"""What an operator may do to timers through the admin port: halt the stages of their work."""

from __future__ import annotations

from broker.timer.stages import Stage
from proxy.admin.changes import Change, ChangeBody, ChangeRefused, Document
from proxy.group_changes import need_ready
from proxy.node import Node


class StageBody(ChangeBody, frozen=True):
    """A stage by its name, or `all`."""

    stage: str


def timer_changes(node: Node) -> list[Change]:
    """Return the changes of timers."""
    desk = _Timers(node)
    return [
        Change(name="pause_timers", path="/api/timers/pause", body=StageBody, run=desk.pause),
        Change(name="resume_timers", path="/api/timers/resume", body=StageBody, run=desk.resume),
    ]


class _Timers:
    def __init__(self, node: Node) -> None:
        self._node = node

    def pause(self, body: StageBody) -> Document:
        stages = self._stages(body)
        changed = any(self._node.timers.stages.runs(stage) for stage in stages)
        for stage in stages:
            self._node.timers.pause(stage)
        return self._paused(changed)

    def resume(self, body: StageBody) -> Document:
        stages = self._stages(body)
        changed = not all(self._node.timers.stages.runs(stage) for stage in stages)
        for stage in stages:
            self._node.timers.resume(stage)
        return self._paused(changed)

    def _stages(self, body: StageBody) -> list[Stage]:
        need_ready(self._node)
        if body.stage == "all":
            return list(Stage)
        try:
            return [Stage(body.stage)]
        except ValueError:
            names = ", ".join(stage.value for stage in Stage)
            raise ChangeRefused(404, f"There is no stage {body.stage!r}; there are {names}, and all.") from None

    def _paused(self, changed: bool) -> Document:
        paused = self._node.timers.stages.paused
        return {"changed": changed, "pausedStages": [stage.value for stage in Stage if stage in paused]}
