"""What is wrong with a configuration: `file:line: key.path: what is wrong; what would be right`.

Inside a text it is `file:line:column: ...`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Problem(NamedTuple):
    """One error or warning.

    `line` counts from 1 and is None where no line can be named (a file that is not there); `path` is the key with its
    parents, list entries by their group or topic, and empty for the file as a whole. `column` is given where the
    problem is inside a text of the file; it counts characters from 1.
    """

    file: str
    line: int | None
    path: str
    text: str
    column: int | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        if self.column is not None:
            place = f"{place}:{self.column}"
        return f"{place}: {self.path}: {self.text}" if self.path else f"{place}: {self.text}"


class ConfigError(Exception):
    """A configuration that cannot be used.

    Attributes:
        problems: Every error that was found, in the order of the file.
        shown: The text that was read, without secrets; "": it is not known.
    """

    shown = ""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))
