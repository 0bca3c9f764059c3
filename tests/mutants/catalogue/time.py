"""What waits is never early, never lost and never delivered twice."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="a producer that is not known begins with any number",
        file="broker/deduplication/window.py",
        old="            return () if number == first_number(name) else None\n",
        new="            return ()\n",
        caught_by=(
            "tests/unit/broker/features/test_deduplication_window.py::test_window_says_what_is_new_stored_older_and_behind_a_gap",
            "tests/integration/proxy/services/test_deduplication_node.py::test_window_ends_with_so_many_messages",
        ),
    ),
    Mutant(
        name="the window cuts a large call in two",
        file="broker/deduplication/window.py",
        old="        kept = max(self.limits.messages, last_call)\n",
        new="        kept = self.limits.messages\n",
        caught_by=(
            "tests/unit/broker/features/test_deduplication_window.py::test_last_call_is_known_whole_however_large",
        ),
    ),
    Mutant(
        name="a copy takes the place of the first record",
        file="broker/deduplication/window.py",
        old=("            if places[at] == MISSING:\n                places[at] = place\n"),
        new="            places[at] = place\n",
        caught_by=(
            "tests/unit/broker/features/test_deduplication_window.py::test_what_damage_took_is_missing_and_may_be_stored",
        ),
    ),
    Mutant(
        name="who was known first is forgotten first",
        file="broker/deduplication/window.py",
        old=("        producer.last_ms = now_ms\n        self.producers.move_to_end(name)\n        self._receipts +="),
        new=("        producer.last_ms = now_ms\n        self._receipts +="),
        caught_by=(
            "tests/unit/broker/features/test_deduplication_window.py::test_producers_are_forgotten_by_silence_and_number",
        ),
    ),
    Mutant(
        name="a header that looks like the second of its name is taken for it",
        file="upstream/kafka/headers.py",
        old="        return number <= counts.get(base, 0) + 1\n",
        new="        return False\n",
        caught_by=(
            "tests/unit/upstream/kafka/test_headers.py::test_decode_is_undone_by_encode",
            "tests/unit/upstream/kafka/test_headers.py::test_headers_as_properties",
        ),
    ),
    Mutant(
        name="what a Kafka cluster does not tell is 0",
        file="proxy/recording/cluster_samples.py",
        old="        start, end = bounds or (None, None)\n",
        new="        start, end = bounds or (0, 0)\n",
        caught_by=("tests/unit/proxy/recording/test_cluster_samples.py::test_group_that_is_not_told_is_not_known",),
    ),
    Mutant(
        name="a generation reads anew what an earlier one left undecided",
        file="upstream/job.py",
        old="        self.apart.update(offset for offset in self.tracker.undecided if",
        new="        self.apart.update(offset for offset in () if",
        caught_by=(
            "tests/unit/upstream/outcomes/test_undecided.py::test_undecided_message_is_left_alone_by_the_next_generation",
            "tests/unit/upstream/outcomes/test_undecided.py::test_generation_that_ends_while_a_dead_letter_is_written_hands_its_message_to_nobody",
        ),
    ),
    Mutant(
        name="an offset that is taken gets another unit",
        file="broker/queues/consume_queue.py",
        old=("        if gap < 0:\n            return -1\n        if gap:\n"),
        new="        if gap > 0:\n",
        caught_by=(
            "tests/unit/broker/queues/test_consume_queue.py::test_gap_becomes_fillers_and_a_taken_offset_is_refused",
        ),
    ),
    Mutant(
        name="an append is acknowledged before its record is synced",
        file="broker/log/commit_log.py",
        old=("            segment.file.sync()\n            segment.unsynced = False\n"),
        new="            segment.unsynced = False\n",
        caught_by=(
            "tests/integration/broker/store/test_store_recovery.py::test_every_acknowledged_append_survives_any_stop",
        ),
    ),
    Mutant(
        name="a topic whose queues hold batches is served as if they held messages",
        file="broker/opening/foreign.py",
        old='found.get("queue.type") == "BatchCQ"}',
        new='found.get("queue.type") == "BATCH"}',
        caught_by=("tests/unit/broker/opening/test_foreign.py::test_what_would_be_served_wrongly_is_refused",),
    ),
    Mutant(
        name="RocketMQ's checkpoint has the index time in another place",
        file="broker/opening/store_json.py",
        old="_CHECKPOINT.pack(ms, ms, checkpoint.index_ms, 0, checkpoint.log_end)",
        new="_CHECKPOINT.pack(ms, ms, 0, checkpoint.index_ms, checkpoint.log_end)",
        caught_by=("tests/unit/broker/opening/test_store_json.py::test_checkpoint_stands_in_both_forms",),
    ),
    Mutant(
        name="a clean stop leaves the mark of an open store",
        file="broker/opening/store_json.py",
        old=("        self._disk.remove(self._path)\n        self._disk.sync_folder(self._root)\n"),
        new="        self._disk.sync_folder(self._root)\n",
        caught_by=("tests/unit/broker/opening/test_store_json.py::test_abort_file_marks_an_open_store",),
    ),
)
