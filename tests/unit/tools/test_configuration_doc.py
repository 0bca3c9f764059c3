"""The commented example and the generated page hold every key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conf.base import Model
from conf.foreign import FOREIGN, SPELLINGS
from conf.models import GroupConfig, SubscriptionConfig, TopicConfig
from conf.sections.node import NodeConfig
from conf.sentences import keys_of
from conf.yaml_tree import Mapping, Sequence, parse

ROOT = Path(__file__).parents[3]


def keys_in(node: object) -> set[str]:
    """Return all keys of a tree, at every depth."""
    if isinstance(node, Mapping):
        return set(node.entries).union(*(keys_in(value) for _, value in node.entries.values()))
    if isinstance(node, Sequence):
        return set().union(*(keys_in(item) for item in node.items))
    return set()


@pytest.mark.parametrize("model", [NodeConfig, TopicConfig, GroupConfig, SubscriptionConfig])
def test_reference_yaml_shows_every_key(model: type[Model]) -> None:
    """conf/reference.yaml is a commented example of all keys (a loader test loads it)."""
    shown = keys_in(parse((ROOT / "conf" / "reference.yaml").read_text(), "reference.yaml"))

    assert set(keys_of(model)) <= shown


def test_reference_yaml_shows_the_defaults() -> None:
    """Where the comment names no other default, the value shown is the default."""
    tree = parse((ROOT / "conf" / "reference.yaml").read_text(), "reference.yaml")
    assert isinstance(tree, Mapping)
    node = tree.entries["node"][1]
    assert isinstance(node, Mapping)
    defaults = NodeConfig().model_dump(by_alias=True)

    assert {key: getattr(value, "value", None) for key, (_, value) in node.entries.items()} == defaults


# Read through another name, which says what the special values mean.
DERIVED = {
    "max_tps": "tps_max",
    "total_max_tps": "tps_max",
    "max_consume_lag": "consume_lag_max",
    "tags": "wanted_tags",
    "queues": "queue_count",
    "ack_log": "ack_log_one_in",
}
# Kept for lag reports, as their descriptions say.
FOR_REPORTS = {"alarm_group", "enable_alarm", "delay_time_threshold", "committed_lag_threshold"}


@pytest.mark.parametrize("model", [NodeConfig, TopicConfig, GroupConfig, SubscriptionConfig])
def test_every_setting_is_read_by_the_product(model: type[Model]) -> None:
    """No key is accepted that nothing looks at."""
    rooms = [ROOT / room for room in ("broker", "upstream", "actions", "proxy")]
    code = "\n".join(path.read_text() for room in rooms for path in room.rglob("*.py"))
    unread = {
        name
        for name in model.model_fields
        if name not in FOR_REPORTS and not re.search(rf"\.{DERIVED.get(name, name)}\b", code)
    }

    assert not unread


def test_foreign_fields_are_not_fields_of_the_models() -> None:
    """A name is either used or listed as not used, and suggested spellings exist."""
    for model, fields in FOREIGN.items():
        assert not set(fields) & set(keys_of(model))
    known = {key for model in FOREIGN for key in keys_of(model)}
    assert {word for words in SPELLINGS.values() for word in words.split(" or ")} <= known
