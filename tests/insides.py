"""What tests see behind a public face, each in one place."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from broker.consumer.concurrent import ConcurrentWork
from proxy.node.node import Node
from proxy.node.opened import Opened
from upstream.delivery.group import ConsumerGroup


def most_kept(thing: object) -> int:
    """Entries of the largest table that an object has."""
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    parts = [getattr(thing, name, None) for name in (*slots, *getattr(thing, "__dict__", ()))]
    return max((len(part) for part in parts if isinstance(part, Sized) and not isinstance(part, str)), default=0)


def opened_of(node: Node) -> Opened:
    """What a node that was started has open."""
    assert node.opened is not None, "it was started"
    return node.opened


def transport_behind(connection: Any) -> Any:
    """The transport of a connection of a node."""
    return connection._transport


def pipe_from(client: Any) -> Any:
    """What is on its way from the node to a simulated client."""
    return client.transport._peer._pipe


def is_read(connection: Any) -> bool:
    """Whether a node reads from a connection."""
    return bool(connection._reading)


def place_of(group: ConsumerGroup, topic: str = "t") -> Any:
    """What a group has of one topic: its subscription and its actions."""
    return group._slots[topic]


def buffer_of(group: ConsumerGroup) -> Any:
    """The bodies that a group keeps."""
    return group._buffer


def is_writing_files(store: Any) -> bool:
    """Whether a file write beside the loop is under way."""
    return store.file_writes._writing is not None


def stream_of(client: Any) -> Any:
    """What a blocking client reads and writes."""
    return client._connection._stream


def leaving_of(work: ConcurrentWork) -> Any:
    """Messages of a queue that are on their way to a retry or the dead letters, by offset."""
    return work._leaving


def unfinished_of(work: ConcurrentWork) -> Any:
    """Offsets of a queue that were read and are not finished."""
    return work._unfinished


def journal_of(node: Any) -> Any:
    """What a node's acks are written to."""
    return ack_writer_of(node)._journal


def ack_writer_of(node: Any) -> Any:
    """What writes a node's acks."""
    return node.progress._writer
