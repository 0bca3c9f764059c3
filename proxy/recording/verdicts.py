"""The verdicts on a node and its groups: judged after rounds, logged where they change, and posted to one webhook.

Judging is in steps between which the loop serves others, and takes `SHARE` of the loop at most: with very many queues
not every round is judged. After a restart a group that is or was not OK is reported
once more, as one of which no verdict was known.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import structlog

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from broker.runtime.steps import StepsEnd, step
from conf.sections.lag import LagConfig
from lag.verdicts.changes import GroupVerdict, VerdictChange, Verdicts
from lag.verdicts.webhook import Webhook
from lag.verdicts.windows import NodeWindows
from proxy.recording.in_force import InForce
from proxy.recording.limits import is_alarmed, limits_of_config, recipients_of

CHANGES = declare(
    "pyddmq_lag_verdict_changes_total", "Changes of the verdict on a group, by the new level", ("group", "level")
)
POSTS = declare(
    "pyddmq_lag_webhook_posts_total",
    "Posts of changed verdicts by outcome: sent, failed (retried), refused and dropped (both lost)",
    ("outcome",),
)
SHARE = 0.005
"""Part of the loop's time that judging takes at most."""

Judging = Callable[[Callable[[str, str], bool], int], Generator[None, None, dict[str, GroupVerdict]]]
"""Judges, given which group and topic count and the round's moment, in steps; returns the verdicts by group."""

log = structlog.get_logger()


class NodeVerdicts:
    """The verdicts of one node.

    Attributes:
        verdicts: By group; of the node itself by the name "".
        judging: Judges the node in steps; None: nothing is reported. It is given by `proxy.operate`, which has the
            findings beside the lag rules.

    Args:
        in_force: The node's configuration and groups.
        runtime: The node's.
    """

    def __init__(self, in_force: InForce, runtime: Runtime) -> None:
        self.verdicts = Verdicts()
        self.judging: Judging | None = None
        self._in_force = in_force
        self._runtime = runtime
        self._config = LagConfig()
        self._webhook: Webhook | None = None
        self._posted: dict[str, int] = {}
        self._judge_at = 0.0

    @property
    def trouble(self) -> str | None:
        """Why the last change was not posted; None if it was posted or no webhook is configured."""
        return None if self._webhook is None else self._webhook.trouble

    def reported(self) -> list[tuple[str, GroupVerdict, tuple[str, ...]]]:
        """Return each group that has a verdict, with it and the names for routing."""
        current = self.verdicts.current.items()
        return [(name, found, recipients_of(self._in_force.config_of(name))) for name, found in current if name]

    def configure(self) -> None:
        """Bring the settings in force after a reload to bear."""
        before, self._config = self._config, self._in_force.config.lag
        config = self._config
        if (before.webhook, before.webhook_timeout) != (config.webhook, config.webhook_timeout):
            self.stop()
            if config.webhook is not None:
                self._webhook = Webhook(config.webhook, config.webhook_timeout_ms)
                self._posted = {}
        if before.enabled and not config.enabled:
            self._report(self.verdicts.end(self._runtime.clock.wall_ms()))

    def stop(self) -> None:
        """Post nothing more."""
        webhook, self._webhook = self._webhook, None
        if webhook is not None:
            webhook.close()

    def round(self, time_ms: int) -> Generator[None, None, None]:
        """Judge the node after a round, in steps, and report what changed."""
        clock, busy = self._runtime.clock, 0.0
        if self.judging is None or clock.monotonic() < self._judge_at:
            return
        steps = self.judging(self._wanted, time_ms)
        while True:
            began = clock.monotonic()
            made = step(steps)
            busy += clock.monotonic() - began
            if isinstance(made, StepsEnd):
                break
            yield
        self._judge_at = clock.monotonic() + busy / SHARE
        yield
        self._report(self.verdicts.take_all(made.result, time_ms))

    def recall(self, windows: NodeWindows, time_ms: int) -> Generator[None, None, None]:
        """Judge a round of the process before, in steps: a group that has recovered since is reported."""
        lag = self._in_force.config.lag
        steps = windows.judging(
            time_ms, lambda group, topic: limits_of_config(self._in_force.config_of(group), topic, lag)
        )
        yield from self.verdicts.recall((yield from steps), time_ms, self._wanted)

    def _wanted(self, group: str, topic: str) -> bool:
        return is_alarmed(self._in_force.config_of(group), topic)

    def _report(self, changes: list[VerdictChange]) -> None:
        node = self._in_force.config.node
        posts = []
        for change in changes:
            recipients = recipients_of(self._in_force.config_of(change.group))
            fields = change.as_fields(node.broker_cluster, node.broker_name, recipients)
            posts.append(fields)
            self._runtime.metrics.counter(CHANGES, change.group, fields["level"]).add()
            log.info(
                "lag_verdict_changed",
                group=change.group,
                level=fields["level"],
                status=fields["status"],
                before=change.before,
                topic=fields["topic"],
                queue=fields["queue"],
                cause=fields["cause"],
                evidence=fields["evidence"],
                lag=fields["lag"],
                time_lag_ms=fields["timeLagMs"],
            )
        if self._webhook is not None:
            self._webhook.offer(posts)
            self._count(self._webhook)

    def _count(self, webhook: Webhook) -> None:
        for outcome, total in webhook.counts.items():
            self._runtime.metrics.counter(POSTS, outcome).add(total - self._posted.get(outcome, 0))
            self._posted[outcome] = total
        if webhook.trouble is not None:
            self._runtime.limited_log.note("lag_webhook_failed", fault=webhook.trouble)
