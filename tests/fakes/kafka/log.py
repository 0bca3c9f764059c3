"""One partition of a Kafka in memory, as its leader has it."""

from __future__ import annotations

from upstream.kafka.link import KafkaPartition, KafkaRecord


class SimPartition:
    """One partition, whoever reads it.

    Attributes:
        records: What may be read, by offset; that of open transactions is not among it.
        low: First offset that is kept.
        high: Offset of the next record.
        epoch: How often it had another leader, as each start of its broker gives it one, and each unclean election.
    """

    def __init__(self, place: KafkaPartition) -> None:
        self.place = place
        self.records: dict[int, KafkaRecord] = {}
        self.low = 0
        self.high = 0
        self.epoch = 0
        self._leaders = [(0, 0)]
        """Epochs by which something was written, each with its first offset."""
        self._open: dict[str, list[KafkaRecord]] = {}

    @property
    def stable(self) -> int:
        """The end, as who reads committed records alone sees it: nothing of or behind an open transaction."""
        return min([self.high, *(records[0].offset for records in self._open.values())])

    def append(self, record: KafkaRecord, transaction: str | None = None) -> None:
        """Put a record at or behind the end; one of a transaction is seen once that is committed."""
        assert record.offset >= self.high, "an offset is given once"
        if self._leaders[-1][1] != self.epoch:
            self._leaders.append((record.offset, self.epoch))
        if transaction is None:
            self.records[record.offset] = record
        else:
            self._open.setdefault(transaction, []).append(record)
        self.high = record.offset + 1

    def end(self, transaction: str, *, commit: bool) -> list[KafkaRecord]:
        """End a transaction here; its marker takes an offset. Returns what may be read by that."""
        records = self._open.pop(transaction, None)
        if records is None:
            return []
        self.high += 1
        if not commit:
            return []
        self.records.update({each.offset: each for each in records})
        return records

    def read(self, start: int, count: int) -> list[KafkaRecord]:
        """Return so many records from an offset on, by rising offset."""
        stable = self.stable
        return [self.records[offset] for offset in sorted(self.records) if start <= offset < stable][:count]

    def end_of(self, epoch: int) -> int:
        """Return up to where records are of a leader's epoch or earlier ones; of one that never was, the beginning."""
        if epoch > self.epoch:
            return self.low
        return next((offset for offset, each in self._leaders if each > epoch), self.high)

    def compact(self) -> list[KafkaRecord]:
        """Keep the last record of each key alone, and all without one; returns what went."""
        latest = {self.records[offset].key: offset for offset in sorted(self.records)}
        gone = [each for each in self.records.values() if each.key is not None and latest[each.key] != each.offset]
        for each in gone:
            del self.records[each.offset]
        return gone

    def cut(self, high: int) -> None:
        """Lose all from an offset on, as by an unclean election of a leader."""
        for offset in [each for each in self.records if each >= high]:
            del self.records[offset]
        self._open.clear()
        self._leaders = [each for each in self._leaders if each[0] < high] or [(0, 0)]
        self.epoch += 1
        self.high = min(self.high, high)
        self.low = min(self.low, self.high)

    def expire(self, low: int) -> None:
        """Let retention take what is below an offset."""
        self.low = max(self.low, min(low, self.high))
        for offset in [each for each in self.records if each < self.low]:
            del self.records[offset]
