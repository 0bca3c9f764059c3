"""The actions of one subscription, split at the order gate.

The gate is where `Async` is; without one an ordered subscription has it before its last action (D14). Only a
JSON-path key needs what earlier actions make of the body; for every other order the gate moves to the front, so that
nothing is parsed before a job's turn has come. Actions before a JSON-path gate run in reading order and must answer at
once: a job that fails there with attempts left stops the reading until it has passed, since its key is not known.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyddmq.actions import Action
from upstream.calls.user_code import described, raised_by


class Pipeline:
    """Actions before and after the order gate; the gate's own marker is in neither.

    Attributes:
        before: Run before the order key is known; empty unless the key is a JSON path.
        actions: Both, in order.
        after: Run when the job's turn has come and it holds a permit.
        rebuilds: Whether a job that waited has to run `before` again, because a later action looks at the data.
        reads_data: Whether any action looks at the data, so that jobs may hold some.
    """

    def __init__(self, actions: Sequence[Action], *, json_path: bool) -> None:
        gates = [place for place, action in enumerate(actions) if action.is_gate]
        gate = (gates[0] if gates else len(actions) - 1) if json_path else 0
        self.before = [action for action in actions[:gate] if not action.is_gate]
        self.after = [action for action in actions[gate:] if not action.is_gate]
        self.actions = [*self.before, *self.after]
        self.rebuilds = bool(self.before) and any(action.needs_data for action in self.after)
        self.reads_data = any(action.needs_data for action in self.actions)

    def open(self) -> None:
        """Open all actions; when one raises, those opened before it are closed again, and that is raised."""
        opened: list[Action] = []
        for action in self.actions:
            if (error := raised_by(action.open)) is not None:
                _close(opened)
                raise error
            opened.append(action)

    def drain(self) -> None:
        """Have all actions finish soon what they keep; what one raises ends nothing."""
        for action in self.actions:
            if (error := raised_by(action.drain)) is not None:
                action.context.note("action_drain_failed", error=described(error))

    def close(self) -> None:
        """Close all actions, the last one first; what one raises keeps no other from being closed."""
        _close(self.actions)


def _close(actions: Sequence[Action]) -> None:
    for action in reversed(actions):
        if (error := raised_by(action.close)) is not None:
            action.context.note("action_close_failed", error=described(error))
