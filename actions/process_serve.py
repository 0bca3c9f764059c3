"""What runs in a worker process of `actions.processes`: one action, asked over a pipe, one call after the other."""

from __future__ import annotations

import functools
import importlib
import pickle
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from actions.functions import as_action
from pyddmq.actions import Action, Status
from upstream.calls.answers import ActionMisbehaved, checked_many
from upstream.calls.modes import answers_many


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
        self.events.append(("count", event, amount))

    def note(self, event: str, **facts: object) -> None:
        """Write a log line; its facts as text where they are no plain values."""
        plain = {name: fact if isinstance(fact, int | float | str) else repr(fact) for name, fact in facts.items()}
        self.events.append(("note", event, plain))


def main() -> None:
    """Serve the pipe whose descriptor is the first argument until the node closes it."""
    # An interrupt at the terminal is the node's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Connection(int(sys.argv[1])) as pipe:
        try:
            action, context = _opened(pipe.recv())
        except Exception as error:
            pipe.send(_portable(error))
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
            answers = [_portable(each) for each in _run(action, jobs)]
            events, context.events = context.events, []
            try:
                pipe.send((answers, [(job.data, job.outgoing) for job in jobs], events))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                wrong: list[Status | Exception] = [ActionMisbehaved(f"what it made cannot leave its process: {error}")]
                pipe.send((wrong * len(jobs), [(None, job.outgoing) for job in jobs], events))


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


def _run(action: Action, jobs: Sequence[Any]) -> Sequence[Any]:
    if answers_many(type(action)):
        try:
            return checked_many(action, action.act_many(jobs), len(jobs))
        except Exception as error:
            return [error] * len(jobs)
    try:
        return [action.act(jobs[0])]
    except Exception as error:
        return [error]


def _portable(answer: object) -> object:
    """Return an answer that can be sent; an exception that cannot keeps its type's name and its text."""
    try:
        pickle.loads(pickle.dumps(answer))
    except Exception:
        return ActionMisbehaved(f"{type(answer).__name__}: {answer}")
    return answer
