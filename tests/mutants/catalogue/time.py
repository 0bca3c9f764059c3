"""Promise 4: delayed and timed messages are never early and never lost."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a timer is due at the start of its wheel slot",
        "broker/scheduled/timer/pending/table.py",
        old="                into = timers\n",
        new="                into, key = timers, slot_ms\n",
        caught_by=(
            "tests/integration/broker/scheduled/test_timers.py::test_each_timer_is_delivered_at_its_very_millisecond",
        ),
    ),
    Mutant(
        "a clock that is set back delays messages that were already waiting",
        "broker/scheduled/delay/level_queue.py",
        old="                return min(due, self._clock.wall_ms() + left_ms)\n",
        new="                return due\n",
        caught_by=(
            "tests/unit/broker/scheduled/test_delay_level_queue.py::test_clock_that_was_set_back_makes_nothing_wait_longer_than_the_delay",
            "tests/integration/broker/scheduled/test_delays.py::test_back_step_neither_repeats_nor_delays_by_the_step",
        ),
    ),
    Mutant(
        "a message whose topic refuses it blocks everything due after it",
        "broker/scheduled/delivery.py",
        old="""\
                    waiter.refuse(message, str(error))
                    continue
""",
        new="""\
                    waiter.wait([*run, *messages[place:]], error)
                    return False
""",
        caught_by=(
            "tests/integration/broker/scheduled/test_loops.py::test_topic_that_is_gone_holds_up_nobody_and_loses_nothing",
        ),
        rows=("W87",),
    ),
    Mutant(
        "a start does not read which delayed messages were delivered since the checkpoint",
        "broker/scheduled/delay/delays.py",
        old="            yield from decided(start, delays._decided)\n",
        new="            yield from decided(store.end, delays._decided)\n",
        caught_by=("tests/lifecycle/test_kill_points.py::test_kill_at_some_changes_breaks_nothing[0-Delays]",),
    ),
    Mutant(
        "a checkpoint within a rebuild of timers forgets which were delivered",
        "broker/scheduled/timer/timers.py",
        old="            if parts.entering.decided_from is not None:\n",
        new="            if parts.entering.decided_from is not None and clean is None:\n",
        caught_by=(
            "tests/integration/broker/scheduled/test_timers_stops.py::test_stop_before_a_rebuild_has_entered_all_repeats_nothing",
        ),
    ),
    Mutant(
        "a rebuilt timer wheel does not read which timers were delivered",
        "broker/scheduled/timer/opening.py",
        old="    yield from _apply_decisions(parts, 0, {})\n",
        new="    yield from _apply_decisions(parts, parts.store.end, {})\n",
        caught_by=(
            "tests/integration/broker/scheduled/test_timers_model.py::test_any_prefix_of_the_timer_log_gives_all_that_is_pending",
            "tests/lifecycle/test_kill_points.py::test_kill_at_some_changes_breaks_nothing[0-Timers]",
        ),
    ),
    Mutant(
        "retention deletes timers that are still pending",
        "broker/scheduled/timer/retention_hold.py",
        old="            if table.is_pending(unit, position) and unit.physical not in due.superseded:\n",
        new="            if table.is_pending(unit, position) and unit.physical in due.superseded:\n",
        caught_by=(
            "tests/integration/broker/scheduled/test_timers_retention_hold.py::test_pending_timer_moves_on_as_its_files_go",
        ),
    ),
    Mutant(
        "a cancel is answered before it is durable",
        "broker/scheduled/timer/cancel.py",
        old="""\
    yield from awaited.steps()
    if store""",
        new="    if store",
        caught_by=("tests/integration/broker/scheduled/test_loops.py::test_cancel_survives_a_kill",),
        rows=("W91",),
    ),
    Mutant(
        "the record of a cancel does not name the message that it replaces",
        "broker/scheduled/delay/cancel.py",
        old="""\
            prepared_offset=prepared_offset_of(each.physical),
        )
        for each in waiting
""",
        new="""\
        )
        for each in waiting
""",
        caught_by=(
            "tests/integration/broker/scheduled/test_delays_cancel.py::test_cancel_survives_a_kill",
            "tests/acceptance/test_delays.py::test_cancel_says_whether_it_was_in_time",
        ),
    ),
    Mutant(
        "occurrences that were due while the node was down are skipped",
        "broker/scheduled/recurring/loops.py",
        old="        missed = max(1, each.missed(now // 1000))\n",
        new="""\
        each = each.later(max(0, each.missed(now // 1000) - 1)) or each
        missed = 1
""",
        caught_by=(
            "tests/integration/broker/scheduled/test_loops.py::test_missed_in_a_downtime_come_in_order_and_the_rhythm_goes_on",
        ),
        rows=("W90",),
    ),
    Mutant(
        "rescheduling one occurrence ends its loop",
        "broker/scheduled/timer/cancel.py",
        old='    released = release(target.record, parts.store.topics, (*TIMER_NAMES, b"UNIQ_KEY"))\n',
        new='    released = release(target.record, parts.store.topics, (*TIMER_NAMES, b"UNIQ_KEY", MARK))\n',
        caught_by=(
            "tests/integration/broker/scheduled/test_loops.py::test_moved_occurrence_is_delivered_then_and_the_loop_goes_on",
            "tests/lifecycle/test_kill_points.py::test_run_goes_along_every_row[Loops]",
        ),
    ),
    Mutant(
        "a cancel finds only the first occurrence of a loop",
        "broker/scheduled/recurring/loops.py",
        old='    keys = text if occurrence.made == 0 else b"%b %b" % (text, occurrence.first.id.encode())\n',
        new="    keys = text\n",
        caught_by=(
            "tests/integration/broker/scheduled/test_loops.py::test_cancel_by_any_id_of_a_loop_ends_it",
            "tests/integration/broker/scheduled/test_loops.py::test_cancel_among_missed_occurrences_ends_them",
        ),
        rows=("W58",),
    ),
)
