"""Promise 6: nothing is dropped silently."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a start takes lower limits of retention at once",
        "proxy/node/retention_schedule.py",
        old="self._saved or wanted\n",
        new="wanted\n",
        caught_by=(
            "tests/simulation/test_retention.py::test_smaller_limit_is_refused_while_a_group_would_lose_messages",
        ),
    ),
    Mutant(
        "an exception in an action counts as success",
        "upstream/running/running.py",
        old="        outcomes.error(job, answer, action)\n",
        new="        outcomes.succeed(job)\n",
        caught_by=(
            "tests/unit/actions/test_actions.py::test_exception_is_retried_max_retry_times_and_then_dead_lettered",
            "tests/integration/upstream/test_ddmq_faults_pipeline.py::test_failure_in_the_last_action_keeps_the_body",
        ),
        rows=("W12", "W13"),
    ),
    Mutant(
        "a message that timed out for the last time is dropped",
        "upstream/outcomes/outcomes.py",
        old='            self._exhausted(job, "timeouts", reason)\n',
        new="            self.succeed(job)\n",
        caught_by=(
            "tests/unit/upstream/delivery/test_group.py::test_unanswered_delivery_comes_again_and_is_dead_lettered_after_max_retry",
        ),
        rows=("W14",),
    ),
    Mutant(
        "an error in a filter or script counts as filtered",
        "actions/script/python_action.py",
        old="""\
    if on_error == "fail":
        return error
""",
        new="""\
    if on_error == "fail":
        action.context.count("filtered")
        return Status.FINISH
""",
        caught_by=(
            "tests/unit/actions/test_filter.py::test_error_is_counted_and_ends_as_the_group_chose",
            "tests/unit/actions/test_python_action.py::test_error_of_a_script_is_never_taken_for_filtered",
        ),
        rows=("W16",),
    ),
    Mutant(
        "the Json action consumes empty bodies",
        "actions/json_action.py",
        old="                answers.append(error)\n",
        new='                answers.append(error if bytes(job.body).strip() not in (b"", b"null") else Status.FINISH)\n',
        caught_by=(
            "tests/integration/upstream/test_ddmq_faults_pipeline.py::test_body_that_json_cannot_take_is_dead_lettered_with_the_reason",
        ),
        rows=("W17",),
    ),
    Mutant(
        "a message that cannot be sent to the retry topic counts as consumed",
        "upstream/outcomes/departing_jobs.py",
        old="""\
        if self._retry_topic is None or not self._retry_topic.send(job, wait_ms, resolved):
            return False
""",
        new="""\
        if self._retry_topic is None or not self._retry_topic.send(job, wait_ms, resolved):
            self._over(job)
            return True
""",
        caught_by=("tests/unit/upstream/retry/test_retry_topic.py::test_full_disk_retries_in_place",),
        rows=("W18",),
    ),
    Mutant(
        "a failed push counts as consumed",
        "actions/http/action.py",
        old='            raise PushFailed(f"{ticket.target.url}: {failure}", delay_ms=failure.delay_ms) from None\n',
        new='            return HttpReply(200, b"", {})\n',
        caught_by=("tests/simulation/test_pushes.py::test_what_push_gives_up_is_a_dead_letter",),
        rows=("W15",),
    ),
    Mutant(
        "a message without a body fails its pull",
        "upstream/embedded/source.py",
        old="            located = self._store.locate(places, locate_unpacked)\n",
        new="""\
            located = self._store.locate(places, locate_unpacked)
            if any(begin == end for _, begin, end, _, _ in located):
                raise TypeError("there is no body")
""",
        caught_by=(
            "tests/integration/proxy/services/test_ddmq_faults_wire.py::test_message_without_a_body_is_delivered_with_its_neighbours",
        ),
        rows=("W25",),
    ),
    Mutant(
        "a start does not read which messages became dead letters",
        "upstream/retry/dead_letters.py",
        old="queue, broker.replaced_by_dead_letters, begin",
        new="queue, lambda each, _: broker.replaced_by_dead_letters(each, each.max_offset), begin",
        caught_by=(
            "tests/unit/upstream/retry/test_dead_letters.py::test_restart_between_record_and_journal_entry_writes_no_dead_letter_twice",
        ),
    ),
    Mutant(
        "a message finishes before its dead letter is durable",
        "upstream/retry/dead_letters.py",
        old="""\
            self._broker.append_dead_letter(self.group, job, reason, partial(self._done, job, resolved))
            tracker.undecided[job.offset] = False
""",
        new="""\
            self._broker.append_dead_letter(self.group, job, reason, lambda *_: None)
            self._done(job, resolved, None, self._broker.dead_letter_topic(self.group), 0, 0)
""",
        caught_by=("tests/unit/upstream/retry/test_dead_letters.py::test_key_waits_until_the_dead_letter_is_durable",),
    ),
    Mutant(
        "an arrival of many messages wakes one parked pull",
        "upstream/waiting/buffer.py",
        old="""\
            self.unpark(parked)
            parked.wake(batch)
""",
        new="""\
            self.unpark(parked)
            parked.wake(batch)
            return
""",
        caught_by=("tests/unit/upstream/waiting/test_buffer.py::test_one_arrival_of_many_wakes_many",),
        rows=("W51", "W53"),
    ),
    Mutant(
        "an arrival removes a parked pull that it cannot serve",
        "upstream/waiting/buffer.py",
        old="""\
            parked = self._first_parked(line)
            if parked is None:
                return
            batch = self.take(parked.topic, parked.count_max, parked.holder)
            if batch is None:
                return
            self.unpark(parked)
""",
        new="""\
            waiting = [each for other in self._lines.values() for each in other.parked if each.open]
            parked = self._first_parked(line) or next(iter(waiting), None)
            if parked is None:
                return
            self.unpark(parked)
            batch = self.take(parked.topic, parked.count_max, parked.holder)
            if batch is None:
                return
""",
        caught_by=(
            "tests/integration/upstream/test_ddmq_faults_pipeline.py::test_parked_pulls_survive_arrivals_that_they_cannot_take",
        ),
        rows=("W40",),
    ),
    Mutant(
        "attempts that get no permit spend rate tokens",
        "upstream/running/admission.py",
        old="            bucket.take(taken)\n",
        new="            bucket.take(max(taken, 1))\n",
        caught_by=(
            "tests/integration/upstream/test_ddmq_faults_pipeline.py::test_rate_tokens_are_not_spent_while_permits_are_out",
        ),
        rows=("W42",),
    ),
    Mutant(
        "the file sink's ledger does not record the sum of a pending write",
        "actions/sinks/files/writer.py",
        old="    return PendingBytes(length + len(data), crc32(data), offsets, max(each.stored_ms for each in members))\n",
        new="    return PendingBytes(length + len(data), 0, offsets, max(each.stored_ms for each in members))\n",
        caught_by=(
            "tests/unit/actions/sinks/test_files.py::test_each_message_is_once_in_the_files_whatever_moment_the_node_dies",
        ),
        rows=("W61",),
    ),
)
