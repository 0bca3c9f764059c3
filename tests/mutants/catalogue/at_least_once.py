"""Promise 2: an answered ack counts, and only unacknowledged messages are redelivered."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "acks above an unfinished message are not journaled",
        "upstream/progress/tracker.py",
        old="""\
        staged = self._staged
        self._staged = []
""",
        new="""\
        pairs = zip(self._staged[::2], self._staged[1::2], strict=True)
        staged = [each for pair in pairs if pair[1] <= self.watermark for each in pair]
        self._staged = []
""",
        caught_by=(
            "tests/integration/proxy/node/test_node.py::test_acks_survive_restart_and_only_the_rest_comes_again",
        ),
        rows=("W30",),
    ),
    Mutant(
        "a new ack journal segment's name is not made durable",
        "upstream/progress/ack_writer.py",
        old="""\
            yield self._journal.file
            yield self._journal.folder
        except SyncFailed""",
        new="""\
            yield self._journal.file
        except SyncFailed""",
        caught_by=(
            "tests/unit/upstream/progress/test_ack_roll.py::test_no_answered_ack_is_lost_wherever_a_roll_stops",
        ),
    ),
    Mutant(
        "acks are still accepted after the sync of a new segment failed",
        "upstream/progress/ack_writer.py",
        old="""\
            if self.failed is None or isinstance(self.failed, ProgressFull):
                self._refuse("syncing", error)
            return
        finally:
""",
        new="""\
            return
        finally:
""",
        caught_by=(
            "tests/unit/upstream/progress/test_ack_roll.py::test_failed_sync_of_a_roll_refuses_acks_for_good",
            "tests/unit/upstream/progress/test_ack_roll.py::test_who_waits_for_a_roll_hears_that_it_failed",
        ),
    ),
    Mutant(
        "ackFlush: sync answers acks without a sync",
        "upstream/progress/ack_writer.py",
        old="            if self._sync_each_flush or self._sync_next:\n",
        new="            if self._sync_next:\n",
        caught_by=("tests/unit/upstream/progress/test_ack_roll.py::test_ack_flush_sync_waits_for_the_segment",),
    ),
    Mutant(
        "a start deletes ack segments in favour of one that may not be durable",
        "upstream/progress/journal.py",
        old="(len(numbers) == 1 or self._is_made_durable(best.number)):\n",
        new="best.number:\n",
        caught_by=(
            "tests/unit/upstream/progress/test_ack_roll.py::test_start_after_a_kill_amid_a_roll_gives_up_no_segment_before_another_is_durable",
        ),
    ),
    Mutant(
        "a retry record whose sync failed counts as durable",
        "upstream/outcomes/parked_jobs.py",
        old="""\
            self._permits.release(1)
        if job.group_queue.tracker.is_finished(job.offset):
""",
        new="""\
            self._permits.release(1)
        if job.group_queue.tracker.finish(job.offset) or True:
""",
        caught_by=(
            "tests/unit/upstream/outcomes/test_undecided.py::test_message_whose_retry_could_not_be_synced_waits_for_the_restart",
            "tests/unit/upstream/outcomes/test_undecided.py::test_message_whose_dead_letter_could_not_be_synced_waits_for_the_restart",
        ),
    ),
    Mutant(
        "an offsets file that could not be written counts as written",
        "broker/queues/offsets.py",
        old="""\
        except BaseException:
            self._dirty = True
            raise
""",
        new="""\
        except BaseException:
            raise
""",
        caught_by=(
            "tests/unit/upstream/progress/test_offset_commits.py::test_commit_that_failed_is_made_again_without_any_progress",
        ),
        rows=("W29",),
    ),
    Mutant(
        "a consumer that lost its queue lock still commits offsets",
        "broker/consumer/member.py",
        old="        self.lost = self.lost or lost\n",
        new="        self.lost = False\n",
        caught_by=(
            "tests/unit/broker/features/test_orderly_consumer.py::test_an_answer_after_the_lock_was_lost_commits_nothing",
        ),
        rows=("W27", "W28"),
    ),
    Mutant(
        "submit returns true for results that it ignored",
        "proxy/services/consumer_service.py",
        old="encode_bool_reply(call, False) if holds_offsets else taken",
        new="taken",
        caught_by=(
            "tests/integration/proxy/services/test_ddmq_faults_wire.py::test_submit_is_false_for_what_it_did_not_take",
        ),
        rows=("W2",),
    ),
    Mutant(
        "a stop does not wait for messages in flight",
        "upstream/delivery/subscription.py",
        old="        if not self.draining or self.deadlines.open or self.outcomes.leaving.count:\n",
        new="        if not self.draining or self.outcomes.leaving.count:\n",
        caught_by=(
            "tests/integration/proxy/node/test_ddmq_faults_node.py::test_stop_takes_acks_before_it_closes",
            "tests/unit/upstream/delivery/test_group.py::test_drain_hands_out_nothing_and_ends_when_the_last_is_answered",
        ),
        rows=("W33",),
    ),
    Mutant(
        "results that arrive during recovery are answered with an exception",
        "proxy/services/starting_service.py",
        old="        if carries_results(request.results):\n",
        new="        if request.results is None:\n",
        caught_by=(
            "tests/integration/proxy/services/test_results_at_start.py::test_results_wait_for_the_start_and_count_first",
            "tests/simulation/test_sdks.py::test_kills_cost_libraries_nothing_that_was_answered",
        ),
    ),
    Mutant(
        "a reply that never left the node counts as delivered",
        "proxy/port/connection.py",
        old="""\
        for lost in self.outbox.close():
            lost()
        self._server.forget(self)
""",
        new="""\
        self.outbox.close()
        self._server.forget(self)
""",
        caught_by=(
            "tests/integration/proxy/services/test_ddmq_faults_wire.py::test_replies_that_never_left_are_no_deliveries",
        ),
        rows=("W9",),
    ),
    Mutant(
        "a fetch skips the message at the requested offset",
        "upstream/fetch/fetching.py",
        old="        return min(max(stored if wanted < 0 else wanted, queue.min_offset), queue.max_offset)\n",
        new="        return min(max(stored if wanted < 0 else wanted + 1, queue.min_offset), queue.max_offset)\n",
        caught_by=("tests/unit/upstream/fetch/test_fetching.py::test_asked_offset_is_the_first_that_comes",),
        rows=("W67",),
    ),
)
