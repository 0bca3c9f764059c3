"""When a node's retention runs, and under which limits.

It runs once a second, and on at once while there is more to do.

Lower limits than before may delete messages that a group has not finished. Such limits come into force by
`pyddmq reload --accept-loss` alone, or by themselves once no group would lose a message. Until then the old ones hold:
`pyddmq/retention.json` keeps them over a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields

import structlog

from broker.errors import NO_SPACE, StoreUnreadable
from broker.log.durability import AwaitedSteps
from broker.retention import RetentionLimits
from broker.runtime.bundle import Runtime
from broker.runtime.sealed_file import SealedFile
from broker.runtime.steps import StepRunner
from broker.store import Store
from proxy.recording.in_force import InForce
from upstream.embedded.expiry import Expiry

STEP_SECONDS = 1.0
ON_SECONDS = 0.02
"""Between the steps of much work, so that everything else has its turn."""
LOOK_SECONDS = 30.0
"""How often it is looked whether limits that wait would still delete unfinished messages."""

_log = structlog.get_logger(__name__)


class Retaining:
    """Runs the retention of one node.

    Args:
        store: Whose log files go.
        expiry: Looks after the groups.
        runtime: Disk, clock and event loop.
        in_force: The node's configuration.
    """

    def __init__(self, store: Store, expiry: Expiry, runtime: Runtime, in_force: InForce) -> None:
        self._store = store
        self._expiry = expiry
        self._scheduler = runtime.scheduler
        self._clock = runtime.clock
        self._in_force = in_force
        self._going_on = False
        self._runner = StepRunner(runtime.scheduler.call_soon)
        self._file = SealedFile(runtime.disk, f"{store.root}/pyddmq/retention.json")
        self._saved: RetentionLimits | None = None
        self._look_at = 0.0
        self.waiting: RetentionLimits | None = None
        """Limits that are configured and not in force, since groups would lose messages by them."""
        self.losses: Mapping[str, int] = {}
        """By group, unfinished messages that they would delete; empty while those cannot be counted, too."""
        store.retention.holds.append(expiry)

    def begin(self, wanted: RetentionLimits) -> None:
        """Take the limits of the last run while those of the configuration would delete unfinished messages."""
        try:
            kept = self._file.load()
            self._saved = None if kept is None else _limits_of(kept)
        except (StoreUnreadable, OSError, ValueError) as error:
            _log.warning("retention_file_unreadable", error=str(error))
        limits = self._store.retention.limits = self._saved or wanted
        if wanted != limits:
            self.waiting = wanted
            self._look(wanted)
            if self.waiting is not None:
                _log.warning("retention_limits_wait", messages=dict(self.losses))

    def losses_under(self, wanted: RetentionLimits) -> dict[str, int]:
        """Return by group the unfinished messages that limits would delete, if they delete more than the present ones.

        Raises:
            OSError: The log or a queue's file cannot be read.
        """
        retention = self._store.retention
        ends = retention.end_under(retention.limits), retention.end_under(wanted)
        if ends[1] <= ends[0]:
            return {}
        subscribed = {
            (group.group, each.topic) for group in self._in_force.config.groups.values() for each in group.topics
        }
        before, after = (
            self._expiry.unfinished_below(end, lambda group, topic: (group, topic) in subscribed) for end in ends
        )
        return {group: count for group, count in after.items() if count > before.get(group, 0)}

    def losses_with(self, topic: str) -> dict[str, int]:
        """Return by group the messages of a topic that it has not finished, also of groups that are not configured.

        Raises:
            OSError: A queue's file cannot be read.
        """
        return self._expiry.unfinished_below(self._store.end, lambda _, of: of == topic)

    def losses_of_next(self, topic: str) -> dict[str, int]:
        """Return by group the messages of a topic that the group has not finished in the file that is deleted next.

        Raises:
            OSError: The log or a queue's file cannot be read.
        """
        expiring = self._store.retention.next_file
        return {} if expiring is None else self._expiry.unfinished_below(expiring.end, lambda _, of: of == topic)

    def change(self, wanted: RetentionLimits) -> None:
        """Bring limits into force."""
        self._store.retention.limits = wanted
        self.waiting, self.losses = None, {}
        self._save()

    def run(self) -> None:
        """Log which groups are near to losing messages, then do a step; the node calls this every STEP_SECONDS."""
        if self.waiting is not None and self._clock.monotonic() >= self._look_at:
            self._look(self.waiting)
        self._save()
        self._runner.run(self._expiry.looking_ahead())
        if not self._going_on:
            self._step()

    def _look(self, waiting: RetentionLimits) -> None:
        self._look_at = self._clock.monotonic() + LOOK_SECONDS
        try:
            self.losses = self.losses_under(waiting)
        except OSError as error:
            _log.warning("retention_limits_wait", messages=dict(self.losses), error=str(error))
            return
        if not self.losses:
            self.change(waiting)

    def _save(self) -> None:
        """Keep the limits for the next start; on a full disk it is tried again."""
        limits = self._store.retention.limits
        if self._saved == limits or self._store.failed is not None:
            return
        try:
            self._file.save({"limits": asdict(limits)})
            self._saved = limits
        except OSError as error:
            if error.errno not in NO_SPACE:
                self._store.writes.fail("writing the limits of retention", error)

    def stop(self) -> None:
        """Do nothing any more; a file that waits for the disk stays."""
        self._runner.stop()

    def _step(self) -> None:
        self._runner.run(self._steps())

    def _steps(self) -> AwaitedSteps[None]:
        self._going_on, more = True, False
        try:
            more = yield from self._store.retention.steps()
        finally:
            self._going_on = more
        if more:
            self._scheduler.call_later(ON_SECONDS, self._step)


def _limits_of(kept: object) -> RetentionLimits:
    """Return the limits of the file. Raises ValueError: it holds something else."""
    limits = kept.get("limits") if isinstance(kept, dict) else None
    names = {each.name for each in fields(RetentionLimits)}
    if not isinstance(limits, dict) or set(limits) != names:
        raise ValueError(f"limits must have {', '.join(sorted(names))}")
    for name, value in limits.items():
        if value is not None and not isinstance(value, (int, float)):
            raise ValueError(f"{name} must be a number or null, got {value!r}")
    return RetentionLimits(**limits)
