"""LowLevel: the mark of a topic that clients fetch by offsets which they keep themselves (R79)."""

from __future__ import annotations

from pyddmq.actions import Action, Job, Status


class LowLevelAction(Action):
    """Stands alone in its pipeline. Nothing is read ahead for such a topic, so no job ever comes here."""

    may_be_last = True
    needs_data = False

    def act(self, job: Job) -> Status:
        raise AssertionError(f"{job} of a low-level topic: clients fetch, and no job is created")
