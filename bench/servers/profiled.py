"""`python -m bench.servers.profiled FILE serve ...`: the command under cProfile, from a SIGUSR1 on until it ends.

So that start, warm-up and preparation are not in the profile, which is written to FILE at the end.
"""

from __future__ import annotations

import cProfile
import signal
import sys


def main() -> None:
    """Run the command that follows the file's name."""
    from pyddmq.__main__ import main as product

    file, *words = sys.argv[1:]
    profiler = cProfile.Profile()
    signal.signal(signal.SIGUSR1, lambda *_: profiler.enable())
    sys.argv = ["pyddmq", *words]
    try:
        product()
    finally:
        profiler.disable()
        profiler.dump_stats(file)


if __name__ == "__main__":
    main()
