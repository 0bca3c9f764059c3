"""The one file that a Spark cluster needs of pyddmq: a zip with the package `pyddmq_spark`.

Executors unpickle what the driver pickled by module and name, so both must import the same modules; and a cluster has
modules of its users, who may well call one `lag` or `broker`. So the rooms that sources need are copied into one
package with a name of its own, their imports are rewritten, and the driver imports them from the same file. It needs
the standard library, and pyarrow and PySpark, which a cluster has.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

PACKAGE: Final = "pyddmq_spark"
ROOMS: Final = ("lag", "broker", "pyddmq")
"""Rooms that are in it, as far as they are needed."""
ROOTS: Final = ("lag.samples", "lag.rules", "lag.journal", "lag.spark", "lag.report")
"""What is in it in any case, with all that it imports."""
_IMPORT = re.compile(rf"^(\s*from) (?=(?:{'|'.join(ROOMS)})[. ])", re.MULTILINE)
_COMPILED: Final = re.compile(rf'(?<=")(?=(?:{"|".join(ROOMS)})\.[\w.]*_accelerator")')
"""Names of compiled modules: the zip has none, and must not find those of an installation beside it."""
_MOMENT: Final = (1980, 1, 1, 0, 0, 0)
"""Of every file, so that the same modules give the same bytes."""


def write_package(path: str) -> None:
    """Write the zip.

    Raises:
        OSError: It cannot be written.
        FileNotFoundError: This runs from the zip itself, which has no rooms to copy.
    """
    root = _root()
    files = {_name_in(root, module): _file_of(root, module) for module in _needed(root)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        _put(package, f"{PACKAGE}/__init__.py", '"""What a Spark cluster needs of pyddmq."""\n')
        for name, file in sorted(files.items()):
            _put(package, f"{PACKAGE}/{name}", rewritten(file.read_text(encoding="utf-8")))
        for file in sorted(root.glob("lag/report/page/page.*")):
            if file.suffix != ".py":
                _put(package, f"{PACKAGE}/{file.relative_to(root).as_posix()}", file.read_text(encoding="utf-8"))


def loaded_from() -> str | None:
    """Return the zip that this process has the package from, which it keeps to its end; None: from none."""
    module = sys.modules.get(PACKAGE)
    return None if module is None else str(Path(str(module.__file__)).parents[1])


def load(path: str, module: str) -> ModuleType:
    """Import a module, `lag.spark.sources` say, from the zip: what the driver gives to Spark must come from there.

    Raises:
        ImportError: The zip is none, or has no such module.
    """
    if path not in sys.path:
        sys.path.insert(0, path)
    loaded = importlib.import_module(f"{PACKAGE}.{module}")
    assert str(loaded.__file__).startswith(path), f"{PACKAGE} was imported from {loaded.__file__} before"
    return loaded


def rewritten(text: str) -> str:
    """Return a module's text with its imports of rooms turned into those of the package."""
    return _COMPILED.sub(f"{PACKAGE}.", _IMPORT.sub(rf"\1 {PACKAGE}.", text))


def _root() -> Path:
    """Return the folder that has the rooms."""
    here = Path(__file__)
    if zipfile.is_zipfile(here.parents[3]):
        raise FileNotFoundError(f"{here.parents[3]} is the package already; it cannot be made from itself.")
    return here.parents[2]


def _needed(root: Path) -> set[str]:
    """Return the modules of the roots, and what they import, over whatever way round."""
    needed: set[str] = set()
    open_ends = [module for name in ROOTS for module in _below(root, name)]
    while open_ends:
        module = open_ends.pop()
        if module in needed:
            continue
        needed.add(module)
        parent = module.rpartition(".")[0]
        if parent:
            open_ends.append(parent)
        open_ends += _imports(root, module)
    return needed


def _below(root: Path, name: str) -> Iterator[str]:
    """Yield the modules of a folder, or the one that a name is of."""
    folder = root / name.replace(".", "/")
    if not folder.is_dir():
        yield name
        return
    for file in folder.rglob("*.py"):
        yield ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _imports(root: Path, module: str) -> Iterator[str]:
    tree = ast.parse(_file_of(root, module).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        for name in names:
            if name.partition(".")[0] in ROOMS and _exists(root, name):
                yield name


def _path_of(root: Path, module: str) -> Path:
    """Return where a module is, without its ending: an installation has its rooms inside of the package `pyddmq`."""
    installed = root.name == "_rooms" and module.partition(".")[0] == "pyddmq"
    return (root.parents[1] if installed else root) / module.replace(".", "/")


def _name_in(root: Path, module: str) -> str:
    name = module.replace(".", "/")
    return f"{name}/__init__.py" if _path_of(root, module).is_dir() else f"{name}.py"


def _exists(root: Path, module: str) -> bool:
    path = _path_of(root, module)
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def _file_of(root: Path, module: str) -> Path:
    path = _path_of(root, module)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _put(package: zipfile.ZipFile, name: str, text: str) -> None:
    entry = zipfile.ZipInfo(name, _MOMENT)
    entry.compress_type = zipfile.ZIP_DEFLATED
    package.writestr(entry, text)
