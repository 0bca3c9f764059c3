"""Makes docs/api.md from the docstrings of all public names.

A public name is one that its module lists in `__all__`, or defines where it lists none. Of a class its methods and
properties are shown as well, those of its bases too where they are of this project.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from tools.numbers import without_numbers

MODULES = (
    "pyddmq",
    "pyddmq.actions",
    "pyddmq.broker",
    "pyddmq.codes",
    "pyddmq.spark",
    "pyddmq.testing",
    "pyddmq.testing.actions",
    "pyddmq.testing.client",
)
_OURS = ("pyddmq", "broker", "upstream", "actions", "conf", "proxy", "lag")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$")
_ITEM = re.compile(r"^    (\*{0,2}\w[\w ,*]*): (.*)$")
_INTRODUCTION = """\
# Python API

What programs import, made from the docstrings (`make docs`); a test keeps the two equal.
[The client](client.md) and [actions](actions.md) explain it with examples, [consumers](consumers.md) the broker inside
a program.
"""


def names_of(module: ModuleType) -> list[str]:
    """Return the public names of a module, sorted."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    return sorted(
        name
        for name, found in vars(module).items()
        if name[0] != "_" and getattr(found, "__module__", None) == module.__name__
    )


def members_of(kind: type) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties of a class by name, as they are defined, the constructor first."""
    found: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] in _OURS:
            found.update({name: each for name, each in vars(base).items() if name == "__init__" or name[0] != "_"})
    for name in sorted(found, key=lambda each: (each != "__init__", each)):
        each = found[name]
        if isinstance(each, staticmethod | classmethod):
            yield name, each.__func__
        elif inspect.isfunction(each) or isinstance(each, property):
            yield name, each


def raised_in(function: object) -> bool:
    """Whether a function's own code raises, so that its docstring has to say what."""
    if isinstance(function, property):
        function = function.fget
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))  # type: ignore[arg-type]
    except (OSError, TypeError):
        return False
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in _own_code(tree.body[0]))


def _own_code(function: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield node
            yield from _own_code(node)


def signature_of(name: str, function: object) -> str:
    """Return how something is called, with its types as the code has them."""
    if isinstance(function, property):
        return name
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name
    parameters = [each for each in signature.parameters.values() if each.name not in {"self", "cls"}]
    # A default that is an object shows where it stands in memory; enough is said by its name.
    shown = str(
        signature.replace(
            parameters=[
                each.replace(
                    default=_Shown("...") if " at 0x" in repr(each.default) else each.default,
                    annotation=_unquoted(each.annotation),
                )
                for each in parameters
            ],
            return_annotation=_unquoted(signature.return_annotation),
        )
    )
    prefix = "async " if inspect.iscoroutinefunction(function) else ""
    return prefix + name + re.sub(r" -> None$", "", shown)


def _unquoted(annotation: object) -> object:
    return _Shown(annotation) if isinstance(annotation, str) else annotation


class _Shown:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


_OF_EVERY_OBJECT = str(inspect.getdoc(object.__init__))


def text_of(documented: object) -> str:
    """Return a docstring as Markdown: its sections as lists, their heads in bold."""
    lines, section = [], False
    for line in (inspect.getdoc(documented) or "").splitlines():
        head = _SECTION.match(line)
        item = _ITEM.match(line) if section else None
        if head is not None:
            lines.append(f"**{head[1]}**\n")
            section = True
        elif item is not None:
            lines.append(f"- `{item[1]}`: {item[2]}")
        else:
            lines.append("  " + line.strip() if section and line.strip() else line)
    return re.sub(r"<(?=\w)", "&lt;", "\n".join(lines)).strip()


def is_documented(found: object) -> bool:
    """Whether a public object is one of those that have a docstring: a class or a function."""
    return inspect.isclass(found) or inspect.isroutine(found)


def _parts(module: ModuleType) -> Iterator[str]:
    yield f"\n## {module.__name__}\n\n{text_of(module)}\n"
    for name in names_of(module):
        found = getattr(module, name)
        if not is_documented(found):
            yield f"\n### {name}\n\n`{_ADDRESS.sub('', repr(found))}`\n"
        elif inspect.isclass(found):
            yield f"\n### class {name}\n\n{text_of(found)}\n"
            for member, function in members_of(found):
                shown = signature_of(name if member == "__init__" else member, function)
                described = text_of(function)
                if member != "__init__" or described:
                    # A constructor that has no words but those of every object is described by its class.
                    described = described.replace(_OF_EVERY_OBJECT, "")
                    yield f"\n```python\n{shown}\n```\n" + (f"\n{described}\n" if described else "")
        else:
            yield f"\n### {name}\n\n```python\n{signature_of(name, found)}\n```\n\n{text_of(found)}\n"


def render() -> str:
    """Return the page."""
    page = _INTRODUCTION + "".join(part for name in MODULES for part in _parts(import_module(name)))
    return without_numbers(page)
