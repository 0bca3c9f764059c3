"""Forms of the console: what a hint suggests is taken by what reads the form."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, cast

import pytest

from proxy.admin.console.menu import PAGES
from proxy.admin.console.templating import environment
from tests.console_page import call_of, page_at
from tests.integration.proxy.node.test_kafka_node import World

VARIANTS = {
    "/group": [{"group": "billing"}],
    "/topic": [{"topic": "orders"}],
    "/dead-letters": [{}, {"group": "billing"}, {"group": "local"}],
    "/waiting": [{"kind": "timers"}, {"kind": "delays"}, {"kind": "transactions"}],
}
"""Parameters with which a page has its forms."""
REQUESTS = [(each.path, query) for each in PAGES for query in VARIANTS.get(each.path, [{}])]


class Forms(HTMLParser):
    """The forms of a page.

    Attributes:
        found: Of each form its path, its hidden fields, and its hints by field.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str], dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a form or a field of it."""
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.found.append((given.get("action", ""), {}, {}))
        elif tag == "input" and "name" in given and self.found:
            _, hidden, hints = self.found[-1]
            if given.get("type") == "hidden":
                hidden[given["name"]] = given["value"]
            elif given.get("placeholder"):
                hints[given["name"]] = given["placeholder"]


def shown(world: World, path: str, query: dict[str, str]) -> str:
    """What a page shows."""
    page = page_at(path)
    task = world.loop.create_task(cast(Any, page.view(call_of(world.view, query))))
    world.loop.run(task.done, seconds=60)
    return environment().get_template(page.template).render(view=task.result())


def suggestions(hint: str) -> Iterator[str]:
    """What a hint says can be written."""
    for each in hint.split(","):
        yield each.strip().removeprefix("or ")


@pytest.mark.parametrize(("path", "query"), REQUESTS)
def test_what_a_hint_suggests_is_taken(path: str, query: dict[str, str]) -> None:
    """Times with their zone, spans by their direction; a refusal would be shown in place of what is found."""
    world = World()
    world.run(1)
    forms = Forms()
    forms.feed(shown(world, path, query))
    for action, hidden, hints in forms.found:
        for name, hint in hints.items():
            for text in suggestions(hint):
                found = shown(world, action, {**hidden, "topic": "orders", name: text})
                assert "is not valid" not in found, (path, name, text)
