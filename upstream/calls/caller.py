"""Calls of one action in one subscription: what is out, since when, and what becomes of it.

A call is one run of `act`, or of `act_many` over the available jobs. From its beginning to its end its jobs are RUNNING
and keep permit and key, so that nothing overtakes them, and stand in `GroupQueue.calls`, which outlives the generation:
a call that is left behind when its generation ends keeps its messages from being run again before it is over, because a
retry must never overlap it.

A time limit cancels what can be cancelled (D45). What continues all the same is `late`, and shown as stuck until it
ends. Its answer counts then, whatever the time: a success is one.

Answers are delivered in the loop's thread, those of a turn together: one round of the pipeline and of `pump` for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.runtime.later import Earliest
from upstream.calls.answers import Answer
from upstream.job import ActionCall, UpstreamJob

if TYPE_CHECKING:
    from broker.runtime.histogram import Histogram
    from broker.runtime.metrics import Counter
    from pyddmq.actions import Action
    from upstream.calls.node_calls import NodeCalls

EARLY_SECONDS = 1e-4
"""Loops round their timers; what is due within this is due now."""
BATCH_JOBS = 256
"""Jobs of one call of `act_many` at most."""
BATCH_CALLS = 4
"""Calls of `act_many` at a time: what comes while these are out gathers for the next one."""


Acted = Callable[[str, Sequence[UpstreamJob], Sequence[Answer], float], None]
"""Called when an action has ended: its name, jobs, answers, and the monotonic moment at which it began."""


class ActionFigures(NamedTuple):
    """Series of one action in one subscription.

    Attributes:
        seconds: How long it takes.
        out: Calls that are out.
        stuck: Those of them beyond their time limit.
        late: How many went beyond it so far.
        acted: Called with each call, once it has ended; None without tracing.
    """

    seconds: Histogram
    out: Counter
    stuck: Counter
    late: Counter
    acted: Acted | None = None


class AnswerListener(Protocol):
    """Takes the answers of a turn, in the loop's thread; each of these calls has ended."""

    def __call__(self, jobs: list[UpstreamJob], answers: list[Answer], successors: list[UpstreamJob], /) -> None:
        """`successors` are jobs of later generations that waited for one of the calls."""


class Caller:
    """What both kinds of calls share.

    Attributes:
        action: The action.
        out: Calls that are out, in the order of their time limits when these are looked at.
    """

    def __init__(
        self, action: Action, calls: NodeCalls, figures: ActionFigures, *, limit_ms: Callable[[], int]
    ) -> None:
        """Set up.

        Args:
            action: The action, open when the first call comes.
            calls: The node's.
            figures: Series of the action.
            limit_ms: Tells the time limit in force.
        """
        self.action = action
        self.out: dict[ActionCall, None] = {}
        self.reported: AnswerListener = _nobody
        self._calls = calls
        self._clock = calls.clock
        self._figures = figures
        self._limit_ms = limit_ms
        self._ended: list[tuple[ActionCall, Sequence[Answer]]] = []
        self._left: list[tuple[UpstreamJob, Answer]] = []
        self._reporting = False
        self._latest = 0.0
        self._in_order = True
        self._watch = Earliest(calls.clock, calls.scheduler, self._look)

    def call(self, jobs: list[UpstreamJob]) -> None:
        """Take RUNNING jobs over; each is answered once, unless it is never begun before `abandon`."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Begin nothing any more, and cancel what can be: the generation has ended."""
        for call in list(self.out):
            self._cancel(call)

    def _cancel(self, call: ActionCall) -> bool:
        """End a call early; False where that cannot be."""
        return False

    @property
    def idle(self) -> bool:
        """Whether nothing is out or untold."""
        return not self.out and not self._reporting

    def _begin(self, jobs: Sequence[UpstreamJob], now: float, limit_ms: int) -> ActionCall:
        call = ActionCall(self.action.name, jobs, now, limit_ms)
        self.out[call] = None
        for job in jobs:
            job.group_queue.calls[job.offset] = call
        self._figures.out.value += 1
        if call.deadline < self._latest:
            # A reload has shortened the limit.
            self._in_order = False
        else:
            self._latest = call.deadline
        self._watch.at(call.deadline)
        return call

    def _end(self, call: ActionCall, answers: Sequence[Answer]) -> None:
        """Note how a call ended; it is delivered in this turn of the loop."""
        del self.out[call]
        figures = self._figures
        figures.out.value -= 1
        if call.late:
            figures.stuck.value -= 1
        self._ended.append((call, answers))
        if not self._reporting:
            self._report_soon()

    def _leave(self, job: UpstreamJob, answer: Answer) -> None:
        """Note an answer for a job without a call."""
        self._left.append((job, answer))
        if not self._reporting:
            self._report_soon()

    def _report_soon(self) -> None:
        self._reporting = True
        self._calls.scheduler.call_soon(self._report)

    def _report(self) -> None:
        ended, self._ended = self._ended, []
        left, self._left = self._left, []
        self._reporting = False
        if self._calls.closed:
            return
        jobs, answers, successors = [job for job, _ in left], [answer for _, answer in left], []
        now, observe = self._clock.monotonic(), self._figures.seconds.observe
        for call, of_call in ended:
            observe(round((now - call.since) * 1_000_000), len(call.jobs))
            if self._figures.acted is not None:
                self._figures.acted(call.action, call.jobs, of_call, call.since)
            for job, answer in zip(call.jobs, of_call, strict=True):
                # Of one that the action answered by hand before its call was over, another call may be out.
                if job.group_queue.calls.get(job.offset) is call:
                    del job.group_queue.calls[job.offset]
                    jobs.append(job)
                    answers.append(answer)
            if call.successors:
                successors += call.successors
        self.reported(jobs, answers, successors)

    def _look(self) -> None:
        """End calls whose time has passed."""
        now = self._clock.monotonic()
        if not self._in_order:
            self.out = dict.fromkeys(sorted(self.out, key=lambda each: each.deadline))
            self._latest = max((call.deadline for call in self.out), default=0.0)
            self._in_order = True
        for call in list(self.out):
            if call.deadline > now + EARLY_SECONDS:
                self._watch.at(call.deadline)
                break
            if not call.late:
                call.late = True
                self._figures.stuck.value += 1
                self._figures.late.value += 1
                if not self._cancel(call):
                    self.action.context.note(
                        "action_call_stuck", qid=call.jobs[0].qid, offset=call.jobs[0].offset, limit_ms=call.limit_ms
                    )


def _nobody(jobs: list[UpstreamJob], answers: list[Answer], successors: list[UpstreamJob], /) -> None:
    raise AssertionError("a caller needs its listener before its first call")
