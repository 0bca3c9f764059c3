"""Runs a command, waits for it and all below it, and prints what they cost: exit code, CPU seconds, most memory in MB.

    python -m bench.child_cost COMMAND...

What outlives its parent, as Spark's Java does for a moment, becomes a child of this process, and is counted.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36


def main(command: list[str]) -> None:
    """Run it; what it writes goes to the standard error output."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    code = subprocess.run(command, stdout=sys.stderr, check=False).returncode
    try:
        while True:
            os.wait()
    except ChildProcessError:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(code, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


if __name__ == "__main__":
    main(sys.argv[1:])
