"""Actions tried on a message without a node: what each one answers, and what it leaves behind.

The steps are those of a subscription: the same actions are made from the same configuration, opened, called and closed;
blocking ones in a thread, async ones as tasks, both within their time limits. There is no order, no retry and no store:
a trial says what would become of the message. An action that reaches other servers is run only where that is asked for;
else the trial shows what would be handed to it.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from actions.client_factories import OutsideAction
from actions.functions import as_action
from actions.registry import BUILT_IN, ActionError, Registry
from broker.runtime.seams import Clock, SystemClock
from conf.loader import loads
from conf.models import SubscriptionConfig
from conf.order_key import is_json_path
from pyddmq.actions import Action, Failed, Job, Message, Outgoing, RetryLater, Status, TimedOut, Unprocessable
from upstream.calls.answers import checked_many, no_answer, run_action
from upstream.calls.modes import Mode, answers_many, mode_of
from upstream.calls.user_code import as_exception, described, is_own_cancellation, raised_by, text_of, traceback_of
from upstream.waiting.order import compile_path

Answer = Status | Exception


class TrialMissing(Exception):
    """The configuration has no such group or topic; the text says which there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What an action counted, or wrote to the log: its name, and how many or the facts."""

    name: str
    amount: int = 0
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What became of the message in one action.

    Attributes:
        action: The action.
        answer: What it answered; None where it was not run.
        meaning: That as a sentence.
        data: `job.data` after it.
        outgoing: What was gathered up to here.
        events: What it counted and noted.
        seconds: Its duration.
        preview: What it would have sent, where it was not run; secrets are left out.
    """

    action: str
    answer: Answer | None
    meaning: str
    data: Any
    outgoing: Outgoing
    events: Sequence[Event]
    seconds: float
    preview: Sequence[str] = ()

    @property
    def traceback(self) -> str:
        """Where an unexpected exception was raised; "" for any other answer."""
        answer = self.answer
        if not isinstance(answer, Exception) or isinstance(answer, Unprocessable | Failed | RetryLater | TimedOut):
            return ""
        return traceback_of(answer) if answer.__traceback__ else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """All steps, up to the one that decided.

    Attributes:
        steps: In order.
        order_key: The key whose messages run one at a time; None: unordered.
    """

    steps: Sequence[Step]
    order_key: str | None = None

    @property
    def last(self) -> Step:
        """The one that decided."""
        return self.steps[-1]


class TrialJob:
    """A `pyddmq.actions.Job` without a node. Arguments as of `try_action`."""

    def __init__(self, message: Message, *, group: str, topic: str, qid: str = "trial_0", attempts: int = 0) -> None:
        self.message = message
        self.group = group
        self.topic = topic
        self.qid = qid
        self.offset = 0
        self.attempts = attempts
        self.history = None
        self.data: Any = message.body
        self.outgoing = Outgoing()
        self.answered: asyncio.Future[Answer] | None = None

    @property
    def body(self) -> memoryview:
        """The body as it was published."""
        return memoryview(self.message.body)

    def resume(self) -> None:
        """Go on with the next action."""
        self.answer(Status.CONTINUE)

    def answer(self, answer: Answer) -> bool:
        """Answer for a job that was kept; whether this call decided it."""
        if self.answered is None or self.answered.done() or answer is Status.ASYNCHRONIZED:
            return False
        self.answered.set_result(answer)
        return True

    def finish(self, success: bool, reason: str = "") -> bool:
        """Complete a job that was kept; whether this call did."""
        return self.answer(Status.FINISH if success else Failed(reason or "an action finished it without success"))


class TrialContext:
    """A `pyddmq.actions.Context` that remembers what was counted and noted."""

    def __init__(self, config: SubscriptionConfig, group: str, clock: Clock) -> None:
        self.group = group
        self.topic = config.topic
        self.timeout_ms = config.timeout
        self.tps_max = config.tps_max
        self.events: list[Event] = []
        self._clock = clock

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._clock.wall_ms()

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return self._clock.monotonic()

    def count(self, event: str, amount: int = 1) -> None:
        """Remember it."""
        self.events.append(Event(name=event, amount=amount))

    def note(self, event: str, **facts: object) -> None:
        """Remember it."""
        self.events.append(Event(name=event, facts=facts))


def new_registry(actions: Mapping[str, type[Action]] | None = None) -> Registry:
    """Return the built-in and installed actions, and those given by name."""
    return Registry({**BUILT_IN, **(actions or {})})


def made_config(action: object, options: dict[str, Any]) -> tuple[Registry, SubscriptionConfig]:
    """Return a subscription of one action, and the registry that finds it.

    Args:
        action: A class, a function, or a name.
        options: Its options, as in YAML.

    Raises:
        ActionError: It is none of these.
    """
    name = action if isinstance(action, str) else str(getattr(action, "__name__", action))
    try:
        registry = new_registry() if isinstance(action, str) else new_registry({name: as_action(action)})
    except TypeError as error:
        raise ActionError(str(error)) from error
    fields = {"topic": "topic", "actions": [name], "options": {name: options} if options else {}}
    return registry, SubscriptionConfig.model_validate(fields)


def subscription_of(
    yaml: str, group: str, topic: str, registry: Registry, *, file: str = "<text>"
) -> SubscriptionConfig:
    """Return what a configuration says of a group on a topic.

    Raises:
        ConfigError: It is wrong.
        TrialMissing: It has no such group, or the group no such topic.
    """
    config = loads(yaml, file=file, actions=registry).config
    found = config.groups.get(group)
    if found is None:
        raise TrialMissing(f"{file} has no group {group!r}; its groups are {', '.join(config.groups) or 'none'}")
    for each in found.topics:
        if each.topic == topic:
            return each
    names = ", ".join(each.topic for each in found.topics)
    raise TrialMissing(f"group {group!r} has no topic {topic!r}; its topics are {names or 'none'}")


async def run_trial(
    config: SubscriptionConfig,
    message: Message,
    *,
    group: str,
    registry: Registry,
    run: bool,
    run_last: bool,
    data: Any = None,
    clock: Clock | None = None,
) -> Trial:
    """Run a message through the actions of a subscription.

    Args:
        config: The subscription.
        message: The message.
        group: Name of the group.
        registry: Makes the actions.
        run: Run actions that reach other servers, too.
        run_last: Run the last action, whatever it does; PullServer is never run, since no client pulls.
        data: What `job.data` is at first; None: the body.
        clock: Time; the system's when absent.

    Raises:
        ActionError: An action cannot be made.
        Exception: What `open` or `close` of one raised.
    """
    clock = clock or SystemClock()
    job = TrialJob(message, group=group, topic=config.topic)
    if data is not None:
        job.data = data
    steps: list[Step] = []
    actions = registry.make(config)
    for place, action in enumerate(actions):
        context = TrialContext(config, group, clock)
        action.context = context
        last = place == len(actions) - 1
        wanted = (run or not isinstance(action, OutsideAction)) and (run or run_last or not last)
        if action.is_gate or action.name in ("PullServer", "LowLevel") or not wanted:
            steps.append(_not_run_step(action, job, context, last=last))
            continue
        since = clock.monotonic()
        answer = await _called(action, job, context.timeout_ms)
        took, meaning = clock.monotonic() - since, meaning_of(answer, last=last)
        steps.append(_step(action, answer, meaning, job=job, context=context, seconds=took))
        if answer is not Status.CONTINUE:
            break
    return Trial(steps=steps, order_key=_order_key(config, job))


def meaning_of(answer: Answer, *, last: bool) -> str:
    """Return what an answer would lead to, as a sentence without its full stop."""
    if answer is Status.CONTINUE:
        return "consumed by the last action" if last else "next action"
    if answer is Status.FINISH:
        return "consumed"
    if answer is Status.FAIL:
        return "a business failure: retried by retryIntervals, then a dead letter"
    if isinstance(answer, Unprocessable):
        return f"a dead letter immediately: {text_of(answer)}"
    if isinstance(answer, Failed):
        return f"a business failure: retried by retryIntervals, then a dead letter: {text_of(answer)}"
    if isinstance(answer, RetryLater):
        return f"again after {answer.delay_ms} ms, not counted as an attempt: {text_of(answer)}"
    assert isinstance(answer, Exception), "a trial waits for deferred messages"
    return f"an error: retried up to maxRetry times, then a dead letter: {described(answer)}"


def _not_run_step(action: Action, job: TrialJob, context: TrialContext, *, last: bool) -> Step:
    meaning, preview = _not_run(action), []
    if isinstance(action, OutsideAction):
        try:
            preview = action.preview(cast("Job", job))
        except Exception as error:
            meaning += f", which would be {meaning_of(error, last=last)}"
    return replace(_step(action, None, meaning, job=job, context=context, seconds=0.0), preview=preview)


def _not_run(action: Action) -> str:
    if action.is_gate:
        return "order per key from here"
    if action.name == "PullServer":
        return "waits for a pull client, whose result decides"
    if action.name == "LowLevel":
        return "clients fetch it by their own offsets"
    return "not run: it would receive this message now"


def _step(
    action: Action, answer: Answer | None, meaning: str, *, job: TrialJob, context: TrialContext, seconds: float
) -> Step:
    return Step(
        action=action.name,
        answer=answer,
        meaning=meaning,
        data=_copied(job.data),
        outgoing=_copied(job.outgoing),
        events=context.events,
        seconds=seconds,
    )


def _copied(value: Any) -> Any:
    """Return it as it is now; what cannot be copied is shown as it will be."""
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def _order_key(config: SubscriptionConfig, job: TrialJob) -> str | None:
    if config.order_key is None:
        return None
    if is_json_path(config.order_key):
        key = compile_path(config.order_key)(job.data)
        return key.decode("utf-8", "replace") if isinstance(key, bytes) else key
    return job.message.key if config.order_key == "KEY" else job.qid


async def _called(action: Action, job: TrialJob, timeout_ms: int) -> Answer:
    """Open an action, call it and close it."""
    blocking = action.blocking
    await _hook(action.open, blocking=blocking)
    try:
        answer = await _answer(action, job, (action.time_limit_ms or timeout_ms) / 1000)
    finally:
        await _hook(action.close, blocking=blocking)
    return answer if isinstance(answer, Status | Exception) else no_answer(answer)


async def _hook(hook: Any, *, blocking: bool) -> None:
    try:
        if blocking:
            if (error := await asyncio.to_thread(raised_by, hook)) is not None:
                raise error
        elif inspect.isawaitable(found := hook()):
            await found
    except BaseException as error:
        if is_own_cancellation(error):
            raise
        raise as_exception(error) from error


async def _answer(action: Action, job: TrialJob, seconds: float) -> Answer:
    job.answered = asyncio.get_running_loop().create_future()
    mode, jobs = mode_of(type(action)), cast("Sequence[Job]", [job])
    try:
        async with asyncio.timeout(seconds):
            if mode is Mode.PLAIN:
                answer = run_action(action, jobs)[0]
            elif mode is Mode.BLOCKS:
                answer = (await asyncio.to_thread(run_action, action, jobs))[0]
            elif answers_many(type(action)):
                answer = checked_many(action, await cast("Any", action.act_many(jobs)), 1)[0]
            else:
                answer = cast("Status", await cast("Any", action.act(jobs[0])))
            return await job.answered if answer is Status.ASYNCHRONIZED else answer
    except TimeoutError:
        return TimedOut(f"no answer within {seconds * 1000:.0f} ms")
    except BaseException as error:
        if is_own_cancellation(error):
            raise
        return as_exception(error)
