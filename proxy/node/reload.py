"""Hot reload: read the configuration again and apply what changed, all or nothing (D22).

Everything that can be refused is refused before anything is changed: a file with errors, a setting that needs a
restart, fewer queues than a topic has, a group that still drains from an earlier removal, an action that does not
open. Groups that did not change are not touched at all.

A reload goes in steps, between which the node does everything else. The file is read, and the modules that it names are
imported, in a thread beside the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import structlog
from msgspec import structs

from broker.errors import StoreError
from broker.runtime.async_steps import run_async
from broker.runtime.metrics import declare
from broker.runtime.steps import StepWait
from conf import Config, ConfigError, GroupConfig, Loaded, loads
from conf.diff import ChangeKind, ConfigChanges, ReloadRefusal, diff, lowered_queues
from conf.places import Path
from conf.sections.access_files import AccessUnreadable
from conf.sections.node import NodeConfig
from lag.samples import EventKind
from proxy.access.access import Policy
from proxy.node.access import replace_policy
from proxy.node.action_places import finding_unmakeable, group_path, unmakeable
from proxy.node.assembly import consumer_group, retention_limits
from proxy.node.node import Node
from proxy.node.opened import Opened
from proxy.node.trouble_facts import ConfigurationView
from proxy.node.views import ReloadResult, by_group
from proxy.services.topic_ports import wanted_types
from proxy.tls.ports import Unusable
from upstream.calls.thread_call import ThreadCall
from upstream.delivery.group import ConsumerGroup
from upstream.kafka.link import KafkaFailure

_log = structlog.get_logger(__name__)

RELOADS = declare("pyddmq_reloads_total", "Reloads of the configuration: applied, unchanged, refused", ("outcome",))


ReloadSteps = Generator[StepWait | None, Any, ReloadResult]
GroupSteps = Generator[None, None, None]
"""What remains to be done for one group: it cannot fail."""


class Candidate(NamedTuple):
    """A configuration that is not the node's yet: its text, and what problems call its file."""

    text: str
    name: str


class Reloader:
    """Reloads one node."""

    def __init__(
        self,
        node: Node,
        read: Callable[[], Loaded],
        *,
        over: Callable[[Config], Config] = lambda config: config,
        applied: Callable[[Config], None] = lambda _: None,
        file: str = "",
        text: str = "",
    ) -> None:
        """Set up.

        Args:
            node: The running node.
            read: Loads and checks the configuration; raises ConfigError.
            over: Puts over it what the command line said.
            applied: Called with a configuration that came into force, for the process around the node.
            file: Where the configuration is read, as people see it.
            text: What was read there, without secrets.
        """
        self._node = node
        self._read = read
        self._over = over
        self._applied = applied
        self.configuration = ConfigurationView(file=file, text=text)
        """The file, when it was refused or is gone."""
        self._one_at_a_time = asyncio.Lock()
        self._policy: Policy | None = None
        """What is prepared of `access`."""

    async def reload(self, *, accept_loss: bool = False) -> ReloadResult:
        """`reloading` on the running loop, after a reload that is under way. Returns the same."""
        async with self._one_at_a_time:
            return await run_async(self.reloading(accept_loss=accept_loss))

    def reloading(self, *, accept_loss: bool = False) -> ReloadSteps:
        """Read and apply, in steps; the outcome is logged and counted, and returned.

        Args:
            accept_loss: Limits of retention come into force although they delete messages that are not finished.
        """
        try:
            loaded = yield from self._loading()
        except ConfigError as error:
            self.configuration = replace(self.configuration, text=error.shown)
            return self._refuse(tuple(str(problem) for problem in error.problems))
        self.configuration = replace(self.configuration, text=loaded.shown)
        result = yield from self.applying(
            self._over(loaded.config),
            place=lambda refusal: str(loaded.problem(refusal.path, refusal.text)),
            accept_loss=accept_loss,
        )
        if not result.accepted:
            return self._refuse(result.problems)
        outcome = "applied" if result.changes else "unchanged"
        self._node.runtime.metrics.counter(RELOADS, outcome).add()
        warnings = (*(str(warning) for warning in loaded.warnings), *self._waiting_limits())
        self.configuration = replace(self.configuration, refused_ms=0, problems=())
        _log.info("reloaded", changes=list(result.changes), warnings=list(warnings))
        return ReloadResult(accepted=True, changes=result.changes, warnings=warnings)

    async def preview(self, *, accept_loss: bool = False, candidate: Candidate | None = None) -> ReloadResult:
        """Return what `reload` would change, or why it would be refused; nothing is changed, created or counted.

        Args:
            accept_loss: As of `reload`.
            candidate: A configuration in place of the node's file.
        """
        async with self._one_at_a_time:
            return await run_async(self._previewing(accept_loss=accept_loss, candidate=candidate))

    def _previewing(self, *, accept_loss: bool, candidate: Candidate | None) -> ReloadSteps:
        try:
            loaded = yield from self._loading(candidate)
        except ConfigError as error:
            return ReloadResult(dry_run=True, accepted=False, problems=tuple(str(each) for each in error.problems))
        opened = self._opened()
        if opened is None:
            return structs.replace(self._ended(), dry_run=True)
        config = self._over(loaded.config)
        changes, problems = yield from self._comparing(opened, config, accept_loss=accept_loss)
        problems += self._unpreparable(config, changes)
        if problems:
            sentences = tuple(str(loaded.problem(each.path, each.text)) for each in problems)
            return ReloadResult(dry_run=True, accepted=False, problems=sentences)
        losses = [f"this {each.text}" for each in self._losses(opened, config)]
        warnings = (*(str(warning) for warning in loaded.warnings), *losses)
        return ReloadResult(dry_run=True, accepted=True, changes=tuple(changes.sentences()), warnings=warnings)

    def _unpreparable(self, config: Config, changes: ConfigChanges) -> list[ReloadRefusal]:
        """Return what `_prepare` would refuse, as far as it is known without creating topics or groups."""
        parts, problems = self._node.parts, []
        tried = parts.tls.tried()
        if isinstance(tried, Unusable):
            problems.append(ReloadRefusal(("tls", *tried.path), tried.text))
        for name, change in changes.groups.items():
            if change.kind is not ChangeKind.REMOVED:
                running = self._node.in_force.config.groups.get(name)
                refusal = unmakeable(parts.registry, config, name, running=running)
                problems += [] if refusal is None else [refusal]
        if parts.access is not None and config.access is not None:
            try:
                parts.access.prepared(config.access)
            except AccessUnreadable as error:
                problems.append(ReloadRefusal(error.path, error.text))
        return problems

    def _loading(self, candidate: Candidate | None = None) -> Generator[StepWait | None, Any, Loaded]:
        """Read the file, or a text in its place, in a thread. Raises ConfigError."""
        read = self._read
        if candidate is not None:
            read = partial(loads, candidate.text, file=candidate.name, actions=self._node.parts.registry)
        reading = ThreadCall(self._node.parts.threads, read)
        yield reading
        return reading.result()

    def applying(
        self, config: Config, *, place: Callable[[ReloadRefusal], str] = str, accept_loss: bool = False
    ) -> ReloadSteps:
        """Bring a checked configuration into force, or change nothing and say why; in steps.

        Args:
            config: The configuration.
            place: Makes the sentence of a refusal, with the place of its key.
            accept_loss: See `reload`.
        """
        tls, opened = self._node.parts.tls, self._opened()
        if opened is None:
            return self._ended()
        changes, problems = yield from self._comparing(opened, config, accept_loss=accept_loss)
        if problems:
            return ReloadResult(accepted=False, problems=tuple(place(each) for each in problems))
        # First of what can fail, for it leaves nothing behind. Certificates come with every reload (docs/tls.md).
        contexts = tls.prepare()
        if isinstance(contexts, Unusable):
            return ReloadResult(
                accepted=False, problems=(place(ReloadRefusal(("tls", *contexts.path), contexts.text)),)
            )
        if changes.empty:
            self._node.in_force.config = config
            tls.swap(contexts)
            return ReloadResult(accepted=True, changes=_waited(opened, accept_loss=accept_loss))
        try:
            prepared = yield from self._prepare(opened, config, changes)
        except _Unprepared as error:
            self._unmake(changes)
            return ReloadResult(accepted=False, problems=(place(error.refusal),))
        if self._opened() is None:
            return self._ended()
        # Topics may have been widened, and messages taken, between two steps.
        problems = lowered_queues(self._node.in_force.config, config, self._queues(opened))
        yield None
        problems += self._refused(opened, config, changes, accept_loss=accept_loss)
        if problems:
            self._unmake(changes)
            return ReloadResult(accepted=False, problems=tuple(place(each) for each in problems))
        tls.swap(contexts)
        tls.configure(config.tls)
        yield from self._commit(opened, config, changes, prepared)
        self._applied(config)
        return ReloadResult(accepted=True, changes=(*changes.sentences(), *_waited(opened, accept_loss=accept_loss)))

    def _opened(self) -> Opened | None:
        """What the node has open; None while it starts or ends."""
        return self._node.opened if self._node.state in ("ready", "failed") else None

    def _ended(self) -> ReloadResult:
        return ReloadResult(
            accepted=False, problems=(f"the node is {self._node.state}; changes are refused in this state",)
        )

    def _comparing(
        self, opened: Opened, config: Config, *, accept_loss: bool
    ) -> Generator[StepWait, Any, tuple[ConfigChanges, list[ReloadRefusal]]]:
        """Return what a configuration changes, and why it may not; the two are compared in a thread."""
        in_force = self._node.in_force
        comparing = ThreadCall(
            self._node.parts.threads, partial(diff, in_force.config, config, queues=self._queues(opened))
        )
        yield comparing
        changes = comparing.result()
        refused = self._refused(opened, config, changes, accept_loss=accept_loss)
        return changes, [*changes.refusals, *refused]

    @staticmethod
    def _queues(opened: Opened) -> dict[str, int]:
        return {name: len(topic.queues) for name, topic in opened.store.topics.items()}

    def _refused(
        self, opened: Opened, config: Config, changes: ConfigChanges, *, accept_loss: bool
    ) -> list[ReloadRefusal]:
        """Return why the present state of the node does not allow the changes."""
        losses = [] if accept_loss else self._losses(opened, config)
        return [*self._still_draining(config, changes), *losses]

    def _losses(self, opened: Opened, config: Config) -> list[ReloadRefusal]:
        """Refuse limits of retention that would delete messages which groups have not finished."""
        retaining, wanted = opened.retaining, retention_limits(config.node)
        if wanted in (opened.store.retention.limits, retaining.waiting):
            return []
        path = "node", retention_key(self._node.in_force.config.node, config.node)
        try:
            losses = retaining.losses_under(wanted)
        except OSError as error:
            text = f"unfinished messages that it would delete cannot be counted ({error}); {_CONFIRM}"
            return [ReloadRefusal(path, text)]
        return [ReloadRefusal(path, loss_sentence(losses))] if losses else []

    def _waiting_limits(self) -> list[str]:
        opened = self._opened()
        losses = {} if opened is None else opened.retaining.losses
        return [f"the retention limits are not in force: this {loss_sentence(losses)}"] if losses else []

    def _still_draining(self, config: Config, changes: ConfigChanges) -> list[ReloadRefusal]:
        leaving = {group.name for group in self._node.in_force.leaving}
        text = "was removed and still drains; reload again when it has drained"
        return [
            ReloadRefusal(group_path(config, name), f"group {name} {text}")
            for name, change in changes.groups.items()
            if change.kind is ChangeKind.ADDED and name in leaving
        ]

    def _prepare(
        self, opened: Opened, config: Config, changes: ConfigChanges
    ) -> Generator[StepWait | None, Any, dict[str, GroupSteps]]:
        """Do all that can fail: create topics and queues, build what groups need. Returns the steps that remain.

        Raises:
            _Unprepared: Something of it failed.
        """
        parts = self._node.parts
        with _blamed_on(("topics",)):
            yield from opened.ports.making(config)
        steps: dict[str, GroupSteps] = {}
        for name, change in changes.groups.items():
            if change.kind is ChangeKind.REMOVED:
                steps[name] = self._removing(name)
                continue
            settings = config.groups[name]
            running = self._node.in_force.config.groups.get(name)
            refusal = yield from finding_unmakeable(parts.registry, config, name, running=running)
            if refusal is not None:
                raise _Unprepared(refusal)
            if change.kind is ChangeKind.ADDED:
                steps[name] = self._adding(self._made(opened, settings, config))
            else:
                steps[name] = self._reconfiguring(settings)
            yield None
        if parts.access is not None and config.access is not None:
            try:
                self._policy = parts.access.prepared(config.access)
            except AccessUnreadable as error:
                raise _Unprepared(ReloadRefusal(error.path, error.text)) from error
        # Last, and in one write: unlike queues, a type that the running configuration does not want shows at once.
        with _blamed_on(("topics",)):
            opened.store.topic_changes.set_types(wanted_types(config))
        return steps

    def _made(self, opened: Opened, settings: GroupConfig, config: Config) -> ConsumerGroup:
        try:
            return consumer_group(self._node.parts, opened, settings, config)
        except KafkaFailure as error:
            raise _Unprepared(ReloadRefusal(group_path(config, settings.group), str(error))) from error

    def _unmake(self, changes: ConfigChanges) -> None:
        """Let go of what was made for new groups that do not come."""
        for name, change in changes.groups.items():
            if change.kind is ChangeKind.ADDED:
                self._node.parts.kafka_groups.left(name)

    def _removing(self, name: str) -> GroupSteps:
        in_force = self._node.in_force
        group = in_force.groups.pop(name)
        group.begin_drain()
        in_force.leaving.append(group)
        yield

    def _adding(self, group: ConsumerGroup) -> GroupSteps:
        self._node.in_force.groups[group.name] = group
        yield from self._node.parts.kafka_groups.starting(group)
        yield

    def _reconfiguring(self, settings: GroupConfig) -> GroupSteps:
        yield from self._node.reconfiguring_group(settings)
        yield

    def _commit(
        self, opened: Opened, config: Config, changes: ConfigChanges, steps: dict[str, GroupSteps]
    ) -> Generator[StepWait | None, Any, None]:
        """Apply what cannot fail; group after group, so that many of them do not delay what clients ask."""
        node, parts = self._node, self._node.parts
        yield from opened.ports.publishing(config)
        node.in_force.config = config
        if parts.access is not None and self._policy is not None:
            replace_policy(parts.access, self._policy, parts.servers)
        yield None
        for each in steps.values():
            for _ in each:
                yield None
                if self._opened() is None:
                    # The next start does the rest.
                    return
        node.recording.recorder.notes.add(EventKind.RELOAD, detail="; ".join(changes.sentences()))
        for _ in node.recording.configuring():
            yield None
            if self._opened() is None:
                return
        if "limits" in changes.sections:
            parts.limiter.configure(config.limits)
            for server in parts.servers:
                server.limits_changed()
        if "node" in changes.sections:
            node.apply_live_settings(opened)
            for name in [name for name in node.in_force.groups if name not in steps]:
                yield from self._reconfiguring(config.groups[name])
        node.turns.request()

    def look(self, *, is_there: bool) -> None:
        """Take notice of whether the file is there; without it the running configuration stays in force."""
        missing_ms = self.configuration.missing_ms
        if is_there == (not missing_ms):
            return
        if is_there:
            _log.info("config_file_back", file=self.configuration.file)
        else:
            _log.warning("config_file_missing", file=self.configuration.file, text="a restart would not find it")
        missing_ms = 0 if is_there else self._node.runtime.clock.wall_ms()
        self.configuration = replace(self.configuration, missing_ms=missing_ms)

    def _refuse(self, problems: Sequence[str]) -> ReloadResult:
        refused_ms = self._node.runtime.clock.wall_ms()
        self.configuration = replace(self.configuration, refused_ms=refused_ms, problems=problems)
        self._node.runtime.metrics.counter(RELOADS, "refused").add()
        _log.error("reload_refused", problems=list(problems), text="the running configuration stays in force")
        return ReloadResult(accepted=False, problems=problems)


def _waited(opened: Opened, *, accept_loss: bool) -> tuple[str, ...]:
    """Bring limits that wait into force if their loss is accepted; returns what changed."""
    retaining = opened.retaining
    if not accept_loss or retaining.waiting is None:
        return ()
    retaining.change(retaining.waiting)
    return ("the postponed retention limits are in force",)


_CONFIRM = "run `pyddmq reload --accept-loss` to accept the loss"


def retention_key(old: NodeConfig, new: NodeConfig) -> str:
    """Return the YAML name of the limit of retention that differs, the first of several."""
    keys = ("retention_bytes", "retention_hours", "retention_disk_ratio_forced")
    differ = [key for key in keys if getattr(old, key) != getattr(new, key)]
    return str(NodeConfig.model_fields[differ[0] if differ else keys[0]].alias)


def loss_sentence(losses: Mapping[str, int]) -> str:
    """Say how many messages of which groups would be deleted, and how to confirm it."""
    return f"would immediately delete unfinished messages: {by_group(losses)}; {_CONFIRM}"


class _Unprepared(Exception):
    """What a reload needs cannot be had."""

    def __init__(self, refusal: ReloadRefusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


@contextmanager
def _blamed_on(path: Path) -> Iterator[None]:
    """Name the key for which something is done as the place of what goes wrong."""
    try:
        yield
    except StoreError as error:
        raise _Unprepared(ReloadRefusal(path, str(error))) from error
