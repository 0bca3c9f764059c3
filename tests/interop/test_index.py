"""Index files go both ways: RocketMQ finds messages by ours, and this broker by RocketMQ's."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path
from random import Random

import pytest

from broker.options import StoreOptions
from broker.query import by_key, by_unique_key
from broker.runtime.disk import RealDisk
from broker.store import Store
from broker.tools.interchange import adopted
from tests.interop.conftest import Surroundings
from tests.interop.contents import OPTIONS, QUEUES, open_store, permits, read, write_all
from tests.interop.rocketmq import Client, Message
from tests.interop.sides import copied, settings_for
from tests.interop.test_their_store import foreign_settings, requests

pytestmark = pytest.mark.long

TOPIC = "permits"
LIMIT = 64
KEYS_ASKED = 12
MESSAGES = 4000
SENT_THERE = 200


def ours(store: Store, key: str) -> list[int]:
    """Commit-log offsets that our query finds, all of it by the index."""
    query = by_key(store, TOPIC, key, limit=LIMIT).run()
    assert not query.unsearched
    return sorted(message.physical for message in query.found)


def some(messages: list[Message]) -> list[Message]:
    """A few of them, from all over the log."""
    return Random(1).sample(messages, KEYS_ASKED)


def assert_found_there(client: Client, store: Store, messages: list[Message]) -> None:
    """RocketMQ's query by key and by unique key finds what ours does."""
    for each in some(messages):
        found = client.query(TOPIC, key=each.key, limit=LIMIT)
        assert [message.physical for message in found] == ours(store, each.key)
        assert each.physical in [message.physical for message in found]
        assert client.view(TOPIC, each.unique_key) == each
        [message] = by_unique_key(store, TOPIC, each.unique_key).run().found
        assert message.physical == each.physical


def test_rocketmq_queries_by_our_index_and_writes_on(rocket: Surroundings) -> None:
    """Several index files of ours answer RocketMQ's own queries; what it adds is found here afterwards."""
    root = rocket.folder / "store"
    store = open_store(root)
    sent = list(itertools.islice(permits(), MESSAGES))
    # A copy of each, so that entries fill two index files and reach into a third.
    write_all(store, sent + sent + sent[: OPTIONS.index_entries // 4])
    store.close()
    assert len(list((root / "index").iterdir())) >= 2
    copy = copied(root)
    store = open_store(root)
    _, messages = read(store, TOPIC)
    with rocket.broker("broker", settings_for(copy)) as broker, rocket.client() as client:
        assert_found_there(client, store, messages)
        for _, request in requests(sent[:SENT_THERE], sizes=(1,)):
            client.ask(**request)
        broker.stop()
    store.close()
    store = open_store(copy)
    _, later = read(store, TOPIC)
    assert len(later) == len(messages) + SENT_THERE
    for each in some(later[-SENT_THERE:]) + some(later):
        assert each.physical in ours(store, each.key) or len(ours(store, each.key)) == LIMIT
        assert [found.physical for found in by_unique_key(store, TOPIC, each.unique_key).run().found] == [each.physical]
    store.close()


def test_our_queries_use_rocketmqs_index(rocket: Surroundings) -> None:
    """Files that RocketMQ wrote are believed as they are, and lead to the messages that its own client finds."""
    root = rocket.folder / "store"
    with rocket.broker("broker", foreign_settings(root, sums=False)) as broker, rocket.client() as client:
        client.make_topic(broker, TOPIC, QUEUES)
        for _, request in requests(list(itertools.islice(permits(), 400)), sizes=(1,)):
            client.ask(**request)
        request = {"do": "send", "topic": TOPIC, "queue": 1, "messages": [
            {"key": "two words", "tags": "", "properties": {}, "body": base64.b64encode(b"x").decode()}]}  # fmt: skip
        client.ask(**request)
        _, messages = client.read(TOPIC)
        theirs = {each.key: client.query(TOPIC, key=each.key, limit=LIMIT) for each in some(messages)}
        [worded] = client.query(TOPIC, key="words", limit=LIMIT)
        broker.stop()
    before = index_bytes(root)
    assert before
    store = open_store(root, adopted(str(root), StoreOptions(), disk=RealDisk()))
    # Nothing was made anew, and nothing is left to read but the record that the position stands on.
    assert [file.name for file in store.index.files] == sorted(before)
    assert all(start >= messages_end(messages) for start, _ in store.index.missing)
    for key, found in theirs.items():
        assert ours(store, key) == [message.physical for message in found]
    assert ours(store, "words") == ours(store, "two") == [worded.physical]
    for each in some(messages):
        assert [found.physical for found in by_unique_key(store, TOPIC, each.unique_key).run().found] == [each.physical]
    store.close()


def messages_end(messages: list[Message]) -> int:
    """Commit-log offset of the last of them."""
    return max(message.physical for message in messages)


def index_bytes(root: Path) -> dict[str, bytes]:
    """Content of the index files, by name."""
    return {path.name: path.read_bytes() for path in (root / "index").iterdir()}
