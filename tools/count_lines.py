"""Counts lines of code, and words of docs/: `python -m tools.count_lines`, the last step of `make lint`.

A line of code is not blank and has more than a comment or part of a docstring. The string after an attribute counts as
code. Of templates, CSS and JavaScript every line counts that is not blank. The numbers show growth; they fail no check.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

CEILINGS: Mapping[str, int] = MappingProxyType({"product": 82_000, "tests": 92_000})
"""Most lines of code that the present piece of work may end with."""

ROOMS = ("actions", "broker", "conf", "lag", "proxy", "pyddmq", "upstream")
BESIDE = ("tests", "tools", "examples", "bench")
WORDS_CEILING = 60_000
"""Most words that pages written by hand may have together, README included."""
SMALL_LINES = 60
"""A file with fewer lines of text is a candidate for a merge."""

_PYTHON = (".py", ".pyx", ".pxd")
_ASSETS = (".html", ".j2", ".jinja", ".css", ".js")
# Regular expressions: Python's tokenizer takes eight times as long.
_STRING = "\0"
_WORD = re.compile(
    r"""#[^\n]*|(?:\b[bfru]{1,2})?(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""",
    re.DOTALL | re.IGNORECASE,
)
_DOCSTRING = re.compile(r"(\A|:[ \t]*\n)\s*\0(?:\n\0)*[ \t]*$", re.MULTILINE)
_LAMBDA = re.compile(r"\blambda\b")


@dataclass(slots=True)
class Counts:
    """What one folder holds.

    Attributes:
        code: Lines of code.
        files: Source files and assets.
        small: Python files with fewer than `SMALL_LINES` lines of text; empty ones do not count.
        lambdas: Lambda expressions.
    """

    code: int = 0
    files: int = 0
    small: int = 0
    lambdas: int = 0

    def add(self, other: Counts) -> None:
        """Add what another folder or file holds."""
        self.code += other.code
        self.files += other.files
        self.small += other.small
        self.lambdas += other.lambdas


def count_file(name: str, text: str) -> Counts:
    """Count one file; the ending of `name` decides how."""
    counts = Counts(files=1)
    if name.endswith(_PYTHON):
        counts.small = int(0 < text.count("\n") < SMALL_LINES)
        text = _bare(text)
        counts.lambdas = len(_LAMBDA.findall(text))
    counts.code = sum(line != "" and not line.isspace() for line in text.splitlines())
    return counts


def _bare(text: str) -> str:
    """Return Python without comments and docstrings, and with `_STRING` on each line of any other string."""
    bare = _WORD.sub(_replacement, text)
    return _DOCSTRING.sub(r"\1", bare)


def _replacement(word: re.Match[str]) -> str:
    if word[0].startswith("#"):
        return ""
    return "\n".join([_STRING] * (word[0].count("\n") + 1))


def count_folders(root: Path, names: Iterable[str]) -> dict[str, Counts]:
    """Count files by their folder, at most two levels deep, and by the sums `product`, `tests`, `tools` ...

    Args:
        root: Of the checkout.
        names: Paths of files below it.

    Returns:
        By `room`, `room/folder` and sum. Files at the root of the checkout, and in other folders, are left out.
    """
    found: dict[str, Counts] = {}
    for name in names:
        room, *rest = name.split("/")
        if not rest or room not in (*ROOMS, *BESIDE) or not name.endswith((*_PYTHON, *_ASSETS)):
            continue
        counts = count_file(name, (root / name).read_text(encoding="utf-8"))
        sums = [room, "product"] if room in ROOMS else [room]
        if len(rest) > 1:
            sums.append(f"{room}/{rest[0]}")
        for each in sums:
            found.setdefault(each, Counts()).add(counts)
    return found


def table(found: Mapping[str, Counts], *, folders: bool = False) -> str:
    """Return the counts as text, the sums with their ceilings; `folders`: with each room's folders."""
    lines = [f"{'code':>8} {'files':>6} {'<' + str(SMALL_LINES):>5} {'lambdas':>8}"]
    for name in (*ROOMS, "product", *BESIDE):
        shown = [name, *(sorted(each for each in found if each.startswith(f"{name}/")) if folders else ())]
        lines += [_row(each, found[each]) for each in shown if each in found]
    for name, ceiling in CEILINGS.items():
        above = found[name].code - ceiling if name in found else 0
        if above > 0:
            lines.append(f"{name} is {above:,} lines above its ceiling of {ceiling:,}")
    return "\n".join(lines)


def _row(name: str, counts: Counts) -> str:
    ceiling = f" of {CEILINGS[name]:,}" if name in CEILINGS else ""
    figures = f"{counts.code:8,} {counts.files:6,} {counts.small:5,} {counts.lambdas:8,}"
    return f"{figures}  {name}{ceiling}"


def count_words(root: Path) -> dict[str, int]:
    """Count the words of the pages by shelf of docs/README.md, those that `make docs` makes apart.

    A word has a letter or a digit: the bars of tables and the marks of headings are none.
    """
    pages = {path.relative_to(root / "docs").as_posix(): path for path in (root / "docs").rglob("*.md")}
    texts = {name: path.read_text(encoding="utf-8") for name, path in pages.items()}
    made = {name for name, text in texts.items() if "make docs" in text[:600]}
    shelves = re.split(r"^## (.*)$", texts["README.md"], flags=re.MULTILINE)
    found = {"README": _words((root / "README.md").read_text(encoding="utf-8")) + _words(texts["README.md"])}
    for shelf, text in zip(shelves[1::2], shelves[2::2], strict=True):
        placed = {name for name in re.findall(r"\]\(([^)]+\.md)\)", text) if name in texts}
        found[shelf] = sum(_words(texts[name]) for name in placed - made)
    found["by hand"] = sum(found.values())
    found["made from the code"] = sum(_words(texts[name]) for name in made)
    return found


def _words(text: str) -> int:
    return sum(any(map(str.isalnum, token)) for token in text.split())


def words_table(found: Mapping[str, int]) -> str:
    """Return the words as text, with the ceiling of the pages written by hand."""
    lines = [f"{'words':>8}", *(f"{count:8,}  {name}" for name, count in found.items())]
    if (above := found["by hand"] - WORDS_CEILING) > 0:
        lines.append(f"docs/ is {above:,} words above its ceiling of {WORDS_CEILING:,}")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Print the table of this checkout."""
    root = Path(__file__).parents[1]
    names = (path.relative_to(root).as_posix() for room in (*ROOMS, *BESIDE) for path in (root / room).rglob("*.*"))
    print(table(count_folders(root, names), folders="--folders" in arguments))
    print(words_table(count_words(root)))


if __name__ == "__main__":
    main(sys.argv[1:])
