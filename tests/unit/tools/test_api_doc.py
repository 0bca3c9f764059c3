"""What programs import says what it does and what it raises."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module

import pytest

from tools import api_doc


def functions() -> Iterator[tuple[str, object]]:
    """Every public function, method and property, with its place."""
    for module in map(import_module, api_doc.MODULES):
        for name in api_doc.names_of(module):
            found = getattr(module, name)
            if inspect.isclass(found):
                for member, function in api_doc.members_of(found):
                    yield f"{module.__name__}.{name}.{member}", function
            elif api_doc.is_documented(found):
                yield f"{module.__name__}.{name}", found


def test_every_public_name_has_a_docstring() -> None:
    """Classes, functions, methods and properties; a constructor may leave it to its class."""
    bare = [place for place, found in functions() if not found.__doc__ and not place.endswith(".__init__")]
    for module in map(import_module, api_doc.MODULES):
        bare += [
            f"{module.__name__}.{name}"
            for name in api_doc.names_of(module)
            if inspect.isclass(getattr(module, name)) and not getattr(module, name).__doc__
        ]
    assert bare == []


def test_what_raises_says_so() -> None:
    """Who reads the page alone knows what to expect."""
    silent = [
        place
        for place, found in functions()
        if api_doc.raised_in(found) and "raise" not in (found.__doc__ or "").lower() and not place.endswith("__init__")
    ]
    assert silent == []


class Example:
    """Does it.

    Attributes:
        size: How large,
            in bytes.
    """

    def make(self, size: int = 1) -> str:
        """Make it.

        Raises:
            ValueError: It is too small.
        """
        if size < 1:
            raise ValueError
        return ""

    def silent(self) -> None:
        """Say nothing."""

        def inner() -> None:
            raise ValueError

        inner()


@pytest.mark.parametrize(("name", "raises"), [("make", True), ("silent", False)])
def test_raises_of_inner_functions_are_not_its_own(name: str, raises: bool) -> None:
    """What a function hands out may raise when it is called, which is another moment."""
    assert api_doc.raised_in(getattr(Example, name)) is raises


def test_a_signature_and_a_docstring_are_shown_as_markdown() -> None:
    """Without `self`; sections are lists."""
    assert api_doc.signature_of("make", Example.make) == "make(size: int = 1) -> str"
    assert api_doc.text_of(Example) == "Does it.\n\n**Attributes**\n\n- `size`: How large,\n  in bytes."
    assert [name for name, _ in api_doc.members_of(Example)] == []
