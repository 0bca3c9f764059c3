"""Both sides of the interchange: one store as RocketMQ serves it and as this broker reads it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from broker.opening.reading import geometry_of
from broker.options import StoreOptions
from broker.runtime.disk import RealDisk
from broker.tools.interchange import broker_settings, names_of, timer_log_bytes_of
from tests.interop.contents import BODY_BYTES_MAX, OPTIONS, TOPICS, Sent, open_store, read, sent_of
from tests.interop.rocketmq import Client, Message


def settings_for(root: Path) -> dict[str, str]:
    """The broker.conf that the command line prints for a store."""
    geometry = geometry_of(str(root), disk=RealDisk())
    assert geometry is not None
    timer_log_bytes = timer_log_bytes_of(str(root), disk=RealDisk())
    return broker_settings(
        str(root),
        geometry,
        message_bytes_max=BODY_BYTES_MAX,
        names=names_of(str(root), disk=RealDisk()),
        timer_log_bytes=timer_log_bytes,
    )


def by_arrival(messages: list[Message]) -> list[Sent]:
    """What producers sent, in the order of the log."""
    return [sent_of(each) for each in sorted(messages, key=lambda each: each.physical)]


def assert_rolled(messages: Sequence[Message], segment_bytes: int) -> None:
    """Whether they fill three files of the log and reach into a fourth."""
    assert max(each.physical for each in messages) // segment_bytes >= 3


def copied(root: Path) -> Path:
    """Copy a store, so that what is compared with cannot have been changed by RocketMQ."""
    number = sum(1 for _ in root.parent.glob(f"{root.name}-copy-*"))
    return Path(shutil.copytree(root, root.with_name(f"{root.name}-copy-{number}")))


def assert_same(
    client: Client, root: Path, topics: Sequence[str] = TOPICS, options: StoreOptions = OPTIONS
) -> list[Message]:
    """Compare what RocketMQ serves with what stands in our store, record by record; returns all of it."""
    store = open_store(root, options)
    try:
        everything: list[Message] = []
        for topic in topics:
            our_bounds, ours = read(store, topic)
            bounds, messages = client.read(topic, {queue_id: end for queue_id, (_, end) in our_bounds.items()})
            assert bounds == our_bounds, f"{topic}: {bounds} there, {our_bounds} here"
            assert messages == ours
            everything += messages
        return everything
    finally:
        store.close()
