"""What the generators of faults have tried: each fault, with what was under way and in which state the node was.

Every campaign calls `tried` when it makes a fault; with `PYDDMQ_TRIED=FILE` each call is a line of that file. Then
`python -m tests.tried FILE...` adds the files to `tests/tried.json`, and `python -m tools.docs` makes a page of it.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import NamedTuple

SUM = Path(__file__).parent / "tried.json"
NOTHING = "nothing"


class Tried(NamedTuple):
    """A fault in a state during an operation."""

    campaign: str
    operation: str
    state: str
    fault: str


def tried(campaign: str, fault: str, *, operations: Iterable[str], states: Iterable[str]) -> None:
    """Note a fault with all that was under way, and all that can be said of the node."""
    path = os.environ.get("PYDDMQ_TRIED")
    if path:
        during, within = list(operations) or [NOTHING], list(states) or [NOTHING]
        lines = [json.dumps(Tried(campaign, *each, fault)) + "\n" for each in product(during, within)]
        # One write, which other processes' writes do not break into.
        with Path(path).open("ab", buffering=0) as file:
            file.write("".join(lines).encode())


def vocabulary() -> dict[str, dict[str, list[str]]]:
    """Return operations, states and faults that each campaign knows, whether they were tried together or not."""
    from tests.crash.moments import Phase
    from tests.crash.outcome import CAUGHT
    from tests.fuzz.targets import TARGETS
    from tests.hostile.attacker import KINDS
    from tests.kafka.chaos import FAULTS, UNDER_WAY
    from tests.lifecycle.kills import FAULTS as ENDS
    from tests.lifecycle.kills import row_names
    from tests.simulation.kafka import under_way as over_kafka
    from tests.simulation.kafka.faults import ALL_FAULTS as KAFKA_FAULTS
    from tests.simulation.plan import ALL_FAULTS
    from tests.simulation.world import OPERATIONS, STATES

    known: dict[str, tuple[Iterable[str], Iterable[str], Iterable[str]]] = {
        "simulation": (OPERATIONS, STATES, ALL_FAULTS),
        over_kafka.CAMPAIGN: (over_kafka.OPERATIONS, over_kafka.STATES, KAFKA_FAULTS),
        "crash": (CAUGHT, Phase, ["at random"]),
        "power loss": (CAUGHT, Phase, ["at random"]),
        "lifecycle": (row_names(), ["at once", "beside the loop"], ENDS),
        "chaos": (UNDER_WAY, ["classic", "consumer"], FAULTS),
        "hostile": (["producer", "consumer", "admin", "consumerTls"], ["a full node"], KINDS),
        "fuzz": (TARGETS, ["kept", "searched"], ["any bytes"]),
    }
    names = ("operations", "states", "faults")
    return {name: dict(zip(names, map(list, lists), strict=True)) for name, lists in known.items()}


def add(paths: Iterable[Path], found: Counter[Tried]) -> None:
    """Add files that runs have written."""
    for path in paths:
        found.update(Tried(*json.loads(line)) for line in path.read_text().splitlines())


def main(arguments: list[str]) -> int:
    """Add what runs have written to the sum."""
    found: Counter[Tried] = Counter()
    if SUM.exists():
        found.update({Tried(*names): count for *names, count in json.loads(SUM.read_text())["tried"]})
    add(map(Path, arguments), found)
    lines = ",\n".join(f"  {json.dumps([*each, count])}" for each, count in sorted(found.items()))
    SUM.write_text(f'{{"known": {json.dumps(vocabulary())},\n "tried": [\n{lines}\n]}}\n')
    print(f"{SUM}: {len(found)} of {found.total()} tried; `python -m tools.docs` makes the page")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
