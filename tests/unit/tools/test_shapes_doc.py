"""The page of shapes is made from the views, and each of their fields is said to be what it is."""

from __future__ import annotations

import importlib

import pytest

from broker.views import View
from tools import shapes_doc
from tools.metrics_doc import modules_of

OF_THE_CONSOLE = ("tests.", "proxy.admin.console.", "proxy.operate.lookups.message_way")
"""Modules whose views no path of the API returns."""


def every_view() -> set[type[View]]:
    """All views of the rooms; those of the console are for its own templates."""
    for room in ("broker", "upstream", "proxy.node", "proxy.operate"):
        for name in modules_of(room):
            importlib.import_module(name)
    found: set[type[View]] = set()
    left = [View]
    while left:
        for each in left.pop().__subclasses__():
            found.add(each)
            left.append(each)
    return {each for each in found if not each.__module__.startswith(OF_THE_CONSOLE)}


def test_page_has_every_view() -> None:
    """One that is new is found by its module, and what a path answers with is a view."""
    assert every_view() == {*shapes_doc.views(), *shapes_doc.BASES} - {View}
    assert {shape for _, shapes in shapes_doc.ANSWERS for shape in shapes} <= set(shapes_doc.views())


@pytest.mark.parametrize("view", shapes_doc.views(), ids=lambda view: view.__name__)
def test_each_field_has_its_meaning(view: type[View]) -> None:
    """The docstrings name the fields that there are, no others, each with a sentence; JSON has them in camelCase."""
    meanings = shapes_doc.meanings(view)
    assert set(meanings) == set(view.__struct_fields__)
    assert all(each.endswith(".") for each in meanings.values())
    assert all("_" not in name and name[0].islower() for name in view.__struct_encode_fields__)


def test_types_and_units_of_fields() -> None:
    """What may be absent or null says so; moments, durations and sizes have their unit."""
    page = shapes_doc.render()
    assert "| `bodyProblem` | string, may be absent |  |" in page
    assert "| `lostAtMs` | integer or null | Unix ms |" in page
    assert "| `lateMs` | integer | ms |" in page
    assert "| `freeBytes` | integer | bytes |" in page
    assert "| `severity` | `bad` or `watch` |  |" in page
    assert "| `topics` | list of [SubscriptionView](#subscriptionview) |  |" in page
