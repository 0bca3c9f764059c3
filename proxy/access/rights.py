"""What one connection may do: who it is, and what was decided of it so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.runtime.names import STORED_BYTES_MAX
from proxy.access.rules import Permission

if TYPE_CHECKING:
    from proxy.access.rules import Rules

KNOWN_MAX = 4_096
"""Decisions that a connection keeps; above that it forgets them, for clients make names up."""


class Rights:
    """Who a connection is, and what it may do by the rules in force; a change of these makes another one.

    Attributes:
        principal: Its name.
        way: How it is known: `token`, `jwt`, `certificate`, `network` or `anonymous`.
        expires_ms: From when on it is not any more, ms since the epoch; None: never.
        proof: Id of the token, or name of the key, where there is one.
        produces: Topics, in bytes, that were asked for and may be sent to.
        consumes: Groups, likewise.
    """

    __slots__ = ("_known", "_rules", "consumes", "expires_ms", "principal", "produces", "proof", "way")

    def __init__(
        self, principal: str, rules: Rules | None, *, way: str, expires_ms: int | None = None, proof: str = ""
    ) -> None:
        """Set up; without `rules` nothing is allowed: a client that failed to sign in."""
        self.principal = principal
        self.way = way
        self.expires_ms = expires_ms
        self.proof = proof
        self.produces: set[bytes] = set()
        self.consumes: set[str] = set()
        self._rules = rules
        self._known: dict[tuple[Permission, str], bool] = {}

    @property
    def has_any(self) -> bool:
        """Whether any rule gives it anything."""
        return self._rules is not None and bool(self._rules.naming(self.principal))

    @property
    def alike(self) -> object:
        """What is equal for all who may do the same: the rules in force, and which of them name the principal."""
        return self._rules, () if self._rules is None else tuple(self._rules.naming(self.principal))

    def may(self, action: Permission, resource: str) -> bool:
        """Whether it may do this; decided once."""
        asked = action, resource
        known = self._known.get(asked)
        if known is None:
            known = self._rules is not None and self._rules.decide(self.principal, action, resource).allowed
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[asked] = known
        return known

    def may_produce(self, topic: bytes) -> bool:
        """Whether it may send to a topic; one that is not UTF-8 is never allowed."""
        if topic in self.produces:
            return True
        topic = topic[: STORED_BYTES_MAX + 1]  # No topic has a name as long, and nothing of that length is kept here.
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            return False
        if not self.may(Permission.PRODUCE, name):
            return False
        if len(self.produces) >= KNOWN_MAX:
            self.produces.clear()
        self.produces.add(topic)
        return True

    def may_consume(self, group: str) -> bool:
        """Whether it may pull, fetch and answer for a group."""
        if group in self.consumes:
            return True
        if not self.may(Permission.CONSUME, group):
            return False
        if len(self.consumes) >= KNOWN_MAX:
            self.consumes.clear()
        self.consumes.add(group)
        return True

    def may_not_any_more(self, renewed: Rights) -> bool:
        """Whether something that it was let do is denied to what takes its place."""
        return any(allowed and not renewed.may(action, resource) for (action, resource), allowed in self._known.items())
