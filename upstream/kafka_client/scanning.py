"""Looks through a topic in a thread of its own, by a consumer that is assigned partitions and commits nothing."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from broker.runtime.seams import Clock
from upstream.kafka.link import KafkaFailure, KafkaPartition, ScanDone, ScanFound, TopicScan
from upstream.kafka.scan import SCAN_SECONDS, ScanProgress, partitions_of_scan
from upstream.kafka_client.lookups import ends_of, offsets_at, partitions_of
from upstream.kafka_client.package import KafkaUnusable, confluent, failure_of
from upstream.kafka_client.posting import Post
from upstream.kafka_client.records import record_of, weight_of
from upstream.kafka_client.settings import Settings

_POLL_SECONDS = 0.1
_BATCH = 100
_NOTHING = ScanFound([], None, 0.0)


class LogScanner:
    """One scan.

    Args:
        client_id: How brokers name it in their logs.
        scan: What is looked for.
        done: Called in the loop.
        settings: Of the cluster; it reads committed records only.
        post: The way to the loop.
        clock: Bounds how long it takes.
    """

    def __init__(
        self, client_id: str, scan: TopicScan, done: ScanDone, *, settings: Settings, post: Post, clock: Clock
    ) -> None:
        self._client_id = client_id
        self._scan = scan
        self._done = done
        self._settings = settings
        self._post = post
        self._clock = clock
        self._package = confluent()
        self._refusals = frozenset(
            (
                self._package.KafkaError.TOPIC_AUTHORIZATION_FAILED,
                self._package.KafkaError.UNKNOWN_TOPIC_OR_PART,
                self._package.KafkaError._UNKNOWN_PARTITION,
                self._package.KafkaError._UNKNOWN_TOPIC,
            )
        )
        self._stopped = threading.Event()
        self._trouble: Any = None
        thread = threading.Thread(target=self._work, daemon=True, name=f"kafka-scan-{settings.cluster}")
        thread.start()

    def stop(self) -> None:
        """End soon; `done` is called with what was found."""
        self._stopped.set()

    def _work(self) -> None:
        failure, found = None, _NOTHING
        try:
            consumer = self._settings.reader(self._client_id)
            try:
                found = self._look_through(consumer)
            finally:
                with contextlib.suppress(RuntimeError):
                    consumer.close()
        except KafkaFailure as refused:
            failure = refused
        except KafkaUnusable as error:
            failure = KafkaFailure("NO_CLIENT", str(error))
        except self._package.KafkaException as error:
            failure = failure_of(error)
        except Exception as error:
            # Without an answer its caller would wait forever.
            failure = KafkaFailure("FAIL", f"the scan failed: {error!r}")
        self._post(self._done, failure, found)

    def _look_through(self, consumer: Any) -> ScanFound:
        progress = ScanProgress(self._scan, self._bounds(consumer))
        until = self._clock.monotonic() + SCAN_SECONDS
        assigned = -1
        looked_at = False
        while (place := progress.place) is not None and not self._stopped.is_set():
            if self._clock.monotonic() >= until:
                if not looked_at:
                    raise failure_of(self._trouble) if self._trouble is not None else _silent(place[0])
                break
            if place[0] != assigned:
                assigned = place[0]
                consumer.assign([self._package.TopicPartition(self._scan.topic, *place)])
            looked_at = self._read(consumer, progress, assigned) or looked_at
        return progress.result()

    def _read(self, consumer: Any, progress: ScanProgress, assigned: int) -> bool:
        """Look at what comes next of the assigned partition; whether anything came."""
        self._settings.give_password(consumer)
        came = False
        for message in consumer.consume(_BATCH, _POLL_SECONDS):
            place, error = progress.place, message.error()
            if place is None or place[0] != assigned or self._stopped.is_set():
                break
            if error is None:
                record = record_of(message)
                progress.take(record, weight_of(record))
                came = True
            elif error.code() == self._package.KafkaError._PARTITION_EOF:
                progress.end()
                came = True
            elif error.code() in self._refusals:
                raise failure_of(error)
            else:
                self._trouble = error
        return came

    def _bounds(self, consumer: Any) -> dict[int, tuple[int, int]]:
        scan = self._scan
        count = partitions_of(consumer, scan.topic)
        if isinstance(count, KafkaFailure):
            raise count
        places = [KafkaPartition(scan.topic, each) for each in partitions_of_scan(scan, count)]
        bounds = ends_of(consumer, places)
        begins = {} if scan.from_ms is None else offsets_at(consumer, dict.fromkeys(places, scan.from_ms))
        ends = {} if scan.to_ms is None else offsets_at(consumer, dict.fromkeys(places, scan.to_ms))
        found = {}
        for place, (low, end) in bounds.items():
            begin = begins.get(place, low)
            before = ends.get(place, -1)
            found[place.partition] = end if begin < 0 else max(begin, low), end if before < 0 else min(before, end)
        return found


def _silent(partition: int) -> KafkaFailure:
    return KafkaFailure("TIMED_OUT", f"no record of partition {partition} came within {SCAN_SECONDS:.0f} s")
