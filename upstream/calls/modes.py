"""How an action is called: by what its class says, once, when it is found."""

from __future__ import annotations

import enum
import inspect

from pyddmq.actions import Action


class Mode(enum.Enum):
    """How the calls of an action are made."""

    PLAIN = "plain"
    """In the loop's thread, answered at once."""
    AWAITS = "async"
    """As a task of the loop."""
    BLOCKS = "blocking"
    """In a thread."""


class ModeUnclear(TypeError):
    """A class is `async def` and `blocking` at once."""


def answers_many(action: type[Action]) -> bool:
    """Whether a class answers batches itself; then `act` of it is never called."""
    return action.act_many is not Action.act_many


def mode_of(action: type[Action]) -> Mode:
    """Return how an action is called.

    Raises:
        ModeUnclear: It says two things at once.
    """
    awaits = inspect.iscoroutinefunction(action.act_many if answers_many(action) else action.act)
    if awaits and action.blocking:
        raise ModeUnclear(f"{action.__name__} is async def and blocking; an async action must not block, so choose one")
    if awaits:
        return Mode.AWAITS
    return Mode.BLOCKS if action.blocking else Mode.PLAIN


def has_slow_hooks(action: type[Action]) -> bool:
    """Whether `open` or `close` of an action cannot be run in the loop's thread at once."""
    if action.blocking:
        return action.open is not Action.open or action.close is not Action.close
    return inspect.iscoroutinefunction(action.open) or inspect.iscoroutinefunction(action.close)
