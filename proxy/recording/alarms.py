"""The node's alarms about consumption lag: judged after each round, kept, and told.

A round changes the state in memory; that is written beside the loop, and only what is written is told. So a kill loses
a telling that was decided and not written, whose alarm then opens anew with the next rounds, and doubles none. Without
rules nothing is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import structlog

from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import FileWrite, StateWriter
from broker.runtime.metrics import declare
from conf.sections.alarms import LagAlarmsConfig
from lag.alarms.findings import judging
from lag.alarms.lines import AlarmLines
from lag.alarms.model import SEVERITIES, AlarmRule, AlarmState, Mute
from lag.alarms.rounds import AlarmPolicy, take_round
from lag.alarms.state import FOLDER, AlarmFile
from lag.alarms.webhook import Webhook
from lag.alarms.windows import Windows
from proxy.recording.alarm_topic import AlarmTopic
from proxy.recording.limits import is_alarmed, limits_of_config, recipients_of
from proxy.recording.node import Observed

OPEN = declare("pyddmq_lag_alarms_open", "Open alarms about consumption lag, by severity", ("severity",), kind="gauge")
FAILURES = declare(
    "pyddmq_lag_alarm_failures_total",
    "Tries to tell alarms to a place that failed; place: file, topic, webhook",
    ("sink",),
)

log = structlog.get_logger()


def policy_of(config: LagAlarmsConfig, recipients: Callable[[str], tuple[str, ...]]) -> AlarmPolicy:
    """Return what the configuration says is an alarm."""
    rules = tuple(
        AlarmRule(
            statuses=frozenset(each.statuses),
            groups=tuple(each.groups),
            for_ms=each.for_ms,
            close_after_ms=each.close_after_ms,
            repeat_ms=each.repeat_ms,
            sinks=tuple(dict.fromkeys(each.sinks)),
        )
        for each in config.rules
    )
    mutes = {each.group: Mute(until_ms=each.until_ms, reason=each.reason) for each in config.mute}
    return AlarmPolicy(rules=rules, recipients=recipients, mutes=mutes)


class NodeAlarms:
    """Raises alarms of one node.

    Attributes:
        state: What is open, muted, and waits to be told.
        troubles: By place, why its last try failed.

    Args:
        node: The node; looked at from `start` on.
        runtime: The node's.
    """

    def __init__(self, node: Observed, runtime: Runtime) -> None:
        self.state = AlarmState()
        self.troubles: dict[str, str] = {}
        self._node = node
        self._runtime = runtime
        self._config = LagAlarmsConfig()
        self._policy = AlarmPolicy(rules=())
        self._file: AlarmFile | None = None
        self._writer: StateWriter | None = None
        self._lines: AlarmLines | None = None
        self._topic: AlarmTopic | None = None
        self._webhook: Webhook | None = None
        self._unwritten = False
        self._written: frozenset[str] = frozenset()
        """Keys of what the state as it was written last has in its outbox."""
        metrics = runtime.metrics
        self._open = {severity: metrics.counter(OPEN, severity) for severity in SEVERITIES.values()}

    @property
    def policy(self) -> AlarmPolicy:
        """What is an alarm."""
        return self._policy

    def start(self) -> None:
        """Read what an earlier process left, once the store is open."""
        self._file = AlarmFile(self._runtime.disk, f"{self._node.config.node.data}/{FOLDER}")
        try:
            self.state = self._file.load()
            trouble = self._file.trouble
        except OSError as error:
            trouble = str(error)
        if trouble is not None:
            log.error("lag_alarms_unreadable", fault=trouble)
        self._written = frozenset(event["key"] for event, _ in self.state.outbox)
        self._writer = StateWriter(self._runtime.disk, self._node.store.file_writes, self._writing)
        self._topic = AlarmTopic(self._node, self._runtime.clock, self._topic_told)
        self.configure()

    def configure(self) -> None:
        """Bring the settings in force after a reload to bear."""
        before, self._config = self._config, self._node.config.lag.alarms
        config = self._config
        self._policy = policy_of(config, lambda group: recipients_of(self._group(group)))
        if self._lines is None or before.file != config.file:
            path = config.file or f"{self._node.config.node.data}/{FOLDER}/alarms.jsonl"
            self._close_lines()
            self._lines = AlarmLines(self._runtime.disk, path)
        if (before.webhook, before.webhook_timeout) != (config.webhook, config.webhook_timeout):
            self._close_webhook()
            if config.webhook is not None:
                self._webhook = Webhook(config.webhook, config.webhook_timeout_ms)

    def stop(self) -> None:
        """Tell nothing any more."""
        self._close_webhook()
        self._close_lines()

    def round(self, windows: Windows, time_ms: int) -> Generator[None, None, None]:
        """Judge a round that is in the windows, in steps, and have what follows from it told."""
        state = self.state
        if self._policy.rules or state.alarms or state.outbox or self._unwritten:
            config = self._node.config.node
            judged = yield from judging(
                windows,
                time_ms,
                whose=(config.broker_cluster, config.broker_name),
                limits_of=lambda group, topic: limits_of_config(self._group(group), topic),
                wanted=lambda group, topic: is_alarmed(self._group(group), topic),
            )
            self._unwritten |= take_round(state, judged, self._policy)
            self._take_webhook()
            self._go_on()
        self._count()

    def mute(self, group: str, mute: Mute | None) -> None:
        """Mute a group, or end that; `writing` keeps it."""
        if mute is None:
            self.state.mutes.pop(group, None)
        else:
            self.state.mutes[group] = mute
        self._unwritten = True

    def writing(self) -> FileWrite:
        """Write the state, in steps. Raises OSError."""
        assert self._file is not None, "it was started"
        keys = frozenset(event["key"] for event, _ in self.state.outbox)
        self._unwritten = False
        try:
            yield from self._file.writing(self.state)
        except OSError:
            self._unwritten = True
            raise
        self._written = keys

    def _go_on(self) -> None:
        """Write and tell what there is."""
        assert self._writer is not None, "it was started"
        if self._unwritten or self._told("file"):
            self._writer.begin()
        self._tell()

    def _writing(self) -> FileWrite:
        """Write the state where it changed, and the lines of alarms."""
        try:
            if self._unwritten:
                yield from self.writing()
        except OSError as error:
            self._runtime.limited_log.note("lag_alarms_not_written", fault=str(error))
            return
        events = self._told("file")
        assert self._lines is not None, "it was started"
        try:
            keys = (yield from self._lines.appending(events)) if events else frozenset()
        except OSError as error:
            self._failed("file", str(error))
            return
        self._took("file", keys)
        self._tell()

    def _told(self, sink: str) -> list[dict[str, Any]]:
        """Return what a place may be told: what is written and it has not taken."""
        return [event for event in self.state.waiting(sink) if event["key"] in self._written]

    def _tell(self) -> None:
        assert self._topic is not None, "it was started"
        for event in self._told("topic"):
            if self._config.topic is None:
                self._failed("topic", "the configuration names no topic")
            else:
                self._topic.send(self._config.topic, event)
        events = self._told("webhook")
        if events and self._webhook is None:
            self._failed("webhook", "the configuration names no webhook")
        elif events and self._webhook is not None:
            self._webhook.offer(events)

    def _topic_told(self, key: str, trouble: str | None) -> None:
        if trouble is None:
            self._took("topic", frozenset({key}))
        else:
            self._failed("topic", trouble)

    def _take_webhook(self) -> None:
        if self._webhook is None:
            return
        self._took("webhook", self._webhook.take())
        failed = self._runtime.metrics.counter(FAILURES, "webhook")
        if self._webhook.trouble is not None and self._webhook.failures:
            failed.add(self._webhook.failures)
            self._webhook.failures = 0
            self._note_failure("webhook", self._webhook.trouble)

    def _took(self, sink: str, keys: frozenset[str]) -> None:
        if keys:
            self._unwritten |= self.state.took(sink, keys)
            self.troubles.pop(sink, None)

    def _failed(self, sink: str, trouble: str) -> None:
        self._runtime.metrics.counter(FAILURES, sink).add()
        self._note_failure(sink, trouble)

    def _note_failure(self, sink: str, trouble: str) -> None:
        self.troubles[sink] = trouble
        self._runtime.limited_log.note("lag_alarm_not_told", kind=sink, sink=sink, fault=trouble)

    def _close_lines(self) -> None:
        if self._lines is not None:
            # They may be under way.
            self._node.store.file_writes.finish()
            self._lines.close()

    def _close_webhook(self) -> None:
        webhook, self._webhook = self._webhook, None
        if webhook is not None:
            webhook.close()

    def _count(self) -> None:
        for counter in self._open.values():
            counter.value = 0
        for alarm in self.state.open_alarms():
            self._open[SEVERITIES[alarm.level]].value += 1

    def _group(self, name: str) -> Any:
        group = self._node.groups.get(name)
        return None if group is None else group.config
