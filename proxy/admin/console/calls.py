"""A page of the console, and the request for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from broker.runtime.async_steps import run_async
from broker.views import View
from proxy.access.audit import Audit
from proxy.access.rights import Rights
from proxy.access.rules import EVERYTHING, Permission
from proxy.admin.console.rates import SecondRates
from proxy.admin.entry.rights import Need
from proxy.operate.attention.judgement import Judgement
from proxy.operate.live_node import LiveNode

Made = TypeVar("Made")


class KeepMade(Protocol):
    """Keeps what is expensive to make."""

    async def __call__(
        self, name: tuple[object, ...], seconds: float, make: Callable[[], Coroutine[None, None, Made]]
    ) -> Made:
        """Return the kept result of this name if it is younger than `seconds`; otherwise make and keep it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCall:
    """A request for a page, by anyone with the same rights.

    Attributes:
        node: The node.
        judged: Its last judgement.
        rates: What it did in the last minutes.
        audit: The audit trail.
        query: The parameters of the page that the request has.
        rights: What the viewer may do; None: there are no rules.
        kept: Returns the kept result of a name, or makes it when that is too old.
        read_only: Whether the console makes no changes (`admin.readOnly`, or a node with `adminTokenFile`).
        needs_token: Whether reading bodies needs the token of `adminTokenFile`, which a browser does not send.
        searching: Held by the one search that runs.
    """

    node: LiveNode
    judged: Judgement
    rates: SecondRates
    audit: Audit | None
    query: Mapping[str, str]
    rights: Rights | None
    kept: KeepMade
    read_only: bool
    needs_token: bool = False
    searching: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def search(self, steps: Generator[None, None, Made]) -> Made:
        """Run a search beside the node's own work, one at a time."""
        async with self.searching:
            return await run_async(steps)

    def may_view(self, name: str) -> bool:
        """Whether the viewer may see a topic or a group."""
        return self.rights is None or self.rights.may(Permission.VIEW, name)

    def may_read_bodies(self, name: str) -> bool:
        """Whether the viewer may read bodies of a topic."""
        return not self.needs_token if self.rights is None else self.rights.may(Permission.READ_BODIES, name)

    def may_operate(self, name: str) -> bool:
        """Whether the console offers changes of a topic or a group."""
        return self._may_change(Permission.OPERATE, name)

    def may(self, action: Permission, name: str) -> bool:
        """Whether the console offers what needs another right on a topic or a group."""
        return self._may_change(action, name)

    def may_administer(self) -> bool:
        """Whether the console offers changes of the node."""
        return self._may_change(Permission.ADMINISTER, "node")

    @property
    def sees_all(self) -> bool:
        """Whether the viewer may see what is about the node."""
        return self.may_view(EVERYTHING)

    def _may_change(self, action: Permission, name: str) -> bool:
        return not self.read_only and (self.rights is None or self.rights.may(action, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolePage:
    """One page.

    Attributes:
        path: Its path.
        title: Its name in the menu and in the window's title.
        view: Returns the record that the template renders. Raises HTTPException, such as HTTPNotFound.
        need: The right that it needs.
        parameters: Names of the query parameters that it reads; any other is ignored.
        named_by: The parameter whose value is the title of the page, such as the group; "" for none.
        menu_of: Path of the page in whose place in the menu it is; "": it has its own.
        live: Whether the page requests its fragment again every 2 s.
    """

    path: str
    title: str
    view: Callable[[PageCall], Awaitable[View]]
    need: Need
    parameters: tuple[str, ...] = ()
    named_by: str = ""
    menu_of: str = ""
    live: bool = True

    @property
    def template(self) -> str:
        """File in `templates`."""
        return f"{self.path.strip('/').replace('-', '_') or 'overview'}.html"
