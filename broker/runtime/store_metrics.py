"""What the store counts; docs/metrics.md lists it."""

from __future__ import annotations

from broker.runtime.metrics import declare

APPENDED = declare("pyddmq_store_records_appended_total", "Records staged for the commit log")
WRITTEN = declare("pyddmq_store_bytes_written_total", "Bytes written to the commit log")
FLUSHES = declare("pyddmq_store_flushes_total", "Group commits of the commit log")
SYNCS = declare("pyddmq_store_syncs_total", "Group commits that synced the commit log")
REFUSED = declare("pyddmq_store_refused_total", "Appends refused, by reason", ("reason",))
DAMAGED = declare("pyddmq_store_damaged_records_total", "Reads that met a damaged record")
GONE = declare("pyddmq_store_gone_records_total", "Reads of records that are no longer kept")
UNITS_REPAIRED = declare("pyddmq_store_units_repaired_total", "Damaged consume-queue units that were rebuilt")
UNITS_LOST = declare("pyddmq_store_units_lost_total", "Consume-queue units without a record in the log")
FILES_DAMAGED = declare(
    "pyddmq_store_files_damaged_total",
    "Small files found damaged at opening, by name; a copy was used, or the log",
    ("file",),
)
FILES_DELETED = declare(
    "pyddmq_store_files_deleted_total",
    "Small files that another program deleted while the node ran, by name; they are written again.",
    ("file",),
)
UNREADABLE = declare(
    "pyddmq_store_unreadable_stretches_total",
    "Stretches of files that the disk did not give out (EIO), each time one is met anew, by kind of file; what lies "
    "there is damaged, and nothing else.",
    ("file",),
)
HOLES = declare("pyddmq_store_holes_total", "Damaged stretches of the commit log found by recovery")
HOLE_BYTES = declare("pyddmq_store_hole_bytes_total", "Bytes in damaged stretches found by recovery")
TAILS_CUT = declare("pyddmq_store_tails_cut_total", "Torn tails cut by recovery")
BATCHES_CUT = declare("pyddmq_store_batches_cut_total", "Incomplete atomic batches cut by recovery")
FILLERS = declare("pyddmq_store_fillers_total", "Queue offsets left empty by recovery")
DUPLICATES = declare("pyddmq_store_duplicate_offsets_total", "Records left out of their queue: their offset was taken")
RECOVERED = declare("pyddmq_store_records_scanned_total", "Records scanned by recovery")
CHECKPOINTS = declare("pyddmq_store_checkpoints_total", "Checkpoints written")
FAILED = declare("pyddmq_store_failed", "1 after a failed write or sync", kind="gauge")
RESERVE = declare(
    "pyddmq_store_reserve_bytes", "Bytes set aside for the broker's own records; 0 while there is none.", kind="gauge"
)
RESERVE_USED = declare("pyddmq_store_reserve_used_total", "Times that the file set aside became part of the log.")
RETAINED_OUT = declare("pyddmq_retention_files_total", "Log files deleted by retention, by reason", ("reason",))
RETENTION_WAITS = declare(
    "pyddmq_retention_waits_total", "Log files that were due and waited for pending messages to be put elsewhere."
)
DEAD_LETTERS_DELETED = declare(
    "pyddmq_retention_dead_letters_total", "Dead letters deleted with their log file, read or not.", ("group",)
)
INDEX_ENTRIES = declare("pyddmq_store_index_entries_total", "Entries added to index files")
INDEX_LAG = declare("pyddmq_store_index_lag_bytes", "Log that is not in the index yet, in bytes", kind="gauge")
INDEX_REBUILT = declare(
    "pyddmq_store_index_rebuilt_total", "Index files not trusted and rebuilt from the log, by reason", ("reason",)
)
INDEX_FULL_DISK = declare("pyddmq_store_index_disk_full_total", "Index files that found no space; tried again")
INDEX_FAILED = declare("pyddmq_store_index_failed", "1 after a failed write to an index file", kind="gauge")
FOREIGN = declare(
    "pyddmq_store_foreign",
    "What the store has of RocketMQ's that is not read, found when it was opened; by kind: compaction, static_topics, "
    "light_queues, halves",
    ("kind",),
    kind="gauge",
)
