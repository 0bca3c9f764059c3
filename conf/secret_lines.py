"""The text of a configuration file as people are shown it, right or not: without what is most likely a secret."""

from __future__ import annotations

import re

from conf.problems import ConfigError
from conf.secrets import NAMES_OF_SECRETS
from conf.yaml_tree import Mapping, Scalar, Sequence, Tree, parse

MASK = "***"
_SPOT = re.compile(r"\A\s*(?:- +)*")
"""Where the text of a line begins, behind the dashes of a list."""
_KEY = re.compile(rf"""(?:{NAMES_OF_SECRETS.pattern})[^\s:,]*+(\s*+:)?""", re.IGNORECASE)
"""The end of a key that names a secret; without a colon it is a value, passed over whole."""
_PLACE = re.compile(r"""\s*(\{\s*)?["']?(file|env)["']?\s*:\s""")
"""Says where a secret is, in place of the secret."""
_USER = re.compile(r"""://[^\s/@"']*@""")
_QUERY = re.compile(r"""(://[^\s?"']*+)(\?[^\s"',}\]]+)?""")
_SECRET_CHARS_MIN = 4


def without_secret_lines(text: str) -> str:
    """Return the text with secrets replaced: by the name of a key, or in the query or user of a URL.

    A key in a comment counts, and so do all lines that belong to the key. A value of such a key that the file has
    elsewhere too, behind an anchor, is replaced there as well.
    """
    text = _masked(text, _secrets(text))
    lines = []
    column: int | None = None
    for line in text.splitlines():
        before, rest = _split(line)
        if column is not None and (not rest or len(before) > column):
            lines.append(line if not rest or _PLACE.match(rest) else f"{before}{MASK}")
            continue
        column = None
        for found in _KEY.finditer(rest):
            if found[1] is None:
                continue
            column = len(before)
            behind = rest[found.end() :]
            if behind.strip() and not _PLACE.match(behind):
                rest = f"{rest[: found.end()]} {MASK}"
                break
        lines.append(before + _QUERY.sub(_without_query, _USER.sub(f"://{MASK}@", rest)))
    return "\n".join(lines)


def _without_query(url: re.Match[str]) -> str:
    return url[0] if url[2] is None else f"{url[1]}?{MASK}"


def _masked(text: str, secrets: set[str]) -> str:
    """Return the text with secrets replaced, at each place the longest; there may be thousands in a large file."""
    lengths: dict[str, set[int]] = {}
    for secret in secrets:
        lengths.setdefault(secret[:_SECRET_CHARS_MIN], set()).add(len(secret))
    sizes = {begin: sorted(found, reverse=True) for begin, found in lengths.items()}
    parts: list[str] = []
    kept = at = 0
    while sizes and at < len(text):
        size = next((n for n in sizes.get(text[at : at + _SECRET_CHARS_MIN], ()) if text[at : at + n] in secrets), 0)
        if size:
            parts += (text[kept:at], MASK)
            kept = at + size
        at += size or 1
    return "".join([*parts, text[kept:]])


def _split(line: str) -> tuple[str, str]:
    rest = _SPOT.sub("", line, count=1)
    return line.removesuffix(rest), rest


def _secrets(text: str) -> set[str]:
    """Return the values of keys that name secrets; those of a text that is not YAML are not known."""
    if not NAMES_OF_SECRETS.search(text):
        return set()
    try:
        tree = parse(text, "")
    except ConfigError:
        return set()
    return {each for each in _values(tree, "") if len(each) >= _SECRET_CHARS_MIN}


def _values(tree: Tree, name: str) -> list[str]:
    if isinstance(tree, Mapping):
        if tree.entries.keys() <= {"file", "env"}:
            return []
        return [found for key, (_, each) in tree.entries.items() for found in _values(each, str(key))]
    if isinstance(tree, Sequence):
        return [found for each in tree.items for found in _values(each, name)]
    assert isinstance(tree, Scalar), "a tree has no other parts"
    return [tree.value] if NAMES_OF_SECRETS.search(name) and isinstance(tree.value, str) else []
