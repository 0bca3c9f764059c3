"""A message counts as consumed when it was answered with success, and never before."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="after a crash what was delivered is delivered again",
        file="broker/scheduled/timer/opening.py",
        old="    yield from _apply_decisions(parts, 0, {})\n",
        new="",
        caught_by=(
            "tests/integration/broker/scheduled/test_loops_stops.py::test_stop_at_every_change_loses_repeats_and_hurries_nothing",
        ),
        rows=("W90",),
    ),
    Mutant(
        name="a cancel is answered OK though it is too late",
        file="broker/scheduled/recurring/cancel.py",
        old="    return CancelOutcome.TOO_LATE if was_delivered else CancelOutcome.UNKNOWN\n",
        new="    return CancelOutcome.CANCELLED if was_delivered else CancelOutcome.UNKNOWN\n",
        caught_by=(
            "tests/integration/proxy/node/test_loops_node.py::test_cancels_are_answered_with_what_became_of_them",
        ),
        rows=("W91",),
    ),
    Mutant(
        name="a cancel is answered before it is stored",
        file="broker/scheduled/timer/cancel.py",
        old=("    yield from awaited.steps()\n    if store"),
        new="    if store",
        caught_by=("tests/integration/broker/scheduled/test_loops.py::test_cancel_survives_a_kill",),
        rows=("W91",),
    ),
    Mutant(
        name="deliveries of a loop are spread over the queues",
        file="broker/scheduled/recurring/puts.py",
        old='    return put._replace(properties=b"KEYS\\x01%b\\x02%b" % (occurrence.id.encode(), rest))\n',
        new=(
            "    queue_id = occurrence.made % len(put.topic.queues)\n"
            '    return put._replace(queue_id=queue_id, properties=b"KEYS\\x01%b\\x02%b" % '
            "(occurrence.id.encode(), rest))\n"
        ),
        caught_by=(
            "tests/integration/proxy/node/test_loops_node.py::test_missed_deliveries_of_a_loop_reach_a_consumer",
        ),
        rows=("W91",),
    ),
    Mutant(
        name="a queue that was given back waits for records of its earlier term",
        file="upstream/delivery/group_queues.py",
        old="            group_queue.tracker.undecided.clear()\n",
        new="",
        caught_by=(
            "tests/unit/upstream/delivery/test_revoked_queues.py::test_record_of_an_earlier_term_finishes_nothing_of_the_next",
        ),
    ),
    Mutant(
        name="a client that connects anew is another one",
        file="proxy/limits/limiter.py",
        old=("            self._kept[meter.name] = meter\n            self._bound()\n\n    def _bound"),
        new=("            self._bound()\n\n    def _bound"),
        caught_by=("tests/unit/proxy/limits/test_limiter.py::test_connecting_anew_brings_no_further_second",),
    ),
    Mutant(
        name="sends and pulls of a client wait for the same rate",
        file="proxy/limits/meter.py",
        old="        found = self._rates.get(service)\n",
        new="        found = next(iter(self._rates.values()), None)\n",
        caught_by=("tests/unit/proxy/limits/test_meter.py::test_another_line_holds_at_once_and_forgives_nothing",),
    ),
    Mutant(
        name="a concurrent consumer reads ahead without a bound",
        file="broker/consumer/concurrent.py",
        old=("        if self.reader.next - low >= self.owner.options.span_max:\n            return False\n"),
        new="",
        caught_by=(
            "tests/unit/broker/features/test_concurrent_consumer.py::test_reading_stops_so_far_ahead_of_an_unfinished_message",
        ),
    ),
    Mutant(
        name="a refused timer is dropped",
        file="broker/scheduled/timer/due.py",
        old=(
            "        self.refused[unit.physical] = Refused(message, reason, self._clock.wall_ms())\n        self._table"
        ),
        new=("        self._table.forget(unit)\n        self._table"),
        caught_by=(
            "tests/integration/broker/scheduled/test_timers.py::test_refused_timer_holds_up_nobody",
            "tests/integration/broker/scheduled/test_loops.py::test_topic_that_is_gone_holds_up_nobody_and_loses_nothing",
        ),
    ),
    Mutant(
        name="a timer beyond the window is delivered when it ought to roll",
        file="broker/scheduled/timer/due.py",
        old=("        if unit.magic & MAGIC_ROLL:\n            if unit.magic & MAGIC_DELETE and"),
        new=(
            "        if unit.magic & MAGIC_ROLL and unit.magic & MAGIC_DELETE:\n"
            "            if unit.magic & MAGIC_DELETE and"
        ),
        caught_by=(
            "tests/integration/broker/scheduled/test_timers.py::test_far_timers_roll",
            "tests/integration/broker/scheduled/test_timers.py::test_a_year_and_more",
        ),
    ),
    Mutant(
        name="wheel and log made anew do not ask what was delivered",
        file="broker/scheduled/timer/opening.py",
        old="    yield from _apply_decisions(parts, 0, {})\n",
        new="    yield from _apply_decisions(parts, parts.store.end, {})\n",
        caught_by=(
            "tests/integration/broker/scheduled/test_timers_model.py::test_any_prefix_of_the_timer_log_gives_all_that_is_pending",
            "tests/lifecycle/test_kill_points.py::test_kill_at_some_changes_breaks_nothing[0-Timers]",
        ),
        seconds_max=300,
    ),
    Mutant(
        name="of a batch with a bad message the others are stored",
        file="proxy/services/producer_service.py",
        old=("        except Refusal as refusal:\n            give_tokens_back(ports)\n            refusal.text"),
        new=(
            "        except Refusal as refusal:\n"
            "            waiting = _NONE_WAITS\n"
            "            if puts:\n"
            "                return self._publishing.append(puts, ports, connection, call, "
            "stored=_stored_untold)\n"
            "            refusal.text"
        ),
        caught_by=(
            "tests/integration/proxy/node/test_ddmq_faults_node.py::test_batch_is_checked_like_single_messages_and_stored_whole",
        ),
        rows=("W82",),
    ),
    Mutant(
        name="messages pass without a permit",
        file="upstream/running/admission.py",
        old="        room = min(len(ready), permits.free, self._count_max)\n",
        new="        room = len(ready)\n",
        caught_by=("tests/unit/upstream/delivery/test_group.py::test_concurrency_counts_only_jobs_past_the_gate",),
        rows=("W44",),
    ),
    Mutant(
        name="a half message above a rate is refused at once",
        file="proxy/services/transaction_service.py",
        old="                again and self._limited.wait(",
        new="                not again and self._limited.wait(",
        caught_by=("tests/integration/proxy/services/test_limited_sends.py::test_other_sends_are_tried_once_more_too",),
    ),
    Mutant(
        name="a half message overtakes a send of its connection that waits",
        file="proxy/services/transaction_service.py",
        old="        if connection in self._limited.waiting:\n",
        new="        if self._limited.waiting is None:\n",
        caught_by=(
            "tests/integration/proxy/services/test_limited_sends.py::test_half_behind_a_send_that_waits_keeps_its_place",
        ),
    ),
    Mutant(
        name="results that come while the node starts are answered with an exception",
        file="proxy/services/starting_service.py",
        old="        if carries_results(request.results):\n",
        new="        if request.results is None:\n",
        caught_by=(
            "tests/integration/proxy/services/test_results_at_start.py::test_results_wait_for_the_start_and_count_first",
            "tests/simulation/test_sdks.py::test_kills_cost_libraries_nothing_that_was_answered",
        ),
    ),
    Mutant(
        name="results that cannot be recorded are answered with an exception",
        file="proxy/services/consumer_service.py",
        old="            if refused is not None and carries_results(request.results):\n",
        new="            if refused is not None and not request.results:\n",
        caught_by=(
            "tests/integration/proxy/services/test_results_at_start.py::test_results_that_cannot_be_recorded_get_no_answer",
        ),
    ),
)
