"""The actions of one subscription as they are run: which are called at once, which by a caller, and their hooks.

A subscription whose actions are all plain opens and closes them at once. One that has an async or a blocking action
opens its actions one after the other beside the loop's turns, and begins to read after the last of them; it closes them
when the last call of the generation has ended, which for a blocking call may be long after the generation's end.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.runtime.bundle import Runtime
from broker.runtime.histogram import Histogram
from broker.runtime.metrics import declare, declare_histogram
from pyddmq.actions import Action
from upstream.calls.answers import Answer, run_action
from upstream.calls.awaiting import AwaitingCaller
from upstream.calls.blocking import BlockingCaller
from upstream.calls.caller import Acted, ActionFigures, Caller
from upstream.calls.modes import Mode, has_slow_hooks, mode_of
from upstream.calls.node_calls import NodeCalls
from upstream.calls.pool import CallQueue
from upstream.calls.user_code import as_exception, described, is_own_cancellation
from upstream.history import PULL_SERVER
from upstream.job import UpstreamJob
from upstream.running.action_context import ThreadContext

if TYPE_CHECKING:
    from upstream.running.pipeline import Pipeline

_LABELS = ("group", "topic", "action")
SECONDS = declare_histogram(
    "pyddmq_action_seconds",
    "Duration of the action per message; a message of a batch counts the batch's time. PullServer is not included",
    _LABELS,
    bounds=range(6, 28),
)
OUT = declare("pyddmq_action_calls", "Running calls of an async or blocking action", _LABELS, kind="gauge")
STUCK = declare(
    "pyddmq_action_calls_stuck", "Running calls of an action beyond their time limit", _LABELS, kind="gauge"
)
LATE = declare("pyddmq_action_time_limits_total", "Calls of an action that reached their time limit", _LABELS)

CLOSE_SECONDS = 10.0
"""How long an async `close` may take; then it is cancelled."""

Ended = Callable[[int, list[UpstreamJob], list[Answer], list[UpstreamJob]], None]
"""Told the answers of calls: the action's place behind the gate, jobs, answers, and jobs that waited for the calls."""


class PipelineStep:
    """One action of a pipeline.

    Attributes:
        action: It.
        caller: Makes its calls; None where it answers at once.
        run: Runs a plain action over a batch; one answer per job.
    """

    __slots__ = ("_acted", "_monotonic", "_seconds", "action", "caller", "run")

    def __init__(
        self,
        action: Action,
        caller: Caller | None,
        seconds: Histogram | None,
        monotonic: Callable[[], float],
        acted: Acted | None,
    ) -> None:
        self.action = action
        self.caller = caller
        self._acted = acted
        self._monotonic = monotonic
        run: Callable[[Sequence[UpstreamJob]], Sequence[Answer]] = partial(run_action, action)
        self.run = run if seconds is None else partial(self._timed, seconds)

    def _timed(self, seconds: Histogram, jobs: Sequence[UpstreamJob]) -> Sequence[Answer]:
        since = self._monotonic()
        answers = run_action(self.action, jobs)
        seconds.observe(round((self._monotonic() - since) * 1_000_000), len(jobs))
        if self._acted is not None:
            self._acted(self.action.name, jobs, answers, since)
        return answers


class Calling:
    """See the module.

    Attributes:
        before, after: The steps of the pipeline, on both sides of the gate.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        runtime: Runtime,
        calls: NodeCalls | None,
        *,
        group: str,
        topic: str,
        ended: Ended,
        acted: Acted | None = None,
    ) -> None:
        """Set up.

        Args:
            pipeline: The actions, each with its context.
            runtime: The node's.
            calls: Makes calls; None where the node has no event loop.
            group, topic: Of the subscription.
            ended: As above.
            acted: Called with each run of a timed action, once it has ended.

        Raises:
            TypeError: An action cannot be called where it is.
        """
        self._pipeline = pipeline
        self._runtime = runtime
        self._calls = calls
        self._acted = acted
        self._names = (group, topic)
        self._slow_hooks = any(has_slow_hooks(type(each)) for each in pipeline.actions)
        self._line: CallQueue | None = None
        for action in pipeline.before:
            if mode_of(type(action)) is not Mode.PLAIN:
                raise TypeError(f"{action.name} comes before the order gate, where actions must answer immediately")
        self.before = [self._step(action) for action in pipeline.before]
        self.after = [self._step(action) for action in pipeline.after]
        self._callers = [step.caller for step in self.after if step.caller is not None]
        for place, step in enumerate(self.after):
            if step.caller is not None:
                step.caller.reported = self._reported(place, ended)
        self._is_open = self._ended = False

    @property
    def is_timed(self) -> bool:
        """Whether plain actions of unknown cost run in the loop's thread."""
        return any(step.caller is None and step.action.name != PULL_SERVER for step in (*self.before, *self.after))

    @property
    def names(self) -> list[str]:
        """What its actions are called."""
        return [action.name for action in self._pipeline.actions]

    # Hooks

    def open(self, opened: Callable[[Exception | None], None]) -> None:
        """Open all actions; when one fails, those opened before it are closed again.

        `opened` gets why it failed, or None: at once where all of them are plain, and raises what it raises.
        """
        if not self._slow_hooks:
            try:
                self._pipeline.open()
            except BaseException:
                self._leave_line()
                raise
            self._is_open = True
            opened(None)
            return
        self._of_node.begin(self._open(opened))

    async def _open(self, opened: Callable[[Exception | None], None]) -> None:
        done: list[Action] = []
        try:
            for action in self._pipeline.actions:
                await self._hook(action, action.open)
                done.append(action)
        except BaseException as error:
            if is_own_cancellation(error):
                raise
            await self._close(done)
            self._leave_line()
            if self._ended:
                self._of_node.ending.discard(self)
            else:
                opened(as_exception(error))
            return
        self._is_open = True
        if self._ended:
            self._close_when_idle()
        else:
            opened(None)

    def drain(self) -> None:
        """Have open actions finish soon what they keep."""
        if self._is_open:
            self._pipeline.drain()

    def end(self) -> None:
        """Cancel calls as far as can be, and close the actions when the last one has ended."""
        self._ended = True
        if self._callers and self._calls is not None:
            self._calls.ending.add(self)
        for caller in self._callers:
            caller.abandon()
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        if not (self._ended and self._is_open) or any(not caller.idle for caller in self._callers):
            return
        self._is_open = False
        if self._calls is not None:
            self._calls.ending.discard(self)
        if self._slow_hooks:
            self._of_node.begin(self._close_all())
            return
        self._leave_line()
        self._pipeline.close()

    async def _close_all(self) -> None:
        await self._close(self._pipeline.actions)
        self._leave_line()

    async def _close(self, actions: Sequence[Action]) -> None:
        for action in reversed(actions):
            try:
                async with asyncio.timeout(None if action.blocking else CLOSE_SECONDS):
                    await self._hook(action, action.close)
            except BaseException as error:
                if is_own_cancellation(error):
                    raise
                action.context.note("action_close_failed", error=described(error))
                _flush(action)

    async def _hook(self, action: Action, hook: Callable[[], object]) -> None:
        if self._line is not None and action.blocking and has_slow_hooks(type(action)):
            try:
                await self._of_node.in_thread(self._line, hook)
            finally:
                _flush(action)
        elif inspect.isawaitable(found := hook()):
            await found

    def _leave_line(self) -> None:
        if self._line is not None:
            self._of_node.pool.leave(self._line)
            self._line = None

    # Parts

    @property
    def _of_node(self) -> NodeCalls:
        if self._calls is None:
            raise TypeError("an async or blocking action needs a node with an event loop")
        return self._calls

    def _step(self, action: Action) -> PipelineStep:
        metrics, labels = self._runtime.metrics, (*self._names, action.name)
        mode = mode_of(type(action))
        monotonic = self._runtime.clock.monotonic
        seconds = metrics.histogram(SECONDS, *labels) if action.is_timed else None
        if mode is Mode.PLAIN:
            return PipelineStep(action, None, seconds, monotonic, self._acted)
        out, stuck, late = [metrics.counter(name, *labels) for name in (OUT, STUCK, LATE)]
        figures = ActionFigures(metrics.histogram(SECONDS, *labels), out, stuck, late, self._acted)

        def limit_ms() -> int:
            return action.time_limit_ms or action.context.timeout_ms

        if mode is Mode.AWAITS:
            awaiting = AwaitingCaller(action, self._of_node, figures, limit_ms=limit_ms)
            return PipelineStep(action, awaiting, seconds, monotonic, self._acted)
        if self._line is None:
            self._line = self._of_node.pool.line(*self._names)
        caller = BlockingCaller(action, self._of_node, figures, limit_ms=limit_ms, line=self._line)
        return PipelineStep(action, caller, seconds, monotonic, self._acted)

    def _reported(
        self, place: int, ended: Ended
    ) -> Callable[[list[UpstreamJob], list[Answer], list[UpstreamJob]], None]:
        action = self.after[place].action

        def reported(jobs: list[UpstreamJob], answers: list[Answer], successors: list[UpstreamJob]) -> None:
            _flush(action)
            ended(place, jobs, answers, successors)
            self._close_when_idle()

        return reported


def _flush(action: Action) -> None:
    if isinstance(action.context, ThreadContext):
        action.context.flush()
