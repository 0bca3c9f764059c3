"""Entry point of the command `pyddmq`, and of `python -m pyddmq`.

The file is kept in the language of Python 3.8, so that an interpreter that is too old reads it and says so in a
sentence (exit code 8) in the place of a syntax error; everything else is imported after that check. Where only the
client is installed, that is said in the same way.
"""

from __future__ import annotations

import os
import sys

PYTHON_MIN = (3, 11)
EXIT_WRONG_PYTHON = 8


def python_problem(version: tuple[int, ...]) -> str | None:
    """Say what to do about a Python that is too old.

    Args:
        version: Numbers of the interpreter's version, `(major, minor, ...)`.

    Returns:
        A sentence, or None when the version will do.
    """
    if tuple(version[:2]) >= PYTHON_MIN:
        return None
    return (
        "pyddmq: this is Python {}.{}, and pyddmq needs {}.{} or later. Install a newer Python and make the "
        "environment again: in a checkout `make setup` finds it, elsewhere `python3.11 -m venv .venv` and "
        "`.venv/bin/pip install 'pyddmq[server]'` do.".format(version[0], version[1], *PYTHON_MIN)
    )


def main() -> None:
    """Run the command line of this process and exit with one of the codes of docs/commands.md."""
    problem = python_problem(sys.version_info[:3])
    if problem is not None:
        sys.stderr.write(problem + "\n")
        raise SystemExit(EXIT_WRONG_PYTHON)
    from pyddmq.rooms import ClientAlone, pin

    try:
        pin("the command `pyddmq`")
    except ClientAlone as missing:
        sys.stderr.write(f"pyddmq: {missing}\n")
        raise SystemExit(EXIT_WRONG_PYTHON) from None
    from proxy.cli.app import run

    raise SystemExit(run(sys.argv[1:], leave=os._exit))


if __name__ == "__main__":
    main()
