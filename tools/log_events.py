"""What each event of the log means: one sentence of docs/log-events.md each (`tools.log_events_doc`).

An event of the code that is missing here fails a test, and so does one that the code no longer has.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        # The life of a node.
        "assertions_off": "Python runs with -O, which turns off checks that stop a fault early: start without it.",
        "config_file_back": "The configuration file exists again.",
        "retention_file_unreadable": "The retention limits of the last run cannot be read; the configured ones apply.",
        "retention_limits_wait": "The former retention limits stay; the configured ones would delete unfinished "
        "messages.",
        "config_file_missing": "The configuration file is missing; the node continues unchanged, but a restart "
        "would fail.",
        "config_warning": "The configuration has a setting that is accepted and has no effect; the text says why.",
        "config_watch_failed": "The folder of the configuration cannot be watched; the node polls it for changes.",
        "data_directory_open_to_others": "Other users of the machine may read the data directory; `advice` "
        "restricts access.",
        "drained": "The node waited for results before it stopped; unanswered deliveries are redelivered after "
        "the next start.",
        "open_files_limited": "The limit of open files is low for `maxConnections` or the number of queues.",
        "ready": "The node serves; written once in each start.",
        "ready_line_not_written": "Standard output is not read: the ready line is lost; the node serves nevertheless.",
        "reload_refused": "A new configuration was refused as a whole; the former one stays in force.",
        "reloaded": "A new configuration is in force; `changes` lists the differences.",
        "stopped": "The node has ended; with `text`: before its recovery was finished.",
        "stopping": "A stop was requested; deliveries have ended, and the node waits for results.",
        # Who did what.
        "admin_request_unreadable": "The admin port received bytes that are not an HTTP request; `error` says why.",
        "access_file_fault": "A fault occurred while files of `access` were read again; the files read before "
        "stay in force.",
        "audit_line_lost": "A line of the audit trail could not be written: an outcome, or denials; the log has it.",
        "audit_unreadable": "The audit trail cannot be read for display; new lines are still written.",
        # TLS.
        "tls_connection_ended": "A connection was closed since its client certificate is no longer valid; see "
        "`reason`.",
        "tls_handshake_failed": "A TLS handshake with a client failed; `text` says why.",
        "tls_reload_refused": "New certificates cannot be used; the present ones stay in force until this is fixed.",
        "tls_reloaded": "The certificates of the TLS ports were read again; new handshakes use them.",
        # Kafka.
        "kafka_groups_not_left": "The stop did not wait longer for groups to leave Kafka; their sessions expire.",
        "kafka_producers_not_closed": "The producers of Kafka clusters could not be closed in order at the stop.",
        # Recovery.
        "acks_replayed": "The ack journal was read at the start.",
        "deduplication_reading_log": "The node reads the last messages of deduplicating producers from the log.",
        "delays_reading_log": "The node reads from the log which delayed messages were delivered.",
        "interrupted_loops_unknown": "The recurring messages that RocketMQ ended cannot be read; they are paused.",
        "loops_go_on": "Recurring messages that were paused while RocketMQ had the store continue.",
        "popped_taken_over": "Messages in flight with RocketMQ's POP consumers are redelivered here.",
        "recovered": "The recovery is finished.",
        "recovering": "Progress of a recovery; written every 5 s.",
        "retries_reading_log": "The node reads from the log which messages were retried or dead-lettered.",
        "store_fillers_rewritten": "A store of an older format was converted to the present one.",
        "store_foreign_accepted": "With `serve --accept` the store is opened although `what` is not read.",
        "store_format_raised": "The store now has this version's format; older versions refuse it.",
        "store_holds_foreign": "The store has data of RocketMQ that is kept, but not used; `what` names it.",
        "store_opened": "The store is open; shows what the recovery read and where the log ends.",
        "store_recovering": "A recovery starts; `clean` says whether the last stop was orderly.",
        "timers_clock_back": "The wall clock is behind the time slots that were read; the first of them is "
        "opened immediately.",
        "timers_of_other_precision": "RocketMQ left timers with another slot width, so they are rebuilt.",
        "timers_rebuilding": "Timer log and wheel are rebuilt from the commit log.",
        "topic_deleted_by_others": "RocketMQ deleted this topic while it had the store; it stays deleted.",
        "topic_deletion_left_to_next_start": "Some files of a deleted topic could not be removed; the next start "
        "removes them.",
        "transactions_reading_log": "The node reads from the log which transactions were decided.",
        "transaction_decisions_lost": "Records that decided `halves` transactions were lost; these are "
        "undecided again.",
        # Disk.
        "ack_journal_reserve_missing": "The next file of the ack journal cannot be reserved, since the disk is full.",
        "acks_refused": "The ack journal cannot be written: acknowledgements and pulls are refused.",
        "append_refused_disk_full": "A publish, or an internal record of the broker, was refused because the "
        "disk is full.",
        "checkpoint_postponed_disk_full": "The checkpoint waits for disk space; a recovery would read more of the log.",
        "disk_gives_no_bytes": "The disk reports a read error for a part of a file; the rest is read.",
        "offsets_not_written": "Committed offsets could not be written; the journal has them, and the write is "
        "retried.",
        "kafka_client_said": "A line of librdkafka's log, without secrets: a connection or session has ended.",
        "progress_close_failed": "Progress of groups could not be written at the stop; the next start recovers it.",
        "redrives_not_written": "The progress of redrives could not be written; the log is read instead.",
        "reserve_given_back": "The disk is full and a log file is due: its checkpoint uses the reserved space.",
        "reserve_in_use": "The disk is full and the file reserved for dead letters is in use.",
        "reserve_missing": "No space is reserved for dead letters: on a full disk they would wait.",
        "store_close_failed": "The store could not be closed in order; the next start recovers.",
        "store_failed": "A write, sync, rename or deletion failed: the store accepts no writes until a restart.",
        "topic_file_postponed_disk_full": "A new topic's file waits for disk space; the topic works.",
        # Damage.
        "ack_spare_unreadable": "The disk cannot read a page of the file reserved for the ack journal; another file is "
        "created.",
        "ack_journal_damaged": "The ack journal has damaged places; messages whose acks were there are redelivered.",
        "checkpoint_damaged": "The checkpoint cannot be read; more of the log is read instead.",
        "damaged_record": "A message in the log is damaged and lost; other messages are not affected.",
        "deduplication_checkpoint_damaged": "The file of deduplicating producers is damaged; the log is read instead.",
        "writes_damaged": "The file of declared writes is damaged: a repeated Spark batch is treated as new.",
        "delay_file_damaged": "A file of the delay levels is damaged; the log is read instead.",
        "index_file_rebuilt": "An index file differs from the saved one and is rebuilt; no data is lost.",
        "index_foreign_file_left_alone": "The index folder has a file that is not an index; it is not touched.",
        "message_unreadable": "A message cannot be read and was skipped.",
        "record_gone": "A read requested a record that retention has deleted.",
        "state_file_deleted": "A state file or its copy was deleted while the node ran; it is written again.",
        "ack_journal_deleted": "The ack journal was deleted while the node ran; a new segment is started.",
        "state_file_changed_outside": "Another program changed a state file; its new content applies.",
        "state_file_damaged_backup_used": "A state file is damaged; the copy of its former version is used.",
        "state_file_damaged_twin_used": "A state file is damaged; its checksummed copy is used, no data is lost.",
        "state_file_twin_damaged": "The checksummed copy of a state file is damaged.",
        "store_damage_found": "The recovery found damaged places in the log; `store check` shows what is lost.",
        "timer_file_damaged": "A file of the timers is damaged; it is rebuilt from the log.",
        "timers_damaged": "Timer log and wheel do not match; both are rebuilt from the log.",
        "transaction_file_damaged": "The file of transactions is damaged; the log is read instead.",
        "unit_lost": "A damaged entry of a queue file has no message in the log; the message is lost.",
        "unit_repaired": "A damaged entry of a queue file was rebuilt from the log; no data is lost.",
        # Index.
        "index_closed_behind": "The node stopped before all messages were indexed; the next start continues.",
        "index_failed": "A write to the index failed: indexing stops until a restart, searches read the log.",
        "index_waits_for_disk_space": "The disk has no room for another index file; searches read the log.",
        # Faults inside the node.
        "admin_request_failed": "A page of the admin port failed by a fault inside the node.",
        "call_failed": "A call of a client failed by a fault inside the node.",
        "index_work_failed": "The work on the index failed by a fault inside the node.",
        "loop_callback_failed": "A callback of the event loop failed by a fault inside the node.",
        "periodic_work_failed": "Periodic work failed repeatedly by a fault inside the node; `work` names it.",
        "turn_callback_failed": "A callback after a flush failed by a fault inside the node.",
        # Clients.
        "ack_refused": "A position acknowledged by a low-level client was ignored; docs/low-level.md lists the "
        "reasons.",
        "call_refused": "A call was refused: undecodable arguments, unknown method, or too long.",
        "check_fetch_refused": "A producer's fetch of transaction checks was refused.",
        "connection_closed_for_memory": "A connection was closed because it used the most memory when memory ran "
        "short.",
        "connection_refused": "A connection was closed by the node; `reason` says why.",
        "fetch_refused": "A fetch of a low-level client was refused; `code` and `text` say why.",
        "memory_pressure": "Memory held for clients is near `memoryMax`, or no longer; shows the measure in force.",
        "pull_refused": "A pull was refused; `code` and `text` say why.",
        "result_ignored": "Results of a client were ignored: an unknown queue, group or offset, or acks are refused.",
        "results_unanswered": "Results could not be stored, so their connection was closed; clients send them again.",
        "access_denied": "A call, or a result sent with one, was denied: `principal` is not allowed to use `resource`, "
        "another principal owns it, or its token is invalid (`reason`).",
        "client_held": "A client exceeds its rate limit (`limit`), so its connections are read more slowly.",
        "client_limited": "A request of a client was refused, since the client is at its limit (`limit`).",
        "send_refused": "A publish was refused; docs/protocol.md has the codes.",
        "access_file_refused": "A file of the section `access` changed and cannot be used; its former content "
        "stays in force.",
        "owners_not_synced": "The owners of some producers could not be made durable; a power loss may lose them.",
        "transaction_end_refused": "A commit or rollback was refused; `end` says why.",
        # Groups and their messages.
        "fetcher_expired": "A client of a low-level group was silent for 30 s: its queues are reassigned.",
        "ended_with_work_going_on": "The process ended although tasks and threads of users' code were running.",
        "actions_not_closed": "Actions of a stopped node were still in a call or closing when it ended.",
        "action_event": "An event reported by an action; `what` names it.",
        "action_error": "An action raised an exception for a message; it is retried, then dead-lettered.",
        "dead_letter_exhausted": "A message of a dead-letter topic failed its last retry and was abandoned.",
        "commit_blob_refused": "The commit topic rejects metadata that does not fit into a commit; a crash may "
        "repeat some messages.",
        "commit_blob_unread": "A blob named by a commit is missing or wrong; some messages are delivered again.",
        "kafka_commit_text_refused": "The brokers' `offset.metadata.max.bytes` is smaller than a commit's text of "
        "`characters` characters. The next text has at most `next`; the rest goes to the commit topic.",
        "kafka_session_differs": "The session timeout of the brokers (`group.consumer.session.timeout.ms`) differs "
        "from `sessionTimeout`; the shorter one is in force.",
        "kafka_last_commit_awaited": "A member of a Kafka group that leaves waits up to `seconds` for its last commit.",
        "kafka_log_went_back": "A log in Kafka ends before the position of a group: records were lost, or the topic "
        "was created again.",
        "kafka_partition_unread": "Nothing came of a partition that has more; the member leaves and joins again by a "
        "new client.",
        "kafka_member_broken": "A member of a Kafka group has ended by a fault; another joins after `again_seconds`.",
        "kafka_producer_broken": "The producer of a Kafka cluster has failed; another is created after "
        "`again_seconds`.",
        "kafka_waiting_dead_lettered": "A topic rejected a waiting message, which went to `<topic>.WAITING.DLQ`.",
        "kafka_waiting_log_shorter": "The log of a partition of waiting messages became shorter than what its owner "
        "had read (`position`); it is read again, and messages may be lost.",
        "kafka_waiting_rebuilt": "The log of a partition of waiting messages begins behind what its owner had read; it "
        "is read again.",
        "kafka_waiting_record_damaged": "A record of the waiting topic is not one of pyddmq's; it is skipped.",
        "kafka_waiting_same_name": "Another node with the same brokerName has taken over this node's waiting messages.",
        "kafka_waiting_target_refuses": "A topic takes no waiting messages, and its dead-letter topic neither; they "
        "are tried again.",
        "kafka_waiting_trouble": "The owner of a partition of waiting messages is in trouble; also shown as a finding.",
        "kafka_waiting_cache_failed": "The cache of waiting messages cannot be used; the node leaves its partitions "
        "to others.",
        "kafka_waiting_unusable": "Delays of a cluster cannot be served: its client cannot be created.",
        "kafka_topics_not_read": "Topics that match an expression are not read: an action cannot be created; retried.",
        "kafka_trouble": "The cluster of a group cannot be reached, or rejects requests; also shown as a finding.",
        "dead_letter_refused": "A dead letter cannot be written; it is retried, and its key waits.",
        "message_dead_lettered": "A message went to the group's dead-letter topic.",
        "group_minute": "Counts of a group's messages of a topic in the last minute, if there were any.",
        "message_ended": "A message was finished; `outcome` says how, `total_ms` how long after it was stored.",
        "message_given_up": "A consumer inside the program abandoned a message; it is counted.",
        "message_stopped": "A message is out of attempts and waits for an operator, with its `waits`: key or queue.",
        "message_undecided": "The disk failed while a retry or dead letter was written; the next start finds out "
        "whether it exists.",
        "messages_expired_unfinished": "Retention deleted messages that a group had not finished.",
        "messages_expired_unread": "Retention deleted messages before a group received them.",
        "messages_lost_to_retention": "Retention deleted messages that a group never received.",
        "messages_near_deletion": "Retention is about to delete messages that a group still needs.",
        "queue_locks_lost": "The node paused so long that another consumer locked the queues of a group.",
        "queues_owned": "Another consumer has the queues of a group.",
        "reading_failed": "The file of a queue cannot be opened; its topic is read again a second later.",
        "reading_stopped_by_keys": "Reading has stopped: too many messages wait for earlier ones of their keys.",
        "retry_in_place": "A failed message could not be moved to the retry topic, so it is retried in its place.",
        "subscription_start_failed": "A subscription does not start; it is retried every few seconds.",
        "subscription_waits_for_queues": "A subscription waits for its queues, which another consumer has.",
        # Offsets.
        "acks_of_other_records": "Acks were dropped: the log has other records at these offsets, which are "
        "redelivered.",
        "offset_beyond_log": "A committed offset was beyond the end of its queue and was reset to it.",
        "offset_beyond_queue": "A committed offset of a consumer inside the program was beyond the end of its queue.",
        "offset_changed_by_others": "Another program changed a committed offset; it applies, and acks above it "
        "are dropped.",
        "pauses_copy_not_written": "One of the two files of paused groups could not be written; the other one has it.",
        "pauses_damaged_copy_used": "A file of paused groups is damaged; its copy is used.",
        # What waits for a moment.
        "delayed_message_lost": "A delayed message's record was damaged or deleted when it was due.",
        "delayed_message_refused": "A due delayed message cannot be stored in its topic; it is retried.",
        "delays_wait": "Delivery of a delay level waits for disk space.",
        "loop_occurrences_skipped": "Above 100,000 missed occurrences of a recurring message the oldest were skipped.",
        "timed_message_lost": "A timer's record was damaged or deleted when it was due.",
        "timed_message_refused": "A due timer cannot be stored in its topic; it is retried.",
        "timers_wait": "Delivery of timers waits for disk space.",
        # Transactions.
        "half_discard_waits": "An undecided transaction cannot be discarded now; it is retried.",
        "half_message_discarded": "An undecided transaction was discarded; an operator can resume it.",
        "half_message_lost": "A transaction's message was damaged or deleted.",
        "half_put_back_waits": "An undecided transaction waits for space to be moved before its log file is deleted.",
        # Consumption lag.
        "lag_verdict_changed": "The verdict on a group changed; without `before` none was known, as after a restart.",
        "lag_webhook_failed": "A change of a verdict was not posted; `fault` says why.",
        "lag_journal_not_written": "A round of the lag journal could not be written; messages are not affected.",
        "lag_journal_not_tidied": "Coarser files of the lag journal could not be written, or old ones not deleted.",
        "ack_log_not_written": "Outcomes of messages are missing in a group's ack log; messages are not affected.",
        "visible_end_not_written": "The readable end of the log could not be written; other readers see no newer "
        "messages.",
        "lag_round_failed": "A fault while the node sampled the lag of its groups; the next round is made.",
        "trace_spans_lost": "Spans of traces are lost; `reason` says why. Messages are not affected.",
        # Retention and operators.
        "admin_change": "A change through the admin port: by whom, what, and with which outcome.",
        "log_file_deleted": "Retention deleted a file of the log.",
        # Consumers inside a program.
        "broadcast_message_dropped": "A broadcasting consumer failed a message, which is not retried.",
        "broadcast_offsets_not_written": "Offsets of a broadcasting consumer could not be written.",
        "broadcast_offsets_unreadable": "Offsets of a broadcasting consumer cannot be read, so it starts from "
        "the beginning.",
        "consumer_finished_unreadable": "The file of finished retries cannot be read; the log is read instead.",
        "consumer_retries_not_written": "Retry counts of consumers inside the program could not be written.",
        "consumer_retries_unreadable": "Retry counts of consumers inside the program cannot be read; they start at 0.",
        "listener_failed": "A listener inside the program raised an exception or returned no status.",
        "orderly_status_without_effect": "An orderly listener returned COMMIT or ROLLBACK, which auto-commit ignores.",
        "queue_lock_lost": "A consumer did not renew a queue's lock in time; its later answers are ignored.",
        "retries_without_delivery": "Failed messages wait without limit: the program delivers no delay levels.",
        "retry_refused": "A failed message cannot be stored for its retry now; it is retried.",
    }
)
