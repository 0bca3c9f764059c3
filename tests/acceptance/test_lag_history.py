"""What the history of a real node answers by the command line: error budgets, and the ledger of incidents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import StartNode, command
from tests.acceptance.test_reload_and_stop import wait_for
from tests.patient import Producer

CONFIGURATION = """
topics:
  orders: {queues: 1}
lag: {every: 1s}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [PullServer]}
"""


def test_group_whose_consumer_left_is_in_the_ledger_and_burns_its_budget(start_node: StartNode, tmp_path: Path) -> None:
    """After a reload no client pulls. The ledger says since when, why, and what came before; the budget is used up."""
    node = start_node(configuration=CONFIGURATION)
    with Producer(node.ready["producer"]) as producer:
        producer.send("orders", b"first")
        assert command("pull", "billing", "--consumer", node.ready["consumer"]).code == ExitCode.OK
        changed = CONFIGURATION.replace("{every: 1s}", "{every: 1s, rules: {target: 1s}}")
        (tmp_path / "node.yaml").write_text(changed)
        assert command("reload", *node.admin()).code == ExitCode.OK
        for _ in range(20):
            producer.send("orders", b"left")
    limits = ["--target", "1", "--rule", "stop=2s", "--rule", "absent=1s", "--rule", "floorMessages=0"]
    ledger: list[str | Path] = [
        "lag",
        "incidents",
        "--journal",
        tmp_path / "data",
        "--since",
        "1h",
        "--group",
        "billing",
        *limits,
    ]

    def found() -> list[dict[str, Any]]:
        shown = command(*ledger, "--format", "json", "--cause", "no_consumer")
        assert shown.code == ExitCode.OK, shown.err
        return list(json.loads(shown.out)["incidents"])

    wait_for(lambda: any(each["status"] == "STOP" for each in found()), "the incident")
    [incident] = found()
    assert (incident["group"], incident["topic"], incident["queue"]) == ("billing", "orders", 0)
    assert (incident["to_ms"], incident["peak_lag"], incident["lost"]) == (None, 20, 0)
    assert [each for each in incident["changes"] if "reload" in each]
    text = command(*ledger)
    assert text.code == ExitCode.OK
    assert "no consumer" in text.out
    assert "By month and cause" in text.out
    slo = ["lag", "slo", "--objective", "1s", "--since", "1h", "--at-least", "99.9", "--coverage", "0"]
    for source in (node.admin(), ["--journal", tmp_path / "data"]):
        burnt = command(*slo, *source)
        assert burnt.code == ExitCode.CHECK_FAILED, burnt.err
        assert "Error budget: 0.1 % of the messages of 1 h" in burnt.out
        [kept] = json.loads(command(*slo, *source, "--json").out)["kept"]
        assert kept["budgetLeft"] < 0
        assert [each["windowMs"] for each in kept["burnRates"]] == [3_600_000, 1_800_000, 300_000]
        assert kept["burnRates"][-1]["missed"] >= 20
