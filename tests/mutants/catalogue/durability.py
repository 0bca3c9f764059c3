"""Promise 1: an acknowledged publish survives, and promises of a full or failed disk."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "the commit log's synchronous flush does not sync the file",
        "broker/log/commit_log.py",
        old="""\
            segment.file.sync()
            segment.unsynced = False
""",
        new="            segment.unsynced = False\n",
        caught_by=(
            "tests/integration/broker/store/test_store_recovery.py::test_every_acknowledged_append_survives_any_stop",
        ),
    ),
    Mutant(
        "consumers see records before their sync has ended",
        "broker/log/group_commit.py",
        old="""\
            return False
        self._sync_oldest()
""",
        new="""\
            return False
        for batch in batches:
            self._log.visible_end = batch.end
            for queue, offset in batch._queues:
                queue.max_offset = offset
        self._sync_oldest()
""",
        caught_by=(
            "tests/integration/broker/store/test_store_background.py::test_nothing_shows_before_the_sync_has_ended",
        ),
    ),
    Mutant(
        "recovery serves bytes inside a damaged record as a record of their own",
        "broker/log/nested.py",
        old="        return end if at < end else found\n",
        new="        return found\n",
        caught_by=(
            "tests/integration/broker/store/test_nested_records.py::test_damaged_host_at_the_end_of_the_log_is_cut_whole",
        ),
    ),
    Mutant(
        "recovery serves the part of a batch that a kill left",
        "broker/opening/queue_build.py",
        old="""\
        self._break_group()
        if not self._held:
            return 0, end
""",
        new="""\
        self._settle()
        if not self._held:
            return 0, end
""",
        caught_by=("tests/lifecycle/test_kill_points.py::test_kill_at_some_changes_breaks_nothing[0-Batches]",),
    ),
    Mutant(
        "a state file is replaced before its sealed twin is written",
        "broker/runtime/state_file.py",
        old="""\
        yield from self._twin.writing(twin)
        yield from writing_whole(self._disk, self.path, body, backup=self._backup)
""",
        new="""\
        yield from writing_whole(self._disk, self.path, body, backup=self._backup)
        yield from self._twin.writing(twin)
""",
        caught_by=("tests/unit/broker/runtime/test_state_file.py::test_state_after_any_stop_is_old_or_new",),
    ),
    Mutant(
        "a record that is dispatched twice gets two consume queue units",
        "broker/queues/consume_queue.py",
        old="""\
        if gap < 0:
            return -1
        if gap:
""",
        new="        if gap > 0:\n",
        caught_by=(
            "tests/unit/broker/queues/test_consume_queue.py::test_gap_becomes_fillers_and_a_taken_offset_is_refused",
        ),
    ),
    Mutant(
        "a publish whose write failed is answered with code 0",
        "proxy/services/publishing.py",
        old="            send.refuse(Refusal(ResultCode.FAIL_UNKNOWN, str(error)), len(send.puts))\n",
        new="            send.slot.answer(send.stored(send.positions))\n",
        caught_by=(
            "tests/integration/proxy/node/test_ddmq_faults_node.py::test_failed_write_is_answered_and_never_reported_as_stored",
        ),
        rows=("W83",),
    ),
    Mutant(
        "publishes in progress at a stop are never answered",
        "proxy/services/publishing.py",
        old="        publishing = self._publishing\n        if error is None:\n            publishing.count",
        new="""\
        publishing = self._publishing
        if publishing._state() == "draining":
            return
        if error is None:
            publishing.count""",
        caught_by=(
            "tests/integration/proxy/node/test_ddmq_faults_node.py::test_sends_under_way_at_a_stop_or_a_reload_are_answered",
        ),
        rows=("W84",),
    ),
    Mutant(
        "a full disk keeps the spare segment while retention needs space for a checkpoint",
        "broker/retention.py",
        old="""\
            if self._checkpointer.is_postponed:
                self._space.give_back()
""",
        new="",
        caught_by=(
            "tests/integration/broker/store/test_retention_full_disk.py::test_full_disk_gets_room_from_an_old_file",
        ),
    ),
)
