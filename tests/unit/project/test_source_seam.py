"""`upstream/` knows its broker by protocols; only what implements them, and tools on files, know the store."""

from __future__ import annotations

import ast

from tests.unit.project.test_folders import LAYERS
from tests.unit.project.test_house_rules import ROOT
from tests.unit.project.test_import_circles import imported, module_names

KNOW_THE_STORE = ("upstream.embedded", "upstream.tools")
MAY_BE_KNOWN = (
    "broker.runtime", "broker.errors", "broker.views", "broker.opening.opening", "broker.retry.metrics",
    "broker.format.properties", "broker.format.numbers", "broker.scheduled.recurring.occurrence",
    "broker.log.put", "broker.transaction.outcomes", "broker.transaction.settings",
)  # fmt: skip
"""Time, disk, steps, counts and the words for what goes wrong: nothing in which a message could stand.

Reading numbers that peers wrote. Names of properties: what a message of Kafka's is as one of RocketMQ's form does
not depend on a store.
The words for what became of a decision, when halves are checked, and whose a message is: the same over Kafka.
The ids of loops say all there is to know of them, and stand nowhere.
What operators are shown too: plain values that import nothing of the store; upstream's views have their base class.
"""


def stands_in(module: str, places: tuple[str, ...]) -> bool:
    """Whether a module is one of these, or in one."""
    return any(module == each or module.startswith(f"{each}.") for each in places)


def test_only_the_embedded_source_and_tools_know_the_store() -> None:
    """For types neither, and in no function: what groups need of a broker stands in `upstream.source`."""
    modules = module_names()
    found = {
        (module, other)
        for module, file in modules.items()
        if module.startswith("upstream.") and not stands_in(module, KNOW_THE_STORE)
        for other in imported(ast.parse((ROOT / file).read_text(encoding="utf-8")), modules)
        if other.startswith("broker.") and not stands_in(other, MAY_BE_KNOWN)
    }
    assert not found, f"ask for it by a protocol of upstream.source or upstream.queues: {sorted(found)}"


def test_the_seam_stands_below_those_that_deliver() -> None:
    """Whoever delivers is given a source; whoever makes one stands above."""
    height = {name: at for at, names in enumerate(LAYERS["upstream"]) for name in names}
    assert height["queues"] < height["source"] < height["retry"] < height["delivery"] < height["embedded"]
