"""Compile the accelerators (`broker.runtime.accelerators`) in place: `python compile_accelerators.py`.

Needs Cython, a C compiler and Python's headers. What is missing is said in one line and is no error: the node runs in
Python then. The package's build (`hatch_build.py`) and `make setup` call it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from broker.runtime.accelerators import fingerprint

ROOT = Path(__file__).resolve().parent
ROOMS = ("conf", "broker", "upstream", "actions", "proxy")
_SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
_FLAGS = ("-O3", "-fPIC", "-shared", "-fwrapv", "-fno-strict-aliasing", "-DNDEBUG")


class NotCompiled(Exception):
    """An accelerator cannot be compiled here; says why."""


def sources() -> list[Path]:
    """Return the accelerators' sources."""
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*_accelerator.pyx"))


def target_of(source: Path) -> Path:
    """Return where an accelerator's compiled module belongs."""
    return source.with_name(source.stem + _SUFFIX)


def build() -> Iterator[Path]:
    """Compile what is older than its source; yields each accelerator that is then there.

    Raises:
        NotCompiled: One cannot be compiled; it is not there then.
    """
    _clear()
    shared = [ROOT / "broker" / "runtime" / "accelerator_parts.pxd", Path(__file__)]
    for source in sources():
        target = target_of(source)
        newest = max(path.stat().st_mtime for path in (source, *shared))
        if not target.exists() or target.stat().st_mtime <= newest:
            target.unlink(missing_ok=True)
            _compile(source, target)
        yield target


def _clear() -> None:
    """Remove what was compiled of sources that are gone or have another name now."""
    for room in ROOMS:
        for suffix in ("_accelerator", "_leaf"):
            for path in (ROOT / room).rglob(f"*{suffix}{_SUFFIX}"):
                if not path.with_name(path.name.removesuffix(_SUFFIX) + ".pyx").exists():
                    path.unlink()


def _compile(source: Path, target: Path) -> None:
    try:
        import Cython.Compiler.Main as cython
    except ImportError:
        raise NotCompiled("Cython is not installed") from None
    compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or shutil.which("gcc") or ""]
    if not compiler[0]:
        raise NotCompiled("there is no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        code, built = Path(folder) / "accelerator.c", Path(folder) / "accelerator.so"
        module = ".".join(source.relative_to(ROOT).with_suffix("").parts)
        options = cython.CompilationOptions(output_file=str(code), include_path=[str(ROOT)], language_level=3)
        if cython.compile_single(str(source), options, module).num_errors:
            raise NotCompiled(f"{source.name} has errors")
        mark = f'-DACCELERATOR_SOURCE="{fingerprint(source)}"'
        include = f"-I{sysconfig.get_path('include')}"
        command = [
            *compiler,
            *_FLAGS,
            *os.environ.get("CFLAGS", "").split(),
            mark,
            include,
            str(code),
            "-o",
            str(built),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise NotCompiled(f"the C compiler {compiler[0]} does not start: {error.strerror}") from None
        if done.returncode:
            wrong = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
            raise NotCompiled(f"the C compiler refused {source.name}: {wrong.strip()}")
        # A running node has the old one mapped: the new one takes its name, not its bytes.
        shutil.copy(built, target.with_suffix(".new"))
        target.with_suffix(".new").replace(target)


def main() -> int:
    """Compile, and say in one line what came of it."""
    try:
        count = len(list(build()))
    except NotCompiled as error:
        print(f"accelerators not compiled, the node runs in Python: {error}", file=sys.stderr)
    else:
        print(f"{count} accelerators compiled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
