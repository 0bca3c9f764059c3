"""Masks: what operators do not see of a topic's messages."""

from __future__ import annotations

import json

import pytest

from actions.registry import Registry
from conf import ConfigError, loads
from proxy.operate.lookups.masks import MASKED, MessageMasks

MASKS = MessageMasks({"orders": ["$.card.number", "$.items[*].price", "KEYS", "phone"], "plain": []})


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ({"card": {"number": 4111, "type": "v"}}, {"card": {"number": MASKED, "type": "v"}}),
        ({"items": [{"price": 1}, {"n": 2, "price": {}}]}, {"items": [{"price": MASKED}, {"n": 2, "price": MASKED}]}),
        ({"other": "Zürich"}, {"other": "Zürich"}),
        ([1, 2], [1, 2]),
    ],
)
def test_values_of_json_bodies_are_replaced(body: object, shown: object) -> None:
    """All that a path selects, whatever it is; the rest stays."""
    assert json.loads(MASKS.of("orders").body(json.dumps(body).encode())) == shown


@pytest.mark.parametrize(
    "body", [b"4111 is my card", b"\xff\x00", b"{", b"[" * 100_000, b'{"card": {"number": 4111}, "card": {}}']
)
def test_body_that_is_not_json_is_hidden_whole(body: bytes) -> None:
    """A path cannot say where its value is."""
    assert MASKS.of("orders").body(body) == MASKED.encode()
    assert MASKS.of("plain").body(body) == body


def test_path_below_a_masked_value_changes_nothing() -> None:
    """In either order, and of the whole body."""
    for entries in (["$.a", "$.a.b"], ["$.a.b", "$.a"]):
        mask = MessageMasks({"t": entries}).of("t")
        assert json.loads(mask.body(b'{"a": {"b": 1}}')) == {"a": MASKED}
    assert MessageMasks({"t": ["$"]}).of("t").body(b'{"a": 1}') == b'"***"'


def test_properties_are_masked_by_name() -> None:
    """The key too; names themselves are shown."""
    shown = MASKS.of("orders").properties({"KEYS": "customer-7", "phone": "0171", "other": "x"})
    assert shown == {"KEYS": MASKED, "phone": MASKED, "other": "x"}


def test_topics_of_the_node_hide_what_any_topic_hides() -> None:
    """Retries, dead letters and what waits may be of each; a topic that is configured has its own."""
    for name in ("%DLQ%billing", "%RETRY%billing", "rmq_sys_wheel_timer"):
        assert "phone" in MASKS.of(name).names
        assert "$.card.number" in MASKS.of(name).paths
    assert not MASKS.of("plain")


def test_wrong_entries_are_refused() -> None:
    """With what would be right."""
    found = loads("topics: {orders: {mask: [$.a.b, KEYS]}}\n", actions=Registry())
    assert found.config.topics["orders"].mask == ["$.a.b", "KEYS"]
    for entry in ("'$['", "''", '"a\\n"'):
        with pytest.raises(ConfigError, match=r"mask"):
            loads(f"topics: {{orders: {{mask: [{entry}]}}}}\n", actions=Registry())
