"""`python -m tests.crash --kills N --seed S`: one campaign, its table, and the folder kept when it fails."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.crash.campaigns import run_campaign

PREFIX = "pyddmq-crash-"


def main() -> int:
    """Run one campaign; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-strace", action="store_true", help="kill by the node's own disk instead of strace")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        try:
            outcome = run_campaign(Path(name), options.seed, options.kills, strace=False if options.no_strace else None)
        except AssertionError as error:
            kept = Path(tempfile.mkdtemp(prefix=PREFIX)) / "evidence"
            Path(name).rename(kept)
            Path(name).mkdir()
            print(f"{error}\nseed {options.seed}; data and log of the node: {kept}", file=sys.stderr)
            return 1
    print(outcome.table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
