"""What runs in a worker process of `actions.processes`: one action, asked over a pipe, one call after the other."""

from __future__ import annotations

import functools
import importlib
import pickle
import time
from typing import Any

from actions.functions import as_action
from pyddmq.actions import Action, Outgoing, Status
from upstream.calls.answers import run_action
from upstream.calls.child_process import own_end
from upstream.calls.user_code import ActionMisbehaved, as_exception, described, plain_facts, shown, text_of


class WorkerContext:
    """The `pyddmq.actions.Context` of an action in a worker; what it counts goes to the node with the next answer."""

    def __init__(self, group: str, topic: str, timeout_ms: int, tps_max: float | None) -> None:
        self.group = group
        self.topic = topic
        self.timeout_ms = timeout_ms
        self.tps_max = tps_max
        self.events: list[tuple[str, str, Any]] = []

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    def count(self, event: str, amount: int = 1) -> None:
        """Count an event."""
        self.events.append(("count", text_of(event), int(amount)))

    def note(self, event: str, **facts: object) -> None:
        """Write a log line; its facts as text where they are no plain values."""
        self.events.append(("note", text_of(event), plain_facts(facts)))


def main() -> None:
    """Serve the pipe whose descriptor is the first argument until the node closes it."""
    with own_end() as pipe:
        try:
            action, context = _opened(pipe.recv())
        except BaseException as error:
            pipe.send(_portable(as_exception(error)))
            return
        pipe.send(None)
        while True:
            try:
                jobs = pipe.recv()
            except (EOFError, OSError):
                return
            if jobs is None:
                action.close()
                return
            answers = [_portable(each) for each in run_action(action, jobs)]
            events, context.events = context.events, []
            try:
                pipe.send((answers, [(job.data, job.outgoing) for job in jobs], events))
            except OSError:
                return
            except BaseException as error:
                wrong: list[Status | Exception] = [
                    ActionMisbehaved(f"its result cannot be sent to the node: {described(error)}")
                ]
                pipe.send((wrong * len(jobs), [(None, Outgoing()) for _ in jobs], events))


def _opened(setup: dict[str, Any]) -> tuple[Action, WorkerContext]:
    module, _, attribute = setup["place"].partition(":")
    cls = as_action(functools.reduce(getattr, attribute.split("."), importlib.import_module(module)))
    action = cls()
    action.name = setup["name"]
    context = WorkerContext(setup["group"], setup["topic"], setup["timeout_ms"], setup["tps_max"])
    action.context = context
    if cls.options_model is not None:
        action.options = cls.options_model.model_validate(setup["options"])
    action.open()
    return action, context


def _portable(answer: object) -> object:
    """Return an answer that can be sent; an exception that cannot keeps its type's name and its text."""
    try:
        pickle.loads(pickle.dumps(answer))
    except BaseException:
        return ActionMisbehaved(described(answer) if isinstance(answer, BaseException) else shown(answer))
    return answer
