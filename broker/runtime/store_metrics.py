"""What the store counts; docs/metrics.md lists it."""

from __future__ import annotations

from broker.runtime.metrics import declare

APPENDED = declare("pyddmq_store_records_appended_total", "Records staged for the commit log")
WRITTEN = declare("pyddmq_store_bytes_written_total", "Bytes written to the commit log")
FLUSHES = declare("pyddmq_store_flushes_total", "Group commits of the commit log")
SYNCS = declare("pyddmq_store_syncs_total", "Group commits that synced the commit log")
REFUSED = declare("pyddmq_store_refused_total", "Appends refused, by reason", ("reason",))
DAMAGED = declare("pyddmq_store_damaged_records_total", "Reads that found a damaged record")
GONE = declare("pyddmq_store_gone_records_total", "Reads of records that were deleted")
UNITS_REPAIRED = declare("pyddmq_store_units_repaired_total", "Damaged consume-queue units that were rebuilt")
UNITS_LOST = declare("pyddmq_store_units_lost_total", "Consume-queue units without a record in the log")
FILES_DAMAGED = declare(
    "pyddmq_store_files_damaged_total",
    "Small files found damaged at the start, by name; a copy was used, or the log",
    ("file",),
)
FILES_DELETED = declare(
    "pyddmq_store_files_deleted_total",
    "Small files that another program deleted while the node ran, by name; they are written again.",
    ("file",),
)
UNREADABLE = declare(
    "pyddmq_store_unreadable_stretches_total",
    "Unreadable sections of files (EIO), counted at each read error, by kind of file; only the data in "
    "them is damaged.",
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
    "pyddmq_store_reserve_bytes", "Bytes reserved for the broker's own records; 0 without a reserve.", kind="gauge"
)
RESERVE_USED = declare("pyddmq_store_reserve_used_total", "Times that the reserved file became part of the log.")
RETAINED_OUT = declare("pyddmq_retention_files_total", "Log files deleted by retention, by reason", ("reason",))
RETENTION_WAITS = declare(
    "pyddmq_retention_waits_total", "Log files due for deletion that waited for pending messages to be moved."
)
DEAD_LETTERS_DELETED = declare(
    "pyddmq_retention_dead_letters_total", "Dead letters deleted with their log file, read or not.", ("group",)
)
INDEX_ENTRIES = declare("pyddmq_store_index_entries_total", "Entries added to index files")
INDEX_LAG = declare("pyddmq_store_index_lag_bytes", "Bytes of the log that are not in the index yet", kind="gauge")
INDEX_REBUILT = declare(
    "pyddmq_store_index_rebuilt_total", "Index files rejected and rebuilt from the log, by reason", ("reason",)
)
INDEX_FULL_DISK = declare(
    "pyddmq_store_index_disk_full_total", "Index files that could not be created for lack of space; retried"
)
INDEX_FAILED = declare("pyddmq_store_index_failed", "1 after a failed write to an index file", kind="gauge")
FOREIGN = declare(
    "pyddmq_store_foreign",
    "Data of RocketMQ in the store that is not read, found at the start; by kind: compaction, "
    "static_topics, light_queues, halves",
    ("kind",),
    kind="gauge",
)
