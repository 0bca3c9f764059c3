"""What the forgetful file system says of the ack journal at a cut."""

from __future__ import annotations

from tests.powerloss.journal_trace import JournalTrace

JOURNAL, LOG = "/data/pyddmq/acks/0000000000000007.acks", "/data/commitlog/00000000000000000000"


class Now:
    """Seconds that a test sets."""

    seconds = 10.0

    def __call__(self) -> float:
        return self.seconds


def test_oldest_unsynced_write_counts_until_it_is_synced() -> None:
    """A sync covers what was written before it; other files, and the space claimed ahead, do not matter."""
    now = Now()
    trace = JournalTrace(now)
    for seconds, path in ((10.0, JOURNAL), (10.01, LOG), (10.02, JOURNAL)):
        now.seconds = seconds
        trace.written(path)
    trace.synced(LOG)
    assert trace.taken() == (10.0, 0)
    trace.written(JOURNAL)
    trace.synced(JOURNAL)
    now.seconds = 10.05
    trace.written("/data/pyddmq/acks/spare")
    now.seconds = 10.06
    assert trace.taken() == (10.06, 0)


def test_node_that_works_on_while_an_entry_is_old_is_seen() -> None:
    """Each write beyond the 100 ms counts, the most of any stretch is told; a node that does nothing is only slow."""
    now = Now()
    trace = JournalTrace(now)
    for stretch in (3, 1):
        trace.written(JOURNAL)
        now.seconds += 0.2
        for _ in range(stretch):
            trace.written(LOG)
        trace.synced(JOURNAL)
    trace.written(JOURNAL)
    now.seconds += 60
    since, late = trace.taken()
    assert (round(now.seconds - since), late) == (60, 3)
    assert trace.taken() == (now.seconds, 0)


def test_entries_of_a_new_segment_count_until_its_name_is_durable_too() -> None:
    """A cut takes a segment whose folder was not synced, whatever was synced of the file itself."""
    now = Now()
    trace = JournalTrace(now)
    trace.named(JOURNAL)
    trace.written(JOURNAL)
    now.seconds = 10.05
    trace.synced(JOURNAL)
    assert trace.taken() == (10.0, 0)
    trace.named(JOURNAL)
    trace.written(JOURNAL)
    trace.synced(JOURNAL)
    trace.folder_synced("/data/pyddmq/acks")
    assert trace.taken() == (10.05, 0)
    trace.named(JOURNAL)
    trace.written(JOURNAL)
    trace.synced(JOURNAL)
    now.seconds = 10.08
    trace.written(JOURNAL)
    trace.folder_synced("/data/pyddmq/acks")
    now.seconds = 10.09
    assert trace.taken() == (10.08, 0)


def test_folder_that_is_synced_before_the_file_keeps_its_entries_counted() -> None:
    """And a segment that became the spare counts no more."""
    now = Now()
    trace = JournalTrace(now)
    trace.named(JOURNAL)
    trace.written(JOURNAL)
    now.seconds = 10.04
    trace.folder_synced("/data/pyddmq/acks")
    trace.folder_synced("/data/commitlog")
    assert trace.taken() == (10.0, 0)
    trace.named(JOURNAL)
    trace.written(JOURNAL)
    trace.gone(JOURNAL)
    now.seconds = 10.09
    assert trace.taken() == (10.09, 0)
