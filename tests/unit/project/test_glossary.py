"""Each word that names a module of the product is in docs/glossary.md, or is plain English of everyone's."""

from __future__ import annotations

import re
from collections import Counter

from tests.unit.project.test_house_rules import ROOT

ROOMS = ("broker", "upstream", "proxy", "actions", "lag", "conf", "pyddmq")

PLAIN = {
    "words between nouns": "of over too long apart only",
    "plain adjectives and verbs, as in any text": "small single plain private generic manual base build unreadable "
    "readonly all new",
    "of every program": "file line text json yaml byte cli command config input output error exit thread time type "
    "client server network disk copy option model format idl search style tool test assembly async aio "
    "linux java counter count channel loader live reader writer tree parameter private diff report run "
    "dev explain manager sentence row data package program app conf binary compact encode python "
    "folder local real keep sequence function child",
    "rooms and formats by their names": "upstream proxy dlq pyddmq markdown spark redis hbase webhdfs arrow",
    "verbs whose doer has a module": "accept enter end come take run time watch stop return serve startup soon",
}
"""Words that need no row: they mean here what they mean everywhere. By the reason why each is let through."""

_ROW = re.compile(r"^\| ([^|]+) \|", re.MULTILINE)


def _stem(word: str) -> str:
    """Fold plural, -ing and -ed away, so that one row is for all forms of a word."""
    word = word.lower()
    if word.endswith(("ngs", "lves")):
        word = word[:-1].replace("lve", "lf")
    for end in ("ing", "ed"):
        if word.endswith(end) and len(word) > len(end) + 2:
            word = word.removesuffix(end)
            return (word[:-1] if word[-1] == word[-2] else word).removesuffix("e")
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "ses", "xes")) and not word.endswith("ases"):
        return word[:-2]
    if word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    return word.removesuffix("e")


def _rows() -> list[str]:
    return [row.strip() for row in _ROW.findall((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))]


def _module_words() -> dict[str, str]:
    """Words of the names of modules and folders, each with a place that has it."""
    found: dict[str, str] = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py*")):
            if path.suffix in (".py", ".pyx") and path.stem != "__main__":
                name = path.parent.name if path.stem == "__init__" else path.stem
                found |= dict.fromkeys(name.strip("_").split("_"), str(path.relative_to(ROOT)))
    return found


def test_words_of_module_names_are_in_the_glossary() -> None:
    """A module or folder named by another word needs a row, or the name of the row that means the same."""
    known = {_stem(word) for row in _rows() for word in re.findall(r"[A-Za-z]+", row)}
    plain = {_stem(word) for words in PLAIN.values() for word in words.split()}
    unknown = {word: place for word, place in _module_words().items() if _stem(word) not in known | plain}
    assert not unknown, f"neither in docs/glossary.md nor plain English: {unknown}"


def test_each_word_has_one_row() -> None:
    """One meaning per word, over both tables."""
    rows = [row for row in _rows() if row not in ("word", "---")]
    assert not [word for word, count in Counter(rows).items() if count > 1]


def test_plain_words_are_none_of_the_glossary() -> None:
    """A word with a row of its own is not let through as plain; the list holds what modules use, and no more."""
    rows = {_stem(row) for row in _rows()}
    words = [word for words in PLAIN.values() for word in words.split()]
    assert not [word for word in words if _stem(word) in rows]
    used = {_stem(word) for word in _module_words()}
    assert not [word for word in words if _stem(word) not in used]
