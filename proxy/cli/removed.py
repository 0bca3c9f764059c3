"""Commands and options that the version before had: each is refused with a sentence that names its replacement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

REMOVED: Mapping[tuple[str, ...], str] = MappingProxyType(
    {
        ("demo", "delay"): "run examples/delayed_messages.py",
        ("demo", "order"): "run examples/order_by_key.py",
        ("demo", "push"): "run examples/push_receiver.py",
        ("demo", "transaction"): "run examples/transaction_producer.py",
        ("demo", "--upstream"): "run examples/kafka_two_nodes.py",
        ("demo", "--kafka"): "run examples/kafka_two_nodes.py",
        ("lag", "alarms"): "run `pyddmq lag`, and route verdicts by Prometheus (deploy/prometheus) or `lag.webhook`,",
        ("lag", "mute"): "set a silence in Alertmanager (deploy/prometheus)",
        **dict.fromkeys(
            (("lag", "watch", f"--{name}") for name in ("file", "topic", "node", "webhook")),
            "write changes to a Spark sink by --format and --option",
        ),
        ("lag", "watch", "--mute"): "set a silence in Alertmanager (deploy/prometheus)",
        ("lag", "--mode"): "set `delayTimeThreshold` and `committedLagThreshold` of the subscription",
    }
)
"""By the words of the command, or a command and an option anywhere behind it: what to do instead."""

_BEFORE_COMMANDS = ("--tls-", "--token-file")
"""Options that precede a command, each with a value."""


def refusal(arguments: Sequence[str]) -> str | None:
    """Return why a command line is refused, or None when it has nothing that was removed."""
    words = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    while words and words[0].startswith(_BEFORE_COMMANDS):
        del words[: 1 if "=" in words[0] else 2]
    for removed, instead in REMOVED.items():
        *command, last = removed
        behind = words[len(command) :]
        found = last in {word.partition("=")[0] for word in behind} if last.startswith("-") else behind[:1] == [last]
        if words[: len(command)] == command and found:
            return f"`pyddmq {' '.join(removed)}` was removed; {instead} instead"
    return None
