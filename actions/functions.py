"""Plain functions as actions: `def f(job)` or `async def f(job)`, with a second parameter for options if it has any."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, cast

from pydantic import BaseModel

from pyddmq.actions import TRAITS, Action, Job, Status


class FunctionAction(Action):
    """Base of the class that a function becomes; it returns a Status, or None for CONTINUE.

    Attributes:
        function: It.
    """

    function: ClassVar[Callable[..., Any]]

    def act(self, job: Job) -> Status:
        """Call it."""
        return _status(self._call(job))

    def _call(self, job: Job) -> Any:
        function = type(self).function
        return function(job) if self.options is None else function(job, self.options)


class AsyncFunctionAction(FunctionAction):
    """Likewise for `async def`."""

    async def act(self, job: Job) -> Status:  # type: ignore[override]
        """Call it and wait."""
        return _status(await cast("Awaitable[Any]", self._call(job)))


def as_action(found: object) -> type[Action]:
    """Return the class of an action, which for a function is made here.

    Raises:
        TypeError: It is neither, or its parameters are not those of an action; the text says what would be right.
    """
    if isinstance(found, type) and issubclass(found, Action):
        return found
    if isinstance(found, types.FunctionType):
        return _of_function(found)
    raise TypeError(f"it is {found!r}; name a class derived from pyddmq.actions.Action, or a function of a job")


def _of_function(function: types.FunctionType) -> type[Action]:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or any(each.default is each.empty for each in parameters[2:]):
        raise TypeError(
            f"{function.__name__} has {len(parameters)} parameters; use one for the job, and optionally one for "
            "its options"
        )
    attributes: dict[str, Any] = {
        **getattr(function, TRAITS, {}),
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "function": staticmethod(function),
    }
    if len(parameters) > 1 and parameters[1].default is inspect.Parameter.empty:
        attributes["options_model"] = _options_of(function, parameters[1])
    base = AsyncFunctionAction if inspect.iscoroutinefunction(function) else FunctionAction
    return type(function.__name__, (base,), attributes)


def _options_of(function: types.FunctionType, parameter: inspect.Parameter) -> type[BaseModel]:
    """Return the model that annotates the second parameter; other annotations need not be there at run time."""
    said = types.SimpleNamespace(__annotations__={"options": parameter.annotation})
    try:
        model = typing.get_type_hints(said, globalns=function.__globals__)["options"]
    except Exception as error:
        raise TypeError(
            f"the annotation of {parameter.name} in {function.__name__} cannot be resolved: {error}"
        ) from error
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(f"annotate {parameter.name} of {function.__name__} with a pydantic model for its options")
    return model


def _status(answer: Any) -> Status:
    # What is no status is found where all answers are looked at.
    return Status.CONTINUE if answer is None else cast("Status", answer)
