"""The interface definitions are found in a checkout and in an installed distribution."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pyddmq import idl

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("name", idl.NAMES)
def test_idl_is_loaded_once(name: str) -> None:
    """The file is there, and loading it again gives the same module."""
    assert idl.path(name).name == f"{name}.thrift"
    assert idl.load(name) is idl.load(name)


def test_idl_that_is_missing_is_said_with_both_places() -> None:
    """A damaged installation is told from a mistake of the caller by a sentence."""
    with pytest.raises(idl.IdlMissing, match="reinstall"):
        idl.path("nothing")


def test_idl_travels_where_the_installed_package_looks(tmp_path: Path) -> None:
    """The wheel's rule for each file names the place that the loader reads, and a copy laid out so works alone."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    package = tmp_path / "pyddmq"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(ROOT / "pyddmq" / "idl.py", package)
    for name in idl.NAMES:
        target = tmp_path / rules["sources"]["thrift"] / f"{name}.thrift"
        target.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "thrift" / f"{name}.thrift", target)
    code = "from pyddmq import idl; print(idl.__file__, idl.path('consumer'), idl.load('producer').Result)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert str(tmp_path / "pyddmq" / "idl.py") in done.stdout
    assert str(package / "idl_files" / "consumer.thrift") in done.stdout


_PROTOCOL = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8").partition("### Fields of our own")[2]
_OWN, _KEPT = _PROTOCOL.split("Kept for what is to come", 1)
_ROW = re.compile(r"^\| ([\w', ]+) \| (\d+) \| `([\w<>, ]+) (\w+)` \|", re.MULTILINE)
_FIELD = re.compile(r"\b(\d+): (?:optional |required )?(map<\w+, ?\w+>|[\w<>]+) (\w+)")
_OWN_FROM = 101

Row = tuple[str, int, str, str]


def rows(table: str) -> list[Row]:
    """Struct, id, type and name of each field in a table of the page."""
    return [
        (struct, int(number), kind, name)
        for structs, number, kind, name in _ROW.findall(table)
        for struct in structs.split(", ")
    ]


def defined() -> set[Row]:
    """The fields of our own in the interface definitions, of structs and arguments."""
    found = set()
    for file in idl.NAMES:
        text = re.sub(r"/\*.*?\*/", "", idl.path(file).read_text(encoding="utf-8"), flags=re.DOTALL)
        for name, fields in re.findall(r"(?:struct|exception) (\w+) \{(.*?)\}", text, re.DOTALL):
            struct = "consumer's Message" if (file, name) == ("consumer", "Message") else name
            found |= {(struct, int(number), kind, field) for number, kind, field in _FIELD.findall(fields)}
        for method, arguments in re.findall(r"(\w+)\(([^)]*)\)", text):
            found |= {(method, int(number), kind, field) for number, kind, field in _FIELD.findall(arguments)}
    return {each for each in found if each[1] >= _OWN_FROM}


def test_numbers_on_the_wire_stand_in_the_table_for_ever() -> None:
    """D59: a field of our own has the number, type and name of its row; one to come takes what is kept for it."""
    own, kept = rows(_OWN), rows(_KEPT)
    assert {each for each in own if each[1] >= _OWN_FROM} <= defined()
    assert defined() <= {*own, *kept}
    numbers = [each[:2] for each in {*own, *kept}]
    assert len(numbers) == len(set(numbers)), "a number with two meanings"
    assert ("consumer's Message", 103, "i64", "delivery") in own
    assert len(kept) + len(own) > 20, "rows that nobody reads"
