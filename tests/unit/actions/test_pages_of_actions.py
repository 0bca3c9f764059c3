"""The examples of docs/actions-transform.md and docs/actions-script.md do what the pages say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from actions.script.script import ScriptMessage
from conf.models import SubscriptionConfig
from pyddmq.actions import Context, Job
from tests.unit.upstream_world import Client, World

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str, language: str) -> list[str]:
    """Texts of a page's blocks in one language."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def first_group(page: str) -> World:
    """Make the group of a page's first block."""
    group = yaml.safe_load(blocks(page, "yaml")[0])["groups"][0]
    SubscriptionConfig.model_validate(group["topics"][0])
    return World({**group["topics"][0], "topic": "t"}, queues=1)


def test_transit_of_the_page_makes_what_it_says() -> None:
    """Body and result stand below the YAML."""
    text = (DOCS / "actions-transform.md").read_text(encoding="utf-8")
    said = re.search(r"Of `(\{.*?\})` a client gets `(\{.*?\})`\.", text)
    assert said is not None
    made = first_group("actions-transform.md")
    made.publish(None, body=said[1].encode())
    jobs = made.pull_all(Client())
    [(_, (view, begin, end, _, _))] = made.generation(jobs[0]).sort_out(jobs, 1 << 20).messages
    assert bytes(view[begin:end]).decode() == said[2]


def test_filter_of_the_page_lets_large_orders_through() -> None:
    """And no others."""
    pytest.importorskip("cel_expr_python")
    made = first_group("actions-script.md")
    for body in ({"amount": 1000, "country": "NL"}, {"amount": 1, "country": "NL"}, {"amount": 1000, "country": "FR"}):
        made.publish(None, body=body)
    made.publish(None, body={"amount": 2000, "country": "DE", "test": 1})
    assert [job.offset for job in made.pull_all(Client())] == [0]


def test_function_of_the_page_runs() -> None:
    """It totals an order, and lets those of test users fall."""
    names: dict[str, Any] = {}
    exec(blocks("actions-script.md", "python")[0], names)
    order = {"user": "u1", "lines": [{"price": 2}, {"price": 3}]}
    message = ScriptMessage(cast("Job", None), order, cast("Context", None))
    assert names["enrich"](message) is True
    assert message.data["total"] == 5
    assert names["enrich"](ScriptMessage(cast("Job", None), {"user": "test-1"}, cast("Context", None))) is False
