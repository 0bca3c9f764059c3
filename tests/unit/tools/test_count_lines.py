"""Lines of code: what counts, what does not, and how the sums stand beside their ceilings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.count_lines import (
    CEILINGS,
    WORDS_CEILING,
    Counts,
    count_file,
    count_folders,
    count_words,
    table,
    words_table,
)

MODULE = '''"""A module,
in two lines."""

import os  # a comment

# another comment


class First:  # with a comment
    """A class."""

    name = "# no comment"
    text = """not a docstring,

    so its lines that are blank count too"""

    def call(
        self,
    ) -> int:
        r"""A method\\."""

        # it's a comment
        return "\\"#" + 'lambda' and (lambda: {"a": 1})()


class First:
    pass
'''


def test_comments_docstrings_and_blank_lines_are_no_code() -> None:
    """Strings that are no docstrings count, with the blank lines in them."""
    counts = count_file("a.py", MODULE)
    assert counts.code == 12
    assert (counts.lambdas, counts.small) == (1, 1)


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a.pyx", '"""Compiled."""\ncdef class A:\n    """Doc."""\n    cdef int b  # c\n', 2),
        ("a.css", "/* a comment */\n\na {\n}\n  \n", 3),
        ("empty.py", "", 0),
    ],
)
def test_other_files_are_counted_by_their_kind(name: str, text: str, code: int) -> None:
    """Cython as Python; of templates and styles whatever is not blank."""
    assert count_file(name, text).code == code


def test_folders_are_summed_up_by_room_and_kind(tmp_path: Path) -> None:
    """What is at the root, in other folders, or of another kind counts nowhere."""
    for name in ("broker/log/deep/a.py", "broker/b.py", "lag/c.js", "tests/test_d.py", "e.py", "docs/f.py", "lag/g.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("class A:\n    pass\n")
    names = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")]
    found = count_folders(tmp_path, names)
    assert {name: counts.code for name, counts in found.items()} == {
        "broker": 4,
        "broker/log": 2,
        "product": 6,
        "lag": 2,
        "tests": 2,
    }


def test_sum_above_its_ceiling_is_reported() -> None:
    """In a line of its own; at the ceiling there is none."""
    ceiling = CEILINGS["product"]
    above = table({"product": Counts(code=ceiling + 1_000), "tests": Counts(code=CEILINGS["tests"])})
    assert above.splitlines()[-1] == f"product is 1,000 lines above its ceiling of {ceiling:,}"
    assert "above" not in table({"product": Counts(code=ceiling)})


def test_words_are_summed_up_by_shelf_and_made_pages_apart(tmp_path: Path) -> None:
    """Each page counts for the shelf that links to it; a page that `make docs` makes counts for none."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("one two")
    shelves = "# Docs\n\n## Users\n\n[a](a.md) [made](made.md)\n\n## Makers\n\n[b](b.md)\n"
    pages = {"README": shelves, "a": "1 | 2 3", "b": "1 2", "made": "by `make docs` 4 5"}
    for name, text in pages.items():
        (tmp_path / "docs" / f"{name}.md").write_text(text)
    found = count_words(tmp_path)
    assert found == {"README": 8, "Users": 3, "Makers": 2, "by hand": 13, "made from the code": 5}
    assert "above" not in words_table(found)
    above = words_table({**found, "by hand": WORDS_CEILING + 5})
    assert above.splitlines()[-1] == f"docs/ is 5 words above its ceiling of {WORDS_CEILING:,}"
