"""DDMQ's faults of offsets and restarts: W27 to W34."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PIPELINE = "tests/integration/upstream/test_ddmq_faults_pipeline.py"
NODE = "tests/integration/proxy/node/test_ddmq_faults_node.py"
GROUP = "tests/unit/upstream/delivery/test_group.py"
COMMITS = "tests/unit/upstream/progress/test_offset_commits.py"

MUTANTS = (
    Mutant(
        name="a reset lets go the keys of finished messages that clients have",
        file="upstream/job.py",
        old="        return [offset for offset in self.adopted if not self.tracker.is_finished(offset)]\n",
        new="        return list(self.adopted)\n",
        caught_by=(
            "tests/unit/upstream/delivery/test_positions.py::test_held_key_waits_on_in_the_generation_after_a_reset",
        ),
    ),
    Mutant(
        name="a reset that is given up leaves its topic drained behind a held key",
        file="upstream/delivery/group.py",
        old="        if slot is not None and slot.config is not None and drains and slot.replace_at is None:\n",
        new="        if slot is not None and slot.config is not None and drains and slot.subscription.drained:\n",
        caught_by=(
            "tests/unit/upstream/delivery/test_positions.py::test_held_key_holds_up_nobody_else_when_a_reset_is_given_up",
        ),
    ),
    Mutant(
        name="commits go out for every queue ever seen, without a comparison",
        file="upstream/progress/offset_commits.py",
        old="            if (len(known.file_values) != 1 or known.file_values[0] != known.tracker.watermark) "
        "and not known.let_go\n",
        new="            if known\n",
        caught_by=(
            "tests/unit/upstream/progress/test_queue_ownership.py::test_the_group_changes_hands_both_ways_without_loss_or_repetition",
        ),
        rows=("W27",),
    ),
    Mutant(
        name="who lost a lock commits on",
        file="broker/consumer/member.py",
        old="        self.lost = self.lost or lost\n",
        new="        self.lost = False\n",
        caught_by=(
            "tests/unit/broker/features/test_orderly_consumer.py::test_an_answer_after_the_lock_was_lost_commits_nothing",
        ),
        rows=("W27", "W28"),
    ),
    Mutant(
        name="nobody is told that queues were lost",
        file="upstream/embedded/ownership.py",
        old="                self._lost(topic)\n",
        new="",
        caught_by=(
            "tests/unit/upstream/progress/test_queue_ownership.py::test_a_proxy_that_lost_its_locks_stops_and_waits",
        ),
        rows=("W28",),
    ),
    Mutant(
        name="a commit that could not be written counts as made",
        file="broker/queues/offsets.py",
        old="        except BaseException:\n            self._dirty = True\n            raise\n",
        new="        except BaseException:\n            raise\n",
        caught_by=(f"{COMMITS}::test_commit_that_failed_is_made_again_without_any_progress",),
        rows=("W29",),
    ),
    Mutant(
        name="after one failed write offsets are not written again",
        file="upstream/progress/offset_commits.py",
        old="            if can_wait(error) or on_failed is None:\n",
        new="            self._file_failed = True\n            if can_wait(error) or on_failed is None:\n",
        caught_by=(f"{COMMITS}::test_offsets_file_that_cannot_be_written_is_made_up_for_later",),
        rows=("W29",),
    ),
    Mutant(
        name="a commit goes on though the journal could not say what it writes",
        file="upstream/progress/offset_commits.py",
        old="                known.file_values.pop()\n            raise\n",
        new="                known.file_values.append(known.tracker.watermark)\n",
        caught_by=(f"{COMMITS}::test_begun_commit_that_cannot_be_made_is_seen_by_the_next_flush",),
        rows=("W29",),
    ),
    Mutant(
        name="reading stops while anything waits behind a key",
        file="upstream/delivery/subscription.py",
        old="        if self.order.waiting + stops.held >= waiting_max:\n            if not",
        new="        if self.order.waiting:\n            if not",
        caught_by=(f"{GROUP}::test_one_key_that_never_answers_leaves_all_others_to_finish",),
        rows=("W30",),
    ),
    Mutant(
        name="acks above an unfinished message are not journaled",
        file="upstream/progress/tracker.py",
        old="        staged = self._staged\n        self._staged = []\n",
        new="        pairs = zip(self._staged[::2], self._staged[1::2], strict=True)\n"
        "        staged = [each for pair in pairs if pair[1] <= self.watermark for each in pair]\n"
        "        self._staged = []\n",
        caught_by=(
            "tests/integration/proxy/node/test_node.py::test_acks_survive_restart_and_only_the_rest_comes_again",
        ),
        rows=("W30",),
    ),
    Mutant(
        name="the committed offset moves on by one message at a time",
        file="upstream/progress/tracker.py",
        old="        run = marks.find(_ZERO)\n        if run < 0:\n            run = "
        "len(marks)\n        del marks[:run]\n",
        new="        run = 1\n        del marks[:run]\n",
        caught_by=(
            "tests/unit/upstream/progress/test_tracker.py::test_watermark_when_the_gap_closes_jumps_over_a_million_and_frees_them",
        ),
        rows=("W30",),
    ),
    Mutant(
        name="nobody looks for keys that are held",
        file="proxy/operate/attention/of_groups.py",
        old="    stuck = [key for key in topic.stuck_keys if now_ms - key.since_ms >= STUCK_SECONDS * 1000]\n",
        new="    stuck: list[StuckKey] = []\n",
        caught_by=("tests/unit/proxy/admin/test_admin_page.py::test_findings_name_the_key_that_holds_others",),
        rows=("W30",),
    ),
    Mutant(
        name="messages of the retry topic have the queue ids of others",
        file="upstream/delivery/group_queues.py",
        old='RETRY_QID = "retry_"\n',
        new='RETRY_QID = ""\n',
        caught_by=(
            "tests/unit/upstream/retry/test_retry_topic.py::test_same_offset_of_topic_and_retry_topic_are_two_messages",
        ),
        rows=("W31",),
    ),
    Mutant(
        name="with maxConsumeLag a queue starts with one message at a time",
        file="upstream/embedded/source.py",
        old="                room = max(0, group_queue.tracker.watermark + self.lag_max - group_queue.pending[0][3])\n",
        new="                started = group_queue.tracker.watermark > 0 or group_queue.tracker.ahead > 0\n"
        "                lag_max = self.lag_max if started else 1\n"
        "                room = max(0, group_queue.tracker.watermark + lag_max - group_queue.pending[0][3])\n",
        caught_by=(f"{GROUP}::test_consume_lag_bounds_reading_from_the_first_message_on",),
        rows=("W32",),
    ),
    Mutant(
        name="a stop waits for nothing that is out",
        file="upstream/delivery/subscription.py",
        old="        if not self.draining or self.deadlines.open or self.outcomes.leaving.count:\n",
        new="        if not self.draining or self.outcomes.leaving.count:\n",
        caught_by=(
            f"{NODE}::test_stop_takes_acks_before_it_closes",
            f"{GROUP}::test_drain_hands_out_nothing_and_ends_when_the_last_is_answered",
        ),
        rows=("W33",),
    ),
    Mutant(
        name="a group stops a minute after its last pull",
        file="upstream/delivery/subscription.py",
        old="        self.counters.batches.value += 1\n",
        new="        self.counters.batches.value += 1\n        self._scheduler.call_later(60.0, self.stop)\n",
        caught_by=(f"{PIPELINE}::test_group_without_pulls_keeps_its_deliveries",),
        rows=("W34",),
    ),
)
