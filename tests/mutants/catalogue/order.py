"""Promise 3: per key never two in flight, never out of order; other keys do not wait."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a failed message releases its key before it is consumed",
        "upstream/outcomes/outcomes.py",
        old="""\
        move(job, JobEvent.RETRY)
        if not self.draining:
            self._due.add(job, self._clock.monotonic() + wait_ms / 1000)
""",
        new="""\
        move(job, JobEvent.RETRY)
        if not self.draining:
            self._due.add(job, self._clock.monotonic() + wait_ms / 1000)
            if job.key is not None:
                self._release(job)
""",
        caught_by=("tests/unit/upstream/delivery/test_group.py::test_fail_is_retried_in_place_and_then_dead_lettered",),
        rows=("W57",),
    ),
    Mutant(
        "a message overtakes an earlier one of its key that has not started",
        "upstream/waiting/job_loops.py",
        old="""\
            if tail is not None:
                tail.successor = job
""",
        new="""\
            if tail is not None and tail.state is not _READY:
                tail.successor = job
""",
        caught_by=("tests/unit/upstream/waiting/test_order.py::test_order_queue_runs_one_per_key_in_order",),
        rows=("W57",),
    ),
    Mutant(
        "all messages share one order key",
        "upstream/waiting/job_loops.py",
        old="""\
            tail = tails.get(key)
            tails[key] = job
""",
        new="""\
            tail = tails.get(key := b"")
            tails[key] = job
            job.key = key
""",
        caught_by=(
            "tests/unit/upstream/delivery/test_group.py::test_one_key_that_never_answers_leaves_all_others_to_finish",
        ),
    ),
    Mutant(
        "order keys are compared by a 32-bit hash",
        "upstream/embedded/source.py",
        old="""\
                key = find_property(block, b"KEYS")
""",
        new="""\
                from broker.format.java import string_hash

                key = find_property(block, b"KEYS")
                key = key and str(string_hash(bytes(key).decode()))
""",
        caught_by=(
            "tests/integration/upstream/test_ddmq_faults_pipeline.py::test_keys_are_compared_whole_and_per_topic",
        ),
        rows=("W55",),
    ),
    Mutant(
        "a late success releases the key while a newer delivery is in flight",
        "upstream/delivery/results.py",
        old="        if present or is_of_only(delivery, holder, number, certain=certain):\n",
        new="        if present or is_of_only(delivery, holder, number, certain=certain) or True:\n",
        caught_by=(
            "tests/unit/upstream/delivery/test_group.py::test_late_success_while_a_newer_delivery_is_out_holds_the_key",
            "tests/unit/upstream/delivery/test_answer_matching.py::test_first_success_after_a_redelivery_to_the_same_client_keeps_the_key",
        ),
        rows=("W3",),
    ),
    Mutant(
        "a late fail counts against the present delivery",
        "upstream/delivery/results.py",
        old="""\
    if job is None or not present:
        known""",
        new="""\
    if job is None:
        known""",
        caught_by=(
            "tests/unit/upstream/delivery/test_group.py::test_fail_counts_only_for_the_present_delivery",
            "tests/unit/upstream/delivery/test_group.py::test_fail_resent_over_a_new_connection_of_the_same_client_counts",
        ),
        rows=("W3",),
    ),
    Mutant(
        "a reload forgets keys whose last message is still with a client",
        "upstream/job.py",
        old="        self.apart = {offset for offset in self.adopted if self.tracker.is_finished(offset)}\n",
        new="        self.apart = set()\n",
        caught_by=(
            "tests/unit/upstream/delivery/test_reconfigure.py::test_held_key_outlasts_a_forced_change",
            "tests/unit/upstream/delivery/test_reconfigure.py::test_held_key_is_kept_over_two_reloads_and_an_offset_far_behind_the_watermark",
        ),
    ),
    Mutant(
        "a reload runs a message that a call of the old generation still processes",
        "upstream/job.py",
        old="        self.apart.update(self.calls)\n",
        new="",
        caught_by=(
            "tests/unit/upstream/running/test_calling.py::test_call_left_behind_by_its_generation_is_not_overlapped",
        ),
    ),
    Mutant(
        "finishing a job twice releases its permit and its key twice",
        "upstream/delivery/subscription.py",
        old="""\
        if not is_in_action(job):
            return False
""",
        new="""\
        if not is_in_action(job):
            self.outcomes.over(job)
            return True
""",
        caught_by=("tests/integration/upstream/test_ddmq_faults_pipeline.py::test_job_settled_twice_is_finished_once",),
        rows=("W36",),
    ),
    Mutant(
        "a queue lock is granted to another client after half its lease",
        "broker/queues/queue_locks.py",
        old="lease.client_id == client_id or now - lease.renewed > EXPIRY_SECONDS:",
        new="lease.client_id == client_id or now - lease.renewed > EXPIRY_SECONDS / 2:",
        caught_by=("tests/unit/broker/queues/test_queue_locks.py::TestLocks",),
    ),
    Mutant(
        "a send overtakes an earlier one of its connection that waits for its rate",
        "proxy/services/stations.py",
        old="            limited.follow(self)",
        new="            self.run()",
        caught_by=(
            "tests/integration/proxy/services/test_limited_sends.py::test_messages_behind_one_that_waits_keep_their_order",
        ),
    ),
)
