"""What a mutant is, and what can be said of one without running it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """A fault, put into one file of the product.

    Attributes:
        name: What the broken product does, in one plain sentence; unique.
        file: What it changes, from the root of the repository.
        old: Lines of that file as they are; they stand in it once.
        new: What stands there instead.
        caught_by: Tests that fail then, as `file::name`: each of them, by itself.
        rows: Rows of docs/ddmq-faults.md whose fault this is (`W3`).
    """

    name: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]
    rows: tuple[str, ...] = ()

    def text(self, root: Path = ROOT) -> str:
        """The file with the fault in it.

        Raises:
            ValueError: `old` does not stand in the file, or more than once, or nothing would change.
        """
        text = (root / self.file).read_text(encoding="utf-8")
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: in {self.file} the lines to change stand {found} times, not once")
        if self.old == self.new:
            raise ValueError(f"{self.name}: nothing changes")
        return text.replace(self.old, self.new)
