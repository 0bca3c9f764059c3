"""`python -m tests.crash --kills N --seed S`: one campaign, its table, and the folder kept when it fails.

`--sdks` has the clients behave as DDMQ's own libraries do, with `--messages` in all; `--numbered` has them number what
they send, so that nothing is stored twice, and `--own-producer` sends by the project's own client.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.crash.campaigns import run_campaign
from tests.crash.sdk_campaign import run_sdks

PREFIX = "pyddmq-crash-"


def main() -> int:
    """Run one campaign; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-strace", action="store_true", help="kill by the node's own disk instead of strace")
    parser.add_argument("--sdks", action="store_true", help="clients that behave as DDMQ's libraries do")
    parser.add_argument("--messages", type=int, default=30_000, help="with --sdks: how many are sent")
    parser.add_argument(
        "--own-producer", action="store_true", help="with --sdks: send them by the project's own client"
    )
    parser.add_argument("--numbered", action="store_true", help="with --sdks: producers number what they send")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        try:
            if options.sdks:
                return _sdks(Path(name), options)
            outcome = run_campaign(Path(name), options.seed, options.kills, strace=False if options.no_strace else None)
        except AssertionError as error:
            kept = Path(tempfile.mkdtemp(prefix=PREFIX)) / "evidence"
            Path(name).rename(kept)
            Path(name).mkdir()
            print(f"{error}\nseed {options.seed}; data and log of the node: {kept}", file=sys.stderr)
            return 1
    print(outcome.table())
    return 0


def _sdks(folder: Path, options: argparse.Namespace) -> int:
    """Run a campaign of imitated libraries; 1 when a promise was broken."""
    account = run_sdks(
        folder,
        seed=options.seed,
        messages=options.messages,
        kills=options.kills,
        own_producer=options.own_producer,
        numbered=options.numbered,
    )
    print("\n".join(account.lines()))
    if account.faults or (options.numbered and account.duplicates):
        raise AssertionError("a promise was broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
