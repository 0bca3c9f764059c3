"""Try actions on messages without a node, in tests that run no event loop. docs/actions.md shows it.

from pyddmq.testing.actions import try_action, try_pipeline
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from proxy.operate.action_trial import Event, Step, Trial, TrialMissing, made_config, run_trial, subscription_of
from proxy.operate.action_trial import new_registry as _new_registry
from pyddmq.actions import Action, Message

__all__ = ["Event", "Step", "Trial", "TrialMissing", "try_action", "try_pipeline"]


def try_action(
    action: object,
    body: bytes = b"",
    *,
    options: Mapping[str, Any] | None = None,
    data: Any = None,
    key: str | None = None,
    tag: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> Step:
    """Run one action on one message: made, opened, called and closed, within its time limit.

    Args:
        action: A class derived from `Action`, a function, or what a configuration would call it.
        body: The message's body.
        options: Its options, as in YAML.
        data: `job.data`, where an action before it would have replaced the body, as Json does.
        key, tag, properties: Of the message.

    Raises:
        ActionError: It cannot be made, or its options are wrong.
        Exception: What its `open` or `close` raised.
    """
    registry, config = made_config(action, dict(options or {}))
    message = Message(key, tag, body, dict(properties or {}), 0)
    trial = asyncio.run(
        run_trial(config, message, group="group", registry=registry, run=True, run_last=True, data=data)
    )
    return trial.last


def try_pipeline(
    yaml: str,
    group: str,
    topic: str,
    body: bytes = b"",
    *,
    key: str | None = None,
    tag: str | None = None,
    properties: Mapping[str, str] | None = None,
    run: bool = False,
    actions: Mapping[str, type[Action]] | None = None,
) -> Trial:
    """Run one message through the actions that a configuration lists for a group's topic.

    Args:
        yaml: The configuration's text.
        group, topic: Of the subscription.
        body, key, tag, properties: Of the message.
        run: Run actions that reach other servers, too; without it their step shows what they would have been given.
        actions: Classes by the names under which the configuration has them, beside those that it finds by itself.

    Raises:
        ConfigError: The configuration is wrong: each problem with line and key.
        TrialMissing: It has no such group or topic.
        Exception: What `open` or `close` of an action raised.
    """
    registry = _new_registry(actions)
    config = subscription_of(yaml, group, topic, registry)
    message = Message(key, tag, body, dict(properties or {}), 0)
    return asyncio.run(run_trial(config, message, group=group, registry=registry, run=run, run_last=True))
