"""Looking through a topic's log: its partitions one after the other, each by offset, up to a number of bytes.

A scan belongs to no group and commits nothing. It ends after so many bytes or records, and says where the next one
continues.
"""

from __future__ import annotations

from collections.abc import Mapping

from upstream.kafka.link import KafkaFailure, KafkaRecord, ScanFound, TopicScan

SCAN_SECONDS = 10.0
"""A scan that takes longer ends with what it has."""


def partitions_of_scan(scan: TopicScan, count: int) -> list[int]:
    """Return the partitions that are looked at of a topic that has so many. Raises KafkaFailure: one is missing."""
    if scan.partition is None:
        return list(range(count))
    if scan.partition >= count:
        text = f"topic {scan.topic} has no partition {scan.partition}, only 0 to {count - 1}"
        raise KafkaFailure("UNKNOWN_PARTITION", text)
    return [scan.partition]


class ScanProgress:
    """How far one scan is.

    Args:
        scan: What is looked for.
        bounds: Of each partition, the first offset that is looked at and the end.
    """

    def __init__(self, scan: TopicScan, bounds: Mapping[int, tuple[int, int]]) -> None:
        self._scan = scan
        self._all = bounds
        begins = {each: max(low, scan.offset, scan.offsets.get(each, 0)) for each, (low, _) in bounds.items()}
        self._bounds = {each: (begins[each], end) for each, (_, end) in bounds.items() if begins[each] < end}
        self._reached = begins
        self._found: list[KafkaRecord] = []
        self._bytes = 0
        partition, offset = scan.begin
        left = [each for each in sorted(self._bounds) if each > partition]
        if partition in self._bounds and offset < self._bounds[partition][1]:
            left.insert(0, partition)
        self._left = left
        self._at = self._first(offset if left[:1] == [partition] else 0)

    @property
    def place(self) -> tuple[int, int] | None:
        """Partition and offset to be read next; None: the scan has ended."""
        is_full = len(self._found) >= self._scan.count_max or self._bytes >= self._scan.bytes_max
        return None if is_full or not self._left else (self._left[0], self._at)

    def take(self, record: KafkaRecord, weight: int) -> None:
        """Look at the next record of the partition that is read."""
        end = self._bounds[record.partition][1]
        if record.offset < end:
            self._bytes += weight
            if self._scan.matches(record):
                self._found.append(record)
            self._at = record.offset + 1
        if record.offset + 1 >= end:
            self.end()

    def end(self) -> None:
        """Note that nothing more is in the partition that is read."""
        self._reached[self._left.pop(0)] = self._at
        self._at = self._first(0)

    def _first(self, offset: int) -> int:
        return max(offset, self._bounds[self._left[0]][0]) if self._left else 0

    def result(self) -> ScanFound:
        """Return what was found by now."""
        total = sum(end - low for low, end in self._bounds.values())
        if not self._left:
            return ScanFound(self._found, None, 1.0, self._all, self._reached)
        reached = {**self._reached, self._left[0]: self._at}
        left = sum(self._bounds[each][1] - self._bounds[each][0] for each in self._left)
        left -= self._at - self._bounds[self._left[0]][0]
        return ScanFound(self._found, (self._left[0], self._at), 1.0 - left / total, self._all, reached)
