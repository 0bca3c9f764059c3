"""Messages of stress tests are kept from every pipeline that does not ask for them (R14)."""

from __future__ import annotations

import pytest

from tests.unit.actions.gathering import Ends, world


@pytest.mark.parametrize("actions", [[], ["Async"], ["Json", "Async"], ["Json", "Transit"], ["FormParams"]])
@pytest.mark.parametrize("order_key", [None, "KEY", "$.n"])
@pytest.mark.parametrize("wanted", [False, True])
def test_stress_messages_come_only_where_wanted(actions: list[str], order_key: str | None, wanted: bool) -> None:
    """Whatever ends the pipeline, and wherever its gate stands; what is skipped is finished and counted."""
    needs_json = order_key == "$.n" and "Json" not in actions
    options = {"Transit": {"fields": {"n": "n"}}} if "Transit" in actions else {}
    pipeline = ["Json", *actions] if needs_json else actions
    made = world(*pipeline, options=options, orderKey=order_key, pressureTraffic=wanted)
    for properties in ([], [("isPressureTraffic", "TRUE")], [("isPressureTraffic", "no")]):
        made.publish("k", body={"n": 1}, properties=properties)
    assert len(Ends.ended) == 2 + wanted
    assert made.count("pyddmq_skipped_messages_total", "g", "t", "pressure_traffic") == (not wanted)
    assert made.group_queue().tracker.watermark == 3
