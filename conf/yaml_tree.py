"""YAML text to a tree that knows its lines, bounded in size, depth and aliases.

The tree is built from parser events in a loop of our own: no tag can name a Python type, nesting cannot exhaust the
stack, an alias bomb is counted before it is expanded, and a key given twice is an error instead of a silent choice.
Of YAML 1.1 we leave out what surprises: dates and base-60 numbers (`12:30`) stay text, and keys are always text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from conf.problems import ConfigError, Problem

TEXT_BYTES_MAX = 4 * 1024 * 1024
DEPTH_MAX = 32
NODES_MAX = 200_000
"""Nodes after the expansion of aliases."""

_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(_TAG + name for name in ("str", "int", "float", "bool", "null"))
_CONTAINER_TAGS = frozenset({_TAG + "map", _TAG + "seq"})
_EVENT_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Scalar:
    """A single value: None, bool, int, float or str.

    Of a text, `raw` is how it is in the file, `column` where that begins (from 0), and `style` how it is quoted:
    `|`, `>`, `'`, `"`, or nothing.
    """

    line: int
    value: Any
    size: int = 1
    depth: int = 1
    column: int = 0
    raw: str = ""
    style: str = ""


@dataclass(slots=True)
class Sequence:
    """A list."""

    line: int
    items: list[Tree] = field(default_factory=list)
    size: int = 1
    depth: int = 1


@dataclass(slots=True)
class Mapping:
    """Keys in the order of the file, each with the line (from 1) of the key."""

    line: int
    entries: dict[str, tuple[int, Tree]] = field(default_factory=dict)
    size: int = 1
    depth: int = 1
    merged: list[Mapping] = field(default_factory=list)


Tree = Scalar | Sequence | Mapping


def parse(text: str, file: str) -> Tree:
    """Read one YAML document.

    Args:
        text: The document.
        file: Its name, for the errors.

    Returns:
        The tree; an empty document is an empty mapping.

    Raises:
        ConfigError: Not YAML, several documents, a key given twice, a tag that is not YAML's own, or a cap passed.
    """
    if len(text) > TEXT_BYTES_MAX:
        raise ConfigError([Problem(file, None, "", f"is larger than {TEXT_BYTES_MAX:,} bytes; split or shorten it")])
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise ConfigError(
            [Problem(file, line, "", "has half of a surrogate pair; write the character itself")]
        ) from error
    builder = _Builder(file, text)
    try:
        for event in yaml.parse(text, Loader=_EVENT_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        raise ConfigError([*builder.problems, _syntax_problem(error, text, file)]) from error
    if builder.problems:
        raise ConfigError(builder.problems)
    root = builder.root
    return Mapping(1) if root is None or (isinstance(root, Scalar) and root.value is None) else root


def plain(tree: Tree) -> Any:
    """Return the tree as dicts, lists and scalars."""
    if isinstance(tree, Mapping):
        return {key: plain(value) for key, (_, value) in tree.entries.items()}
    if isinstance(tree, Sequence):
        return [plain(item) for item in tree.items]
    return tree.value


def line_of(tree: Tree, path: tuple[object, ...]) -> int:
    """Line (from 1) of the deepest part of `path` that the tree has."""
    line = tree.line
    for step in path:
        if isinstance(tree, Mapping) and step in tree.entries:
            line, tree = tree.entries[str(step)]
        elif isinstance(tree, Sequence) and isinstance(step, int) and step < len(tree.items):
            tree = tree.items[step]
            line = tree.line
        else:
            break
    return line


def find(tree: Tree, path: tuple[object, ...]) -> Tree | None:
    """What is at `path`; None where the tree does not lead there."""
    at: Tree | None = tree
    for step in path:
        if isinstance(at, Mapping) and step in at.entries:
            at = at.entries[str(step)][1]
        elif isinstance(at, Sequence) and isinstance(step, int) and step < len(at.items):
            at = at.items[step]
        else:
            return None
    return at


_BLANKS = " \t\r\n\x85\u2028\u2029"
_ESCAPED_BLANKS = frozenset("ntr \t\n\r_LNP")


def place_in(scalar: Scalar, line: int, column: int) -> tuple[int, int] | None:
    """Where a character of a text is in the file.

    YAML folds, indents and unquotes a text but keeps its characters in their order. So the place is found by counting
    those that are no blanks, whatever the style.

    Args:
        scalar: A text.
        line: Line of its value, from 1.
        column: Character in that line, from 1; one behind the end counts as the end.

    Returns:
        Line and column in the file, from 1; None where the file has the character in an escaped form.
    """
    lines = scalar.value.split("\n")
    before = "\n".join([*lines[: line - 1], "".join(lines[line - 1 : line])[: max(0, column - 1)]])
    wanted = sum(each not in _BLANKS for each in before)
    at_line, at_column = scalar.line, scalar.column + 1
    last = (at_line, at_column)
    raw, quote = scalar.raw, scalar.style if scalar.style in ("'", '"') else ""
    position = 0
    if scalar.style in ("|", ">"):
        position = raw.find("\n") + 1
        at_line, at_column = at_line + 1, 1
    elif quote:
        position, at_column = 1, at_column + 1
        raw = raw[:-1]
    while position < len(raw):
        each = raw[position]
        length, blank = 1, each in _BLANKS
        if quote == "'" and raw.startswith("''", position):
            length = 2
        elif quote == '"' and each == "\\":
            length = 2
            escaped = raw[position + 1 : position + 2]
            if escaped in "xuU":
                return None
            blank = escaped in _ESCAPED_BLANKS
        if not blank:
            if not wanted:
                return at_line, at_column
            wanted -= 1
            last = (at_line, at_column + length)
        if each == "\n":
            at_line, at_column = at_line + 1, 1
        else:
            at_column += length
        position += length
    return last


def _syntax_problem(error: yaml.YAMLError, text: str, file: str) -> Problem:
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        reason = " ".join(filter(None, [getattr(error, "context", None), getattr(error, "problem", None)]))
        if "nesting depth" in reason:
            # A bound of libyaml's own, which reads ahead of the events that it gives.
            return Problem(file, mark.line + 1, "", f"is nested deeper than {DEPTH_MAX} levels; flatten it")
        lines = text.splitlines()
        if mark.line < len(lines) and "\t" in lines[mark.line][: mark.column + 1]:
            column = lines[mark.line].index("\t") + 1
            return Problem(file, mark.line + 1, "", f"has a tab in column {column}; YAML is indented with spaces")
        return Problem(file, mark.line + 1, "", f"is not valid YAML: {reason}; see column {mark.column + 1}")
    position = getattr(error, "position", 0)
    line = text.count("\n", 0, position) + 1 if isinstance(position, int) else None
    return Problem(file, line, "", "has a character that YAML does not allow; save it as plain UTF-8 text")


class _Resolver(yaml.SafeLoader):
    """Tells what an untagged scalar is, without dates."""


_Resolver.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_TAG + "timestamp", _TAG + "value")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Builder:
    """Takes events in order; `root` is the tree and `problems` what is wrong beside the syntax."""

    def __init__(self, file: str, text: str) -> None:
        self._text = text
        self.root: Tree | None = None
        self.problems: list[Problem] = []
        self._file = file
        self._resolver: Any = _Resolver("")
        self._anchors: dict[str, Tree] = {}
        self._documents = 0
        # One frame per open container: the container, its anchor, and the key (with its line) that waits for a value.
        self._stack: list[tuple[Mapping | Sequence, str | None]] = []
        self._keys: list[tuple[str, int] | None] = []

    def take(self, event: yaml.Event) -> None:
        line = 1 if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._fail(line, "a second document starts here; keep one configuration per file")
        elif isinstance(event, yaml.AliasEvent):
            anchored = self._anchors.get(str(event.anchor))
            if anchored is None:
                self._fail(line, f"*{event.anchor} is not defined above; define it with &{event.anchor}")
            self._place(anchored, line, is_key=self._key_expected())
        elif isinstance(event, yaml.ScalarEvent):
            self._take_scalar(event, line)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close()

    def _key_expected(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1][0], Mapping) and self._keys[-1] is None

    def _take_scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        if self._key_expected():
            merge = event.value == "<<" and event.implicit[0]
            self._take_key("<<" if merge else event.value, line, merge=merge)
            return
        scalar = Scalar(line, self._resolve(event, line))
        if isinstance(scalar.value, str) and event.start_mark is not None and event.end_mark is not None:
            scalar.column, scalar.style = event.start_mark.column, event.style or ""
            scalar.raw = self._text[event.start_mark.index : event.end_mark.index]
        self._remember(event.anchor, scalar)
        self._place(scalar, line)

    def _take_key(self, key: str, line: int, *, merge: bool) -> None:
        mapping = self._stack[-1][0]
        assert isinstance(mapping, Mapping)
        if not merge and key in mapping.entries:
            before = mapping.entries[key][0]
            self.problems.append(
                Problem(self._file, line, key, f"is given twice, first on line {before}; remove one of them")
            )
        self._keys[-1] = (key, -line if merge else line)

    def _resolve(self, event: yaml.ScalarEvent, line: int) -> Any:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._resolver.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag not in _SCALAR_TAGS:
            if tag == _TAG + "merge":
                return event.value
            self._fail(line, f"the tag {tag} is not allowed; write the value without it")
        if tag in (_TAG + "int", _TAG + "float") and ":" in event.value:
            return event.value  # YAML 1.1 reads 1:30 as 90
        try:
            value = self._resolver.construct_object(yaml.ScalarNode(tag, event.value))
            if isinstance(value, int):
                str(value)  # Python writes no more than 4,300 digits, and reads more of hex.
            return value
        except (ValueError, LookupError, yaml.YAMLError):
            self._fail(line, f"{event.value[:40]!r} cannot be read as {tag.removeprefix(_TAG)}; write it plainly")

    def _open(self, event: yaml.CollectionStartEvent, line: int) -> None:
        if self._key_expected():
            self._fail(line, "a key must be plain text, not a list or mapping")
        if event.tag is not None and event.tag != "!" and event.tag not in _CONTAINER_TAGS:
            self._fail(line, f"the tag {event.tag} is not allowed; write the value without it")
        if len(self._stack) >= DEPTH_MAX:
            self._fail(line, f"is nested deeper than {DEPTH_MAX} levels; flatten it")
        opened: Mapping | Sequence = Mapping(line) if isinstance(event, yaml.MappingStartEvent) else Sequence(line)
        self._stack.append((opened, event.anchor))
        self._keys.append(None)

    def _close(self) -> None:
        container, anchor = self._stack.pop()
        self._keys.pop()
        if isinstance(container, Mapping):
            for merged in container.merged:
                for key, entry in merged.entries.items():
                    container.entries.setdefault(key, entry)
        self._remember(anchor, container)
        self._place(container, container.line)

    def _remember(self, anchor: str | None, tree: Tree) -> None:
        # Remembered when complete, so an alias inside its own anchor is undefined rather than endless.
        if anchor is not None:
            self._anchors[anchor] = tree

    def _place(self, tree: Tree, line: int, *, is_key: bool = False) -> None:
        if is_key:
            if not isinstance(tree, Scalar) or not isinstance(tree.value, str):
                self._fail(line, "a key must be plain text, not an alias")
            self._take_key(tree.value, line, merge=False)
            return
        if not self._stack:
            self.root = tree
            return
        container = self._stack[-1][0]
        container.size += tree.size
        container.depth = max(container.depth, tree.depth + 1)
        if container.size > NODES_MAX or container.depth > DEPTH_MAX:
            self._fail(line, f"has more than {NODES_MAX:,} values or {DEPTH_MAX} levels with aliases; remove some")
        if isinstance(container, Sequence):
            container.items.append(tree)
            return
        key = self._keys[-1]
        assert key is not None
        self._keys[-1] = None
        if key[1] < 0:
            self._merge(container, tree, line)
        else:
            container.entries[key[0]] = (key[1], tree)

    def _merge(self, container: Mapping, tree: Tree, line: int) -> None:
        sources = tree.items if isinstance(tree, Sequence) else [tree]
        for source in sources:
            if not isinstance(source, Mapping):
                self._fail(line, "<< takes a mapping or a list of mappings, such as *defaults")
            container.merged.append(source)

    def _fail(self, line: int, text: str) -> NoReturn:
        raise ConfigError([*self.problems, Problem(self._file, line, "", text)])
