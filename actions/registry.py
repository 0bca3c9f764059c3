"""Finds actions by name: built-in, by entry point (group `pyddmq.actions`), or by `package.module:Class`."""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points

from actions.async_action import AsyncAction
from actions.json_action import JsonAction
from actions.low_level import LowLevelAction
from actions.outside import Outside, OutsideAction
from actions.pull_server import PullServerAction
from actions.script.filter_action import FilterAction
from actions.script.python_action import PythonAction
from actions.transform.form_params import FormParams2Action, FormParamsAction
from actions.transform.query_params import QueryParamsAction
from actions.transform.transit import TransitAction
from conf.actions import ActionError, ActionSpec
from conf.models import LOW_LEVEL, SubscriptionConfig
from pyddmq.actions import Action
from pyddmq.rooms import ROOMS

ENTRY_POINT_GROUP = "pyddmq.actions"

BUILT_IN: Mapping[str, type[Action]] = {
    "Json": JsonAction,
    "Async": AsyncAction,
    "NonBlockAsync": AsyncAction,
    "Transit": TransitAction,
    "QueryParams": QueryParamsAction,
    "FormParams": FormParamsAction,
    "FormParams2": FormParams2Action,
    "Filter": FilterAction,
    "Python": PythonAction,
    "PullServer": PullServerAction,
    LOW_LEVEL: LowLevelAction,
}


__all__ = ["BUILT_IN", "ENTRY_POINT_GROUP", "ActionError", "Registry"]


class Registry(Mapping[str, ActionSpec]):
    """All actions that can be named, as a mapping of name to spec: what the configuration's loader asks for.

    Names are looked up on first use, so an installed package costs nothing unless a pipeline names it. Iterating
    lists the names known without importing anything; dotted paths can be looked up but are not listed.
    """

    def __init__(self, built_in: Mapping[str, type[Action]] = BUILT_IN, *, outside: Outside | None = None) -> None:
        self._outside = outside or Outside()
        self._classes: dict[str, type[Action]] = dict(built_in)
        self._points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._classes, *self._points}))

    def __len__(self) -> int:
        return len({*self._classes, *self._points})

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._classes or name in self._points or ":" in name)

    def __getitem__(self, name: str) -> ActionSpec:
        """Spec of an action.

        Raises:
            KeyError: No action of that name is known.
            ActionError: It is named but cannot be imported, or is no Action.
        """
        if name not in self:
            raise KeyError(name)
        action = self.find(name)
        return ActionSpec(
            name=name,
            needs_json=action.needs_json,
            provides_json=action.provides_json,
            may_be_last=action.may_be_last,
            is_gate=action.is_gate,
            stands_alone=issubclass(action, LowLevelAction),
            options_model=action.options_model,
        )

    def find(self, name: str) -> type[Action]:
        """Class of an action.

        Raises:
            ActionError: It is not known, cannot be imported, or is no Action.
        """
        known = self._classes.get(name)
        if known is not None:
            return known
        found: object
        try:
            if name in self._points:
                found = self._points[name].load()
            elif ":" in name:
                module, _, attribute = name.partition(":")
                found = functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
            else:
                raise ActionError(f"no action is called {name!r}{_nearest(name, self)}; known: {', '.join(self)}")
        except ActionError:
            raise
        except Exception as error:
            module = name.partition(":")[0].partition(".")[0]
            advice = "install its package in this environment or put its folder on PYTHONPATH"
            if module in ROOMS:
                advice = f"{module} is a module of pyddmq itself: give yours another name"
            raise ActionError(
                f"action {name!r} cannot be imported ({type(error).__name__}: {error}); {advice}"
            ) from error
        if not (isinstance(found, type) and issubclass(found, Action)):
            raise ActionError(f"action {name!r} is {found!r}; name a class derived from pyddmq.actions.Action")
        self._classes[name] = found
        return found

    def make(self, config: SubscriptionConfig) -> list[Action]:
        """Make the actions of one subscription, in order, each with its checked options.

        Raises:
            ActionError: One cannot be found or made, or takes no options and was given some.
        """
        actions = []
        for name in config.actions:
            cls = self.find(name)
            try:
                action = cls()
                action.name = name
                if isinstance(action, OutsideAction):
                    action.outside = self._outside
                given = config.options.get(name)
                if cls.options_model is not None:
                    action.options = cls.options_model.model_validate(given or {})
                elif given:
                    raise ActionError(f"action {name!r} takes no options")
            except ActionError:
                raise
            except Exception as error:
                raise ActionError(f"action {name!r} cannot be made: {type(error).__name__}: {error}") from error
            actions.append(action)
        # Numbers keep their text where somebody writes them again (W21); elsewhere it would cost for nothing.
        if any(getattr(action, "writes_numbers", False) for action in actions):
            for action in actions:
                if isinstance(action, JsonAction):
                    action.exact = True
        return actions


def _nearest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
