"""`python -m tests.interop.writer ROOT SEED`: appends random messages until it is killed.

After each flush the number of messages acknowledged so far is printed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import structlog

from tests.interop.contents import open_store, randoms, write


def main(root: str, seed: str) -> None:
    """Write for ever."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    store = open_store(Path(root))
    messages = randoms(int(seed))
    random = Random(seed)
    count = 0
    while True:
        batch = [next(messages) for _ in range(random.choice((1, 7, 32)))]
        write(store, batch)
        store.checkpoint()
        count += len(batch)
        print(count, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
