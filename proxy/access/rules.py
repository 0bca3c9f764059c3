"""Rules, compiled: may this principal do this with that, and which line says so.

A pure function of the configuration. A line gives, none takes away, so the order of lines does not matter; the first
one that gives is the one that is named. Names are looked up in sets, patterns are tried one by one: a decision costs
more with more patterns, and is kept by each connection (`proxy.access.rights`).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from conf.base import DLQ_PREFIX, RETRY_PREFIX
from conf.sections.access import ANONYMOUS, AccessConfig, AccessRule


class Permission(enum.StrEnum):
    """What one may have the right to do; the values are the keys of a rule."""

    PRODUCE = "produce"
    CONSUME = "consume"
    TRANSACT = "transact"
    VIEW = "view"
    OPERATE = "operate"
    READ_BODIES = "readBodies"
    ADMINISTER = "administer"


NODE = "node"
"""The resource of ADMINISTER."""
EVERYTHING = "*"
"""A resource that only the pattern `*` has: all topics and groups at once, and the node that they are of."""


_NAMED_MAX = 4_096
"""Principals whose rules are remembered; above that they are forgotten, for tokens may name any."""


class AccessDecision(NamedTuple):
    """What was decided.

    Attributes:
        allowed: Whether it may.
        rule: Which entry of `access.rules` gives it, from 0; None where none does.
        text: Why, for people.
    """

    allowed: bool
    rule: int | None
    text: str


class Patterns:
    """A list of names and patterns; `*` is any run of characters."""

    __slots__ = ("_names", "_patterns")

    def __init__(self, texts: Iterable[str]) -> None:
        self._names = frozenset(text for text in texts if "*" not in text)
        self._patterns = [(text, _compiled(text)) for text in dict.fromkeys(texts) if "*" in text]

    def match(self, name: str) -> str | None:
        """Return which entry has a name; None where none has it."""
        if name in self._names:
            return name
        for text, pattern in self._patterns:
            if pattern.match(name):
                return text
        return None


class _Rule(NamedTuple):
    principals: Patterns
    resources: dict[Permission, Patterns]


class Rules:
    """The rules of one configuration."""

    def __init__(self, config: AccessConfig) -> None:
        self._rules = [_Rule(Patterns(rule.principals), _resources(rule)) for rule in config.rules]
        self._named: dict[str, Sequence[int]] = {}

    def decide(self, principal: str, action: Permission, resource: str) -> AccessDecision:
        """Decide; pure.

        Args:
            principal: A name, or `anonymous`.
            action: What it wants to do.
            resource: The topic, group or producer group that the action is about; `node` of ADMINISTER.
        """
        name = _of_group(action, resource)
        mine = self.naming(principal)
        for at in mine:
            rule = self._rules[at]
            given = rule.resources.get(action)
            found = None if given is None else given.match(name)
            if found is not None:
                who = _principal_entry(rule.principals, principal)
                return AccessDecision(True, at, f"{who} is granted {action} on {found}")
        if not mine:
            return AccessDecision(False, None, f"no rule names {principal}")
        return AccessDecision(False, None, f"none of the rules that name {principal} grants {action} on {resource}")

    def naming(self, principal: str) -> Sequence[int]:
        """Which rules name a principal; looked up once, for one call may ask about thousands of names."""
        found = self._named.get(principal)
        if found is None:
            if len(self._named) >= _NAMED_MAX:
                self._named.clear()
            entries = [_principal_entry(rule.principals, principal) for rule in self._rules]
            found = self._named[principal] = [at for at, entry in enumerate(entries) if entry is not None]
        return found


def _principal_entry(principals: Patterns, principal: str) -> str | None:
    found = principals.match(principal)
    return None if principal == ANONYMOUS and found != ANONYMOUS else found


def _of_group(action: Permission, resource: str) -> str:
    """Retry and dead-letter topics go with their group, where groups may be meant."""
    if action in (Permission.PRODUCE, Permission.TRANSACT):
        return resource
    return resource.removeprefix(DLQ_PREFIX).removeprefix(RETRY_PREFIX)


def _resources(rule: AccessRule) -> dict[Permission, Patterns]:
    lists = {
        Permission.PRODUCE: rule.produce,
        Permission.CONSUME: rule.consume,
        Permission.TRANSACT: rule.transact,
        Permission.VIEW: rule.view,
        Permission.OPERATE: rule.operate,
        Permission.READ_BODIES: rule.read_bodies,
        Permission.ADMINISTER: [NODE] if rule.administer else [],
    }
    return {action: Patterns(texts) for action, texts in lists.items() if texts}


def _compiled(text: str) -> re.Pattern[str]:
    # Each star takes as little as it can, and what follows it is not looked for again once it is found: that
    # never misses a match, and no name takes longer than its length times that of the pattern.
    first, *between, last = re.split(r"\*+", text)
    middle = "".join(f"(?>.*?{re.escape(part)})" for part in between)
    return re.compile(f"{re.escape(first)}{middle}.*{re.escape(last)}\\Z", re.DOTALL)
