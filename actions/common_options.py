"""Options that an action has by the way it is called, beside its own: `timeLimit`, and `process` of a blocking one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conf.actions import BlockingOptions, CallOptions
from pyddmq.actions import Action
from upstream.calls.modes import Mode, mode_of


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
