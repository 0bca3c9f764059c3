"""DDMQ's silent losses in the pipeline: W12 to W14, W17 to W21, W24."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WIRE = "tests/integration/proxy/services/test_ddmq_faults_wire.py"
PIPELINE = "tests/integration/upstream/test_ddmq_faults_pipeline.py"
NODE = "tests/integration/proxy/node/test_ddmq_faults_node.py"
GROUP = "tests/unit/upstream/delivery/test_group.py"
CONCURRENT = "tests/unit/broker/features/test_concurrent_consumer.py"

MUTANTS = (
    Mutant(
        name="an exception in an action counts as consumed",
        file="upstream/running/running.py",
        old="        outcomes.error(job, answer)\n",
        new="        outcomes.succeed(job)\n",
        caught_by=(
            "tests/unit/actions/test_actions.py::test_exception_is_retried_max_retry_times_and_then_dead_lettered",
            f"{PIPELINE}::test_failure_in_the_last_action_keeps_the_body",
        ),
        rows=("W12", "W13"),
    ),
    Mutant(
        name="a fail advances the offset",
        file="upstream/delivery/results.py",
        old="    subscription.outcomes.fail(job, result.failure(offset))\n",
        new="    subscription.outcomes.succeed(job)\n",
        caught_by=(f"{GROUP}::test_fail_is_retried_in_place_and_then_dead_lettered",),
        rows=("W12",),
    ),
    Mutant(
        name="what fails in the last action is written nowhere",
        file="upstream/outcomes/outcomes.py",
        old="        if not self.leaving.is_dead_letter(job):\n",
        new="        if not self.leaving.is_dead_letter(job) and job.deliveries:\n",
        caught_by=(f"{PIPELINE}::test_failure_in_the_last_action_keeps_the_body",),
        rows=("W13",),
    ),
    Mutant(
        name="a message that timed out for the last time is dropped as a success",
        file="upstream/outcomes/outcomes.py",
        old='            self._exhausted(job, "timeouts", reason)\n',
        new="            self.succeed(job)\n",
        caught_by=(f"{GROUP}::test_unanswered_delivery_comes_again_and_is_dead_lettered_after_max_retry",),
        rows=("W14",),
    ),
    Mutant(
        name="Json consumes empty and null bodies in silence",
        file="actions/json_action.py",
        old="                answers.append(error)\n",
        new='                answers.append(error if bytes(job.body).strip() not in (b"", '
        'b"null") else Status.FINISH)\n',
        caught_by=(f"{PIPELINE}::test_body_that_json_cannot_take_is_dead_lettered_with_the_reason",),
        rows=("W17",),
    ),
    Mutant(
        name="a message that cannot be sent back counts as consumed",
        file="upstream/outcomes/leaving.py",
        old="        if not self._retry_topic.send(job, wait_ms, partial(self._sent_back, held_permit)):\n"
        "            return False\n",
        new="        if not self._retry_topic.send(job, wait_ms, partial(self._sent_back, held_permit)):\n"
        "            self._over(job)\n            return True\n",
        caught_by=("tests/unit/upstream/retry/test_retry_topic.py::test_full_disk_retries_in_place",),
        rows=("W18",),
    ),
    Mutant(
        name="a retry that the store refuses advances the offset of the program's consumer",
        file="broker/consumer/leaving.py",
        old="        self._next_try.after(AGAIN_SECONDS)\n",
        new="        self._complete()\n",
        caught_by=(f"{CONCURRENT}::test_a_retry_waits_while_the_disk_is_full",),
        rows=("W18",),
    ),
    Mutant(
        name="a retry that no store takes advances the offset of the program's consumer",
        file="broker/consumer/sending_back.py",
        old="        shared.scheduler.call_soon(self.unfit, self.message, f",
        new="        shared.scheduler.call_soon(lambda message, _: self._complete(), self.message, f",
        caught_by=(f"{CONCURRENT}::test_a_retry_that_no_store_takes_is_a_dead_letter_with_the_reason",),
        rows=("W18",),
    ),
    Mutant(
        name="maxRetry 0 switches the retries of fails off as well",
        file="upstream/outcomes/outcomes.py",
        old="        if wait_ms is None:\n            self._exhausted(job, ",
        new="        if wait_ms is None or not self.config.max_retry:\n            self._exhausted(job, ",
        caught_by=(f"{GROUP}::test_max_retry_of_zero_leaves_the_retries_of_fails_alone",),
        rows=("W19",),
    ),
    Mutant(
        name="retryIntervals with entries behind a -1, a leading -1 and other negatives are accepted",
        file="conf/models.py",
        old="    for index, interval in enumerate(intervals):\n",
        new="    for index, interval in enumerate(each for each in intervals if each > DAY_MS):\n",
        caught_by=("tests/unit/conf/test_conf_models.py::test_retry_intervals_refuses_what_ddmq_misreads",),
        rows=("W20",),
    ),
    Mutant(
        name="a leading -1 means never, and what stands behind a -1 is used",
        file="upstream/retry/retry.py",
        old="            return intervals[index - 1] if index else REPEAT_MS_DEFAULT\n",
        new="            return intervals[index - 1] if index else None\n",
        caught_by=(
            "tests/unit/upstream/retry/test_retry.py::test_next_interval_walks_the_list_and_repeats_at_minus_one",
        ),
        rows=("W20",),
    ),
    Mutant(
        name="a parsed body is handed out as it is written anew",
        file="upstream/embedded/source.py",
        old="            located = self._store.locate(places, locate_unpacked)\n",
        new="""            import json

            located = []
            for view, begin, end, block, stop in self._store.locate(places, locate_unpacked):
                text = json.dumps(json.loads(bytes(view[begin:end]))).encode()
                copy = memoryview(text + bytes(view[block:stop]))
                located.append((copy, 0, len(text), len(text), len(copy)))
""",
        caught_by=(f"{WIRE}::test_parsed_body_is_handed_out_as_stored",),
        rows=("W21",),
    ),
    Mutant(
        name="disabling the last topic of a group is ignored",
        file="upstream/delivery/generations.py",
        old="            if name not in wanted:\n                self.replace(",
        new="            if name not in wanted and wanted:\n                self.replace(",
        caught_by=(f"{NODE}::test_disabling_the_last_topic_stops_the_group",),
        rows=("W24",),
    ),
    Mutant(
        name="a topic that is disabled is no change",
        file="conf/diff.py",
        old="            if subscription.enabled or was is not None:\n",
        new="            if subscription.enabled:\n",
        caught_by=(
            "tests/unit/conf/test_conf_diff.py::test_disabling_the_last_topic_stops_it",
            f"{NODE}::test_disabling_the_last_topic_stops_the_group",
        ),
        rows=("W24",),
    ),
)
