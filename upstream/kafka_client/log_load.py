"""The process that fills the cache of a partition of the waiting topic from its log (`upstream.kafka.waiting.loading`).

The node does its other work meanwhile, and a machine with several processors fills several caches at once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from conf.sections.kafka import KafkaClusterConfig
from upstream.calls.child_process import ChildProcess, own_end
from upstream.kafka.link import Checkpoint, KafkaFailure, KafkaPartition, LogLoaded
from upstream.kafka.waiting.loading import LogLoad
from upstream.kafka_client.package import confluent, failure_of
from upstream.kafka_client.posting import Post
from upstream.kafka_client.records import record_of
from upstream.kafka_client.settings import Settings

MODULE = __name__
_BATCH = 5_000
_WAIT_SECONDS = 1.0
_SILENT_ROUNDS_MAX = 30
_DAMAGED_MAX = 100
_PLACES = threading.BoundedSemaphore(4)
"""Processes of a node at a time: each has up to 150 MB."""


class LoadOrder(NamedTuple):
    """What a process is to do.

    Attributes:
        cluster, config: Of the cluster.
        place: The partition.
        path: Of the file.
        checkpoint: What the file is of; it is read from `low` to the end.
    """

    cluster: str
    config: KafkaClusterConfig
    place: KafkaPartition
    path: str
    checkpoint: Checkpoint


class LogLoader:
    """One process, and the thread that waits for it. `done` is called with the offsets of damaged records."""

    def __init__(self, order: LoadOrder, done: LogLoaded, post: Post) -> None:
        self._order = order
        self._done = done
        self._post = post
        self._stopped = threading.Event()
        threading.Thread(target=self._live, daemon=True, name=f"kafka-load-{order.place.partition}").start()

    def stop(self) -> None:
        """End it soon; `done` is not called."""
        self._stopped.set()

    def _live(self) -> None:
        code, text, damaged = "FAIL", "the process that reads the log has ended", list[int]()
        with _PLACES:
            if self._stopped.is_set():
                return
            try:
                with ChildProcess(MODULE) as child:
                    child.pipe.send(self._order)
                    while not child.pipe.poll(_WAIT_SECONDS):
                        if self._stopped.is_set():
                            return
                    code, text, damaged = child.pipe.recv()
            except EOFError:
                pass
            except OSError as error:
                text = f"{text}: {error}"
        failure = KafkaFailure(code, text) if code else None
        self._post(lambda: None if self._stopped.is_set() else self._done(failure, damaged))


def main() -> None:
    """Load once, as asked over the pipe."""
    with own_end() as pipe, contextlib.suppress(EOFError, OSError):
        order: LoadOrder = pipe.recv()
        code, text, damaged = "", "", list[int]()
        try:
            # A parent that has ended closes its end.
            _load(order, damaged, lambda: pipe.poll(0))
        except confluent().KafkaException as error:
            failure = failure_of(error)
            code, text = failure.code, str(failure)
        except Exception as error:
            code, text = "FAIL", repr(error)
        if code:
            with contextlib.suppress(FileNotFoundError):
                RealDisk().remove(order.path)
        pipe.send((code, text, damaged))


def _load(order: LoadOrder, damaged: list[int], is_stopped: Callable[[], bool]) -> None:
    package, clock = confluent(), SystemClock()
    consumer: Any = Settings(order.cluster, order.config, clock).reader("pyddmq-load")
    cache = LogLoad(order.path, RealDisk(), order.checkpoint)
    position, silent, ended = order.checkpoint.low, 0, False
    consumer.assign([package.TopicPartition(*order.place, position)])

    def note(record: Any) -> None:
        if len(damaged) < _DAMAGED_MAX:
            damaged.append(record.offset)

    while not ended:
        if is_stopped():
            return
        records = []
        for message in consumer.consume(_BATCH, _WAIT_SECONDS):
            if (error := message.error()) is None:
                records.append(record_of(message))
            elif error.code() == package.KafkaError._PARTITION_EOF:
                position, ended = max(position, message.offset()), True
            else:
                raise package.KafkaException(error)
        silent = 0 if records else silent + 1
        if silent > _SILENT_ROUNDS_MAX:
            raise TimeoutError("the cluster sends no records")
        if records:
            cache.append(records, note)
            position = max(position, records[-1].offset + 1)
    consumer.close()
    cache.complete(position, clock.wall_ms())
