"""Finds wording in user-facing texts that is hard to read, and names a better form.

User-facing texts are the strings of the product (help, errors, answers, descriptions), the docstrings that the command
line shows as help, the meanings of log events, and the pages of docs/ for users and operators with README.md.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOMS = ("conf", "broker", "upstream", "actions", "lag", "proxy", "pyddmq", "tools")
COMMANDS = "proxy/cli/command_table.py"
"""Names the functions whose docstrings are shown as help."""

WORDS_MAX = 25
_WORDS_OF_A_TEXT = 3
_HOLE = "{}"
_CODE = re.compile(r"\b(?:AS|NULL|WHEN|SELECT)\b|\bif \{\}")
"""Strings with these are SQL or Python, not text."""


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE)


PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        _pattern(r"told|tells?|telling"),
        "name the actor and the verb: sends, reports, notifies, returns, logs, distinguishes",
    ),
    (
        _pattern(r"(?:is|are|was|were|be|been) asked|asks? in vain|in vain"),
        "`calls X`, `queries X`, `does not respond`",
    ),
    (_pattern(r"nobody|somebody|anybody|everybody|whoever|no one|himself|he|his"), "name the role: client, operator"),
    (_pattern(r"so (?:many|much)|ever more|hardly|by far|whichever"), "give the quantity a name and a unit"),
    (re.compile(r"(?<!there )\b(?:is|are) no (?!longer|more)", re.IGNORECASE), "`is not a valid X`, `does not exist`"),
    (_pattern(r"(?:is|are|was|were) (?-i:none)"), "`is not a valid X`, `not found`, `does not exist`"),
    (
        _pattern(r"there (?:is|are) no (?:such|(?:topic|group|message|transaction|timer|column|stage)s?(?= [^a-z]))"),
        "`X does not exist`, `X is missing`",
    ),
    (_pattern(r"no longer (?:stored|kept)"), "deleted"),
    (_pattern(r"nothing can be said"), "unknown; name the figure that is missing"),
    (_pattern(r"held up"), "blocked"),
    (_pattern(r"(?:go|goes|going|went|gone) on"), "continue"),
    (_pattern(r"(?:comes?|came|coming) (?:again|back)"), "is redelivered, returns"),
    (_pattern(r"(?:is|are|was|were|be|has|have) gone|gone"), "deleted, missing, lost"),
    (_pattern(r"(?:is|are) over"), "finished"),
    (_pattern(r"(?:at|in) hand|out with"), "available, in flight"),
    (_pattern(r"(?:take|takes|taken|took|taking) up(?! to)"), "acknowledged, delivered, read, applied"),
    (_pattern(r"(?:give|gives|given|gave|giving) up"), "abandoned, rejected"),
    (_pattern(r"let go"), "released"),
    (_pattern(r"stands?|stood|standing|lies"), "is"),
    (_pattern(r"anew"), "again; rebuilt, created again"),
    (_pattern(r"for ever"), "permanently, without limit"),
    (_pattern(r"all that|all else|what is there|what (?:lies|stands) here"), "`all messages`, `existing records`"),
    (_pattern(r"how long (?:things|messages|it|they|\w+s) (?:take|takes|took)"), "latency, duration"),
    (
        re.compile(
            r"(?:^|[.:;,(] ?|\b(?:for|of|from|to|with|by) )(?:who|what) (?:is|are|has|have|was|may|can|cannot|makes)\b"
        ),
        "give the relative clause its noun: `a client that`, `the messages that`",
    ),
    (_pattern(r"mend(?:s|ed|ing)?"), "fix, correct, repair"),
    (_pattern(r"hand(?:s|ed)? out|hand(?:ing|ed)?-out"), "deliver, delivery"),
    (
        _pattern(r"twice over|once more|ere|whence|wherein|whereof|thereof|hence|meanwhile"),
        "a plainer word, or drop it",
    ),
)
"""What not to write, with the form to write instead."""


@dataclass(frozen=True, slots=True)
class Text:
    """A user-facing text: its file, line and words; `prose` where whole sentences are expected."""

    file: str
    line: int
    words: str
    prose: bool


def faults_of(text: Text) -> Iterator[str]:
    """Yield one line for each wording of a text that has a better form."""
    plain = re.sub(r"`[^`]*`", "`x`", text.words)
    for pattern, better in PATTERNS:
        for found in pattern.finditer(plain):
            yield f"{text.file}:{text.line}: {found.group().strip()!r} in {_around(plain, found.start())!r}: {better}"


def long_sentences(text: Text) -> Iterator[str]:
    """Yield one line for each sentence of a text that has too many words."""
    for sentence in sentences_of(text.words):
        count = len(sentence.split())
        if count > WORDS_MAX:
            yield f"{text.file}:{text.line}: a sentence of {count} words, {sentence[:60]!r}: make it two sentences"


def sentences_of(words: str) -> list[str]:
    """Split a text at full stops, semicolons and colons that are followed by a space."""
    plain = re.sub(r"`[^`]*`", "`x`", words)
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    plain = re.sub(r"\b(?:e\.g|i\.e|etc)\.", "eg", plain)
    return [each for each in re.split(r"(?<=[.;:!?])\s+", plain) if each]


def texts_of_module(file: str, source: str, help_of: frozenset[str]) -> Iterator[Text]:
    """Yield the strings of a module that have at least three words, and the docstrings of the commands among them."""
    tree = ast.parse(source)
    shown, skipped = _docstrings(tree, help_of if file.startswith("proxy/cli/") else frozenset())
    yield from (Text(file, line, words, True) for line, words in shown)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(each) for each in ast.walk(node) if isinstance(each, ast.Constant))
            words = "".join(str(each.value) if isinstance(each, ast.Constant) else _HOLE for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value
        else:
            continue
        if len(re.findall(r"[A-Za-z]{2,}", words)) >= _WORDS_OF_A_TEXT and not _CODE.search(words):
            yield Text(file, node.lineno, words, False)


def texts_of_page(file: str, source: str) -> Iterator[Text]:
    """Yield the paragraphs, list items and table cells of a Markdown page, code blocks left out."""
    block: list[str] = []
    first, fenced = 1, False
    for number, line in enumerate([*source.splitlines(), ""], 1):
        stripped = line.strip()
        fence = stripped.startswith("```")
        fenced ^= fence
        if fence or fenced or not stripped or re.match(r"[|#>*-]|\d+\.\s", stripped) or stripped.startswith("<!--"):
            if block:
                yield Text(file, first, " ".join(block), True)
            block, first = [], number
        if fence or fenced or not stripped or stripped.startswith("<!--"):
            continue
        if stripped.startswith("|"):
            cells = [cell.strip() for cell in stripped.strip("|").split("|")]
            yield from (Text(file, number, cell, True) for cell in cells if cell.strip("-: "))
            continue
        if not block:
            first = number
        block.append(re.sub(r"^(?:[#>*-]+|\d+\.)\s+", "", stripped))


def texts_of(root: Path, pages: list[str]) -> Iterator[Text]:
    """Yield all user-facing texts: those of the product's modules, and those of the pages that are named."""
    help_of = frozenset(re.findall(r"\w+", (root / COMMANDS).read_text(encoding="utf-8")))
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if name != "tools/plain_english.py":
                yield from texts_of_module(name, path.read_text(encoding="utf-8"), help_of)
    for page in pages:
        yield from texts_of_page(page, (root / page).read_text(encoding="utf-8"))


def pages_of(root: Path) -> list[str]:
    """Return README.md and the pages of docs/README.md's shelves for users and operators."""
    shelves = (root / "docs/README.md").read_text(encoding="utf-8").partition("## For makers")[0]
    linked = re.findall(r"\]\(([\w/-]+\.md)\)", shelves)
    return ["README.md", "docs/README.md", *dict.fromkeys(f"docs/{page}" for page in linked)]


def _docstrings(tree: ast.Module, help_of: frozenset[str]) -> tuple[list[tuple[int, str]], set[int]]:
    """Return the docstrings that are shown as help, and the nodes of all strings that no user sees."""
    found: list[tuple[int, str]] = []
    hidden: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.msg is not None:
            hidden.update(id(each) for each in ast.walk(node.msg))
        elif isinstance(node, ast.Expr):
            hidden.add(id(node.value))
        elif isinstance(node, ast.FunctionDef) and node.name in help_of and (text := ast.get_docstring(node)):
            found.append((node.lineno, re.split(r"\n\s*(?:Args|Returns|Raises):|\bRaises CliError", text)[0]))
    return found, hidden


def _around(words: str, at: int) -> str:
    return " ".join(words[max(0, at - 30) : at + 40].split())


def main(root: Path) -> None:
    """Print all faults of all user-facing texts, and how many there are of each file."""
    counts: dict[str, int] = {}
    for text in texts_of(root, pages_of(root)):
        found = [*faults_of(text), *(long_sentences(text) if text.prose else ())]
        for fault in found:
            counts[text.file] = counts.get(text.file, 0) + 1
            print(fault)
    for file, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"{count:5} {file}")


if __name__ == "__main__":
    main(Path(__file__).parents[1])
