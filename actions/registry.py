"""Finds actions by name: built-in, by entry point (group `pyddmq.actions`), or by `package.module:Class`.

What is found may be a class or a plain function (`actions.functions`). A module is imported when a configuration names
an action of it, so that a node has in memory what its pipelines need and no more (D38).
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from actions.client_factories import Outside, OutsideAction
from actions.functions import as_action
from conf.actions import ActionError, ActionSpec, BlockingOptions, CallOptions
from conf.models import LOW_LEVEL, SubscriptionConfig
from pyddmq.actions import Action
from pyddmq.rooms import ROOMS
from upstream.calls.modes import Mode, mode_of
from upstream.calls.user_code import described

if TYPE_CHECKING:
    from actions.sinks.local_state import Keep


# Options that an action has by the way it is called, beside its own: `timeLimit`, and `process` of a blocking one.


def call_options_of(action: type[Action]) -> type[CallOptions] | None:
    """Return the model of the options that an action has by its mode; None: it has none."""
    return {Mode.PLAIN: None, Mode.AWAITS: CallOptions, Mode.BLOCKS: BlockingOptions}[mode_of(action)]


def split_options(action: type[Action], given: Mapping[str, Any]) -> tuple[BlockingOptions, dict[str, Any]]:
    """Return what `options` of an action say of its calls, and those that are its own.

    Raises:
        ValidationError: Of the former.
    """
    model = call_options_of(action)
    names = frozenset() if model is None else model.names()
    common = {name: value for name, value in given.items() if name in names}
    return (
        BlockingOptions.model_validate(common),
        {name: value for name, value in given.items() if name not in names},
    )


ENTRY_POINT_GROUP = "pyddmq.actions"

BUILT_IN: Mapping[str, str | type[Action]] = {
    "Json": "actions.json_action:JsonAction",
    "Async": "actions.async_action:AsyncAction",
    "NonBlockAsync": "actions.async_action:AsyncAction",
    "Transit": "actions.transform.transit:TransitAction",
    "QueryParams": "actions.transform.query_params:QueryParamsAction",
    "FormParams": "actions.transform.form_params:FormParamsAction",
    "FormParams2": "actions.transform.form_params:FormParams2Action",
    "Filter": "actions.script.filter_action:FilterAction",
    "Python": "actions.script.python_action:PythonAction",
    "PullServer": "actions.pull_server:PullServerAction",
    "AsyncHttp": "actions.http.action:AsyncHttp",
    "Redis": "actions.sinks.redis.sink:RedisSink",
    "HBase": "actions.sinks.hbase.sink:HBaseSink",
    "Hbase": "actions.sinks.hbase.sink:HBaseSink",
    "Hdfs": "actions.sinks.files.sink:HdfsSink",
    "File": "actions.sinks.files.sink:FileSink",
    LOW_LEVEL: "actions.low_level:LowLevelAction",
}
"""By name: where the class is, as `module:Class`; imported with the first configuration that names it."""


__all__ = ["BUILT_IN", "ENTRY_POINT_GROUP", "ActionError", "Registry"]


class Registry(Mapping[str, ActionSpec]):
    """All actions that can be named, as a mapping of name to spec: what the configuration's loader asks for.

    Names are looked up on first use, so an installed package costs nothing unless a pipeline names it. Iterating
    lists the names known without importing anything; dotted paths can be looked up but are not listed.
    """

    def __init__(
        self, built_in: Mapping[str, str | type[Action]] = BUILT_IN, *, outside: Outside | None = None
    ) -> None:
        self._outside = outside or Outside()
        self._places = {name: place for name, place in built_in.items() if isinstance(place, str)}
        self._classes = {name: action for name, action in built_in.items() if not isinstance(action, str)}
        self._points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names()))

    def __len__(self) -> int:
        return len(self._names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (":" in name or name in self._names())

    def _names(self) -> set[str]:
        return {*self._places, *self._points, *(name for name in self._classes if ":" not in name)}

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
            stands_alone=name == LOW_LEVEL,
            answers_at_once=mode_of(action) is Mode.PLAIN,
            call_options=call_options_of(action),
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
        place = self._places.get(name, name)
        found: object
        try:
            if name in self._points:
                found = self._points[name].load()
            elif ":" in place:
                module, _, attribute = place.partition(":")
                found = functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
            else:
                raise ActionError(f"unknown action {name!r}{_nearest(name, self)}; known: {', '.join(self)}")
        except ActionError:
            raise
        except BaseException as error:
            module = name.partition(":")[0].partition(".")[0]
            advice = "install its package in this environment, or add its folder to PYTHONPATH"
            if name in self._places:
                advice = "this installation of pyddmq is damaged, or lacks a dependency of the action"
            elif module in ROOMS:
                advice = f"{module} is a module of pyddmq itself; choose another name"
            raise ActionError(f"action {name!r} cannot be imported ({described(error)}); {advice}") from error
        try:
            action = as_action(found)
            mode_of(action)
        except TypeError as error:
            raise ActionError(f"action {name!r}: {error}") from error
        _check_installed(name, action)
        self._classes[name] = action
        return action

    def make(self, config: SubscriptionConfig, *, keep: Keep | None = None) -> list[Action]:
        """Make the actions of one subscription, in order, each with its checked options.

        Args:
            config: Names them.
            keep: Where those of a node keep what they must know after a restart.

        Raises:
            ActionError: One cannot be found or made, or takes no options and was given some.
        """
        actions = []
        outside = self._outside if keep is None else replace(self._outside, keep=keep)
        for name in config.actions:
            cls = self.find(name)
            try:
                action = self._make_one(cls, config.options.get(name) or {}, name, outside)
            except ActionError:
                raise
            except BaseException as error:
                raise ActionError(f"action {name!r} cannot be created: {described(error)}") from error
            actions.append(action)
        # Numbers keep their text where an action writes them again (W21); elsewhere it would cost for nothing.
        if any(getattr(action, "writes_numbers", False) for action in actions):
            for action in actions:
                if hasattr(action, "exact"):
                    setattr(action, "exact", True)  # noqa: B010 - Json's, which is not imported here
        is_intact = True
        for name, action in zip(config.actions, actions, strict=True):
            if hasattr(action, "is_intact"):
                setattr(action, "is_intact", is_intact)  # noqa: B010 - of several, none of which is imported here
            # An action of users may change parsed data where it is.
            is_intact = is_intact and name in self._places and not action.changes_body
        return actions

    def _make_one(self, cls: type[Action], given: Mapping[str, Any], name: str, outside: Outside) -> Action:
        common, own = split_options(cls, given)
        if own and cls.options_model is None:
            raise ActionError(f"action {name!r} has no options")
        options = None if cls.options_model is None else cls.options_model.model_validate(own)
        if common.process:
            from actions.processes import in_processes

            action: Action = in_processes(cls, own, common.time_limit)
        else:
            action = cls()
            action.options = options
            action.time_limit_ms = common.time_limit or action.time_limit_ms
        action.name = name
        if isinstance(action, OutsideAction):
            action.outside = outside
        return action


def _check_installed(name: str, action: type[Action]) -> None:
    """Raise ActionError where a built-in action's library is not installed."""
    needed = action.needs_package if issubclass(action, OutsideAction) else None
    if needed is not None and importlib.util.find_spec(needed[0]) is None:
        raise ActionError(f"action {name!r} needs {needed[0]}: pip install 'pyddmq[{needed[1]}]'")


def _nearest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
