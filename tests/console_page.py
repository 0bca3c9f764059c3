"""Renders a page of the console without a port, for tests of what pages show."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, cast

from broker.runtime.steps import run_now
from broker.views import View
from proxy.access.rights import Rights
from proxy.admin.console.calls import ConsolePage, PageCall
from proxy.admin.console.menu import PAGES
from proxy.admin.console.rates import SecondRates
from proxy.admin.console.templating import environment
from proxy.operate.attention.findings import judged
from proxy.operate.live_node import LiveNode
from pyddmq.testing import ManualClock, ManualScheduler


def call_of(
    node: LiveNode, query: Mapping[str, str], *, rights: Rights | None = None, read_only: bool = False
) -> PageCall:
    """Return a request with these parameters."""

    async def kept(name: tuple[object, ...], seconds: float, make: Callable[[], Coroutine[None, None, Any]]) -> Any:
        return await make()

    return PageCall(
        node=node,
        judged=judged(node),
        rates=SecondRates(node, ManualScheduler(ManualClock())),
        audit=None,
        query=query,
        rights=rights,
        kept=kept,
        read_only=read_only,
    )


def page_at(path: str) -> ConsolePage:
    """Return the page of a path."""
    [found] = [each for each in PAGES if each.path == path]
    return found


def shown(call: PageCall, path: str) -> str:
    """Return the fragment of a page whose view waits for nothing."""
    page = page_at(path)
    view = run_now(
        cast("Generator[None, None, View]", cast("Coroutine[None, None, View]", page.view(call)).__await__())
    )
    return environment().get_template(page.template).render(view=view)


def fragment(node: LiveNode, path: str = "/", **query: str) -> str:
    """Return what a page shows to a viewer who may do everything."""
    return shown(call_of(node, query), path)
