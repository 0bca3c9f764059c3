"""docs/what-happens.md and docs/limits.md: what they name exists, and what they say of bounds is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

from broker.deduplication import window
from broker.format import record
from broker.format.properties import PROPERTIES_BYTES_MAX
from broker.queues import topics
from broker.retry.dead_letter import REASON_CHARS_MAX
from broker.scheduled.delay import levels
from broker.scheduled.recurring import loops
from conf import NodeConfig
from conf.base import GROUP_BYTES_MAX, TOPIC_BYTES_MAX
from conf.sections.kafka import KafkaClusterConfig, KafkaWaitingConfig
from proxy.operate.attention.kinds import KINDS
from proxy.port.connection import CONNECTION_BYTES
from proxy.wire import limits
from tests.unit.project.test_docs_promises import _names
from upstream.budget import JOB_BYTES

ROOT = Path(__file__).parents[3]
TROUBLES = (
    "the node is killed",
    "the power goes",
    "the disk is full",
    "the disk dies",
    "the consumer dies",
    "the consumer answers twice",
    "a message always fails",
    "a key is stuck",
    "the clock steps",
    "a topic is deleted",
    "the producer sends again",
    "the network cuts",
)


def rows(page: str, columns: int) -> list[list[str]]:
    """Cells of a page's tables that have so many columns, headings left out."""
    found = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs" / page).read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| ---")
    ]
    return [row for row in found if len(row) == columns]


def test_each_trouble_has_a_row_that_says_all_of_it() -> None:
    """No cell is empty, and those that everybody asks about are there."""
    table = rows("what-happens.md", 4)[1:]
    assert all(cell for row in table for cell in row)
    whens = [row[0] for row in table]
    assert not [trouble for trouble in TROUBLES if not any(trouble in when for when in whens)]


def test_each_trouble_has_a_test_that_exists() -> None:
    """docs/promises.md names one for each row: a row without proof is a hope."""
    proofs = {row[0]: row[1] for row in rows("promises.md", 2)}
    for row in rows("what-happens.md", 4)[1:]:
        [trouble] = re.findall(r"\*\*(.+?)\*\*", row[0])
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", proofs[trouble])
        assert named, trouble
        assert not [f"{path}::{name}" for path, name in named if name not in _names(ROOT / path)]


def test_findings_that_are_named_are_findings() -> None:
    """What the page says to look for exists."""
    named = {
        name
        for row in rows("what-happens.md", 4)[1:]
        for text in re.findall(r"findings? ((?:`\w+`(?:, )?)+)", row[3])
        for name in re.findall(r"`(\w+)`", text)
    }
    assert len(named) > 8
    assert named <= KINDS.keys()


def test_limits_page_has_the_defaults_of_the_models() -> None:
    """Every row with a setting says its default."""
    defaults = NodeConfig().model_dump(by_alias=True)
    said = {row[1].strip("`"): row[2] for row in rows("limits.md", 4) if row[1].startswith("`")}
    assert len(said) > 10
    assert said == {name: f"{defaults[name]:,}" for name in said}


def test_limits_page_has_the_bounds_of_the_code() -> None:
    """Every fixed bound is the constant that is compared with."""
    said = dict(row for row in rows("limits.md", 2) if row[0] not in ("what", ""))
    assert said["bytes of a topic's name"] == str(TOPIC_BYTES_MAX)
    assert said["bytes of a group's name"] == str(GROUP_BYTES_MAX)
    assert said["queues of a topic"] == f"{topics.QUEUES_MAX:,}"
    assert said["bytes of a message's properties, with key and tag"] == f"{PROPERTIES_BYTES_MAX:,}"
    assert said["messages of a batch"].startswith(
        f"{limits.MESSAGES_MAX:,} in a frame; {record.BATCH_MEMBERS_MAX:,} in the store"
    )
    assert said["delay levels"] == str(levels.LEVELS_MAX)
    assert said["missed deliveries of a recurring message that are made up for"] == f"{loops.MISSED_MAX:,}"
    assert said["characters of a dead letter's reason"] == str(REASON_CHARS_MAX)
    assert said["a connection"].startswith(f"{CONNECTION_BYTES // 1024} KiB")
    assert said["an unfinished message of a group (waiting, in work or out)"].startswith(str(JOB_BYTES))
    assert said["a receipt that a repeated send is answered with"].endswith(f"at most {window.RECEIPTS_MAX:,} of them")


def test_limits_page_has_the_defaults_of_kafka() -> None:
    """A limit of a cluster, or of its waiting messages, is shown with its default."""
    cluster = KafkaClusterConfig(bootstrap_servers="kafka:9092").model_dump(by_alias=True)
    defaults = cluster | {
        f"waiting.{name}": value for name, value in KafkaWaitingConfig().model_dump(by_alias=True).items()
    }
    said = dict(re.findall(r"^`([\w.]+)`, ([\d,]+)", "\n".join(row[1] for row in rows("limits.md", 3)), re.MULTILINE))
    assert len(said) > 4
    assert said == {name: f"{defaults[name]:,}" for name in said}
