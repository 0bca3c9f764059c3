"""Timers: log, wheel, checkpoint, stages, rolls, cancels, retention."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PUTS = "tests/unit/broker/scheduled/test_timer_puts.py"
TIMERS = "tests/integration/broker/scheduled/test_timers.py"
CANCEL = "tests/integration/broker/scheduled/test_timers_cancel.py"
REBUILD = "tests/integration/broker/scheduled/test_timers_rebuild.py"
GLITCHES = "tests/integration/broker/scheduled/test_clock_glitches.py"
LOOPS = "tests/integration/broker/scheduled/test_loops.py"
KILLS = "tests/lifecycle/test_kill_points.py"

MUTANTS = (
    Mutant(
        name="a slot of the wheel has its count in the last field",
        file="broker/scheduled/timer/pending/wheel.py",
        old="            run.append(SLOT.pack(time, first, last, count, 0))\n",
        new="            run.append(SLOT.pack(time, first, last, 0, count))\n",
        caught_by=(f"{TIMERS}::test_wheel_has_rocketmqs_form",),
    ),
    Mutant(
        name="a unit of the timer log is not linked back to the one before in its slot",
        file="broker/scheduled/timer/pending/table.py",
        old="                previous = slot.last\n",
        new="                previous = -1\n",
        caught_by=(f"{CANCEL}::test_cancel_is_rocketmqs",),
    ),
    Mutant(
        name="a mark of the timer log never reaches its file",
        file="broker/scheduled/timer/pending/log.py",
        old="            self._write_at(position + _SIZE_AT, bytes(4))\n",
        new="",
        caught_by=("tests/unit/broker/scheduled/test_timer_log.py::TestTimerLog",),
    ),
    Mutant(
        name="the timers' checkpoint is written in place, in two pieces",
        file="broker/scheduled/timer/pending/state.py",
        old='        yield from writing_whole(self._disk, self.check_path, data.ljust(CHECK_BYTES, b"\\x00"))\n',
        new="""        file = self._disk.open(self.check_path, create=True)
        try:
            file.write(0, [data[: _CHECK.size]])
            file.write(_CHECK.size, [data.ljust(CHECK_BYTES, b"\\x00")[_CHECK.size :]])
            yield file
        finally:
            file.close()
""",
        caught_by=(f"{TIMERS}::test_kill_while_the_checkpoint_is_written_is_not_taken_for_rocketmqs",),
    ),
    Mutant(
        name="a timed message says its slot for its moment",
        file="broker/scheduled/timer/puts.py",
        old="        own = _FACTS % (due_ms, slot, ",
        new="        own = _FACTS % (slot, slot, ",
        caught_by=(
            f"{PUTS}::test_timed_message_stands_in_the_log_as_rocketmq_writes_it",
            "tests/unit/broker/format/test_wait_properties.py::test_message_waits_as_its_properties_ask",
        ),
    ),
    Mutant(
        name="a moment wins over a level",
        file="broker/waits.py",
        old="        if level:\n",
        new="        if level and not (deliver_at_ms or delay_ms):\n",
        caught_by=(f"{PUTS}::test_level_wins_over_moment",),
    ),
    Mutant(
        name="the last moment of the horizon is refused",
        file="broker/scheduled/timer/puts.py",
        old="        if due_ms - now > limit:\n",
        new="        if due_ms - now >= limit:\n",
        caught_by=(f"{PUTS}::test_horizon_is_the_last_moment_that_is_taken",),
    ),
    Mutant(
        name="what is due this very moment is made to wait",
        file="broker/scheduled/timer/puts.py",
        old="        if due_ms <= now:\n",
        new="        if due_ms <= 0:\n",
        caught_by=(f"{PUTS}::test_past_due_is_delivered_at_once",),
    ),
    Mutant(
        name="the fuller a slot is the less is refused",
        file="broker/scheduled/timer/puts.py",
        old="self._random.random() * limit < count - limit:",
        new="self._random.random() * limit > count - limit:",
        caught_by=(f"{PUTS}::test_refusals_rise_with_the_slot",),
    ),
    Mutant(
        name="a paused stage works on",
        file="broker/scheduled/timer/stages.py",
        old="        return not self._paused or stage not in self._paused\n",
        new="        return True\n",
        caught_by=(f"{TIMERS}::test_stages_pause_and_resume",),
    ),
    Mutant(
        name="a timer is due when its slot begins",
        file="broker/scheduled/timer/pending/table.py",
        old="                into = timers\n",
        new="                into, key = timers, slot_ms\n",
        caught_by=(f"{TIMERS}::test_each_timer_is_delivered_at_its_very_millisecond",),
    ),
    Mutant(
        name="a refused timer is dropped",
        file="broker/scheduled/timer/due.py",
        old="        self.refused[unit.physical] = Refused(message, reason, self._clock.wall_ms())\n"
        "        self._table",
        new="        self._table.forget(unit)\n        self._table",
        caught_by=(
            f"{TIMERS}::test_refused_timer_holds_up_nobody",
            f"{LOOPS}::test_topic_that_is_gone_holds_up_nobody_and_loses_nothing",
        ),
    ),
    Mutant(
        name="a timer beyond the window is delivered when it ought to roll",
        file="broker/scheduled/timer/due.py",
        old="        if unit.magic & MAGIC_ROLL:\n            if unit.magic & MAGIC_DELETE and",
        new="        if unit.magic & MAGIC_ROLL and unit.magic & MAGIC_DELETE:\n"
        "            if unit.magic & MAGIC_DELETE and",
        caught_by=(f"{TIMERS}::test_far_timers_roll", f"{TIMERS}::test_a_year_and_more"),
    ),
    Mutant(
        name="units behind the checkpoint are taken over and not counted as pending",
        file="broker/scheduled/timer/opening.py",
        old="        if count > 0:\n            table.pending[",
        new="        if count > 1:\n            table.pending[",
        caught_by=(f"{TIMERS}::test_kill_between_a_clean_stop_and_the_first_checkpoint_forgets_no_timer",),
    ),
    Mutant(
        name="wheel and log made anew do not ask what was delivered",
        file="broker/scheduled/timer/opening.py",
        old="    yield from _apply_decisions(parts, 0, {})\n",
        new="    yield from _apply_decisions(parts, parts.store.end, {})\n",
        caught_by=(
            "tests/integration/broker/scheduled/test_timers_model.py::test_any_prefix_of_the_timer_log_gives_all_that_is_pending",
            f"{KILLS}::test_kill_at_some_changes_breaks_nothing[0-Timers]",
        ),
        seconds_max=300,
    ),
    Mutant(
        name="a cancel counts as one more timer of its slot",
        file="broker/scheduled/timer/pending/table.py",
        old="            count = -1 if entry.cancel else 1\n            if slot is None:",
        new="            count = 1\n            if slot is None:",
        caught_by=(f"{CANCEL}::test_cancel_is_rocketmqs",),
    ),
    Mutant(
        name="a cancel of RocketMQ's that names the topic is not understood",
        file="broker/scheduled/timer/due.py",
        old='        return key in keys or (find_property(block, REAL_TOPIC_NAME) or b"") + b"+" + key in keys\n',
        new="        return key in keys\n",
        caught_by=(f"{CANCEL}::test_cancels_of_rocketmq_are_honoured",),
    ),
    Mutant(
        name="a cancel that came too late says that it was in time",
        file="broker/scheduled/timer/cancel.py",
        old="        return CancelOutcome.CANCELLED if replaced else CancelOutcome.TOO_LATE\n",
        new="        return CancelOutcome.CANCELLED\n",
        caught_by=(f"{CANCEL}::test_answers_too_late_and_unknown",),
    ),
    Mutant(
        name="a cancel is remembered and not stored",
        file="broker/scheduled/timer/cancel.py",
        old="    yield from _append(parts, target, [_cancel_put(parts, target)])\n",
        new="    parts.take_out(target.message.physical)\n",
        caught_by=(
            f"{CANCEL}::test_cancel_is_rocketmqs",
            f"{LOOPS}::test_cancel_survives_a_kill",
            "tests/integration/broker/scheduled/test_loops_stops.py::test_any_downtime_gives_all_that_was_missed",
        ),
    ),
    Mutant(
        name="pending timers go with their log file",
        file="broker/scheduled/timer/retention_hold.py",
        old="            if table.is_pending(unit, position) and unit.physical not in due.superseded:\n",
        new="            if table.is_pending(unit, position) and unit.physical in due.superseded:\n",
        caught_by=(
            "tests/integration/broker/scheduled/test_timers_retention_hold.py::test_pending_timer_moves_on_as_its_files_go",
        ),
    ),
    Mutant(
        name="retention goes on in a timer log that was made anew where it was in the old one",
        file="broker/scheduled/timer/pending/log.py",
        old="        self.count = self.first = self.relocated = self._next = 0\n",
        new="        self.count = self.first = self._next = 0\n",
        caught_by=(f"{REBUILD}::test_no_pending_timer_is_lost_to_retention_after_a_rebuild",),
    ),
    Mutant(
        name="files of the timer log go whatever is about to be delivered of them",
        file="broker/scheduled/timer/pending/log.py",
        old="if following > self.count or self.position(following) > keep or self",
        new="if following > self.count or self",
        caught_by=(
            f"{REBUILD}::test_files_of_the_timer_log_stay_while_positions_in_them_are_about_to_be_delivered",
            "tests/unit/broker/scheduled/test_timer_log.py::TestTimerLog",
        ),
    ),
    Mutant(
        name="a cancel does not wait while timers are made anew",
        file="broker/scheduled/timer/parts.py",
        old="        return self.mending is not None\n\n    def begin_mending",
        new="        return False\n\n    def begin_mending",
        caught_by=(
            f"{REBUILD}::test_cancel_of_a_program_without_a_loop_makes_all_of_it_anew_at_once",
            f"{REBUILD}::test_cancel_by_the_id_of_a_loop_waits_too",
        ),
    ),
    Mutant(
        name="timers are made anew while a cancel or a copy is under way",
        file="broker/scheduled/timer/due.py",
        old="        return self.delivery.in_flight + len(self.held) + self._deferring\n",
        new="        return self.delivery.in_flight\n",
        caught_by=(f"{REBUILD}::test_what_is_under_way_ends_before_timers_are_made_anew",),
    ),
    Mutant(
        name="a rebuild of the timers that was broken off counts as made",
        file="broker/scheduled/timer/parts.py",
        old="            self.begin_mending()\n            raise\n",
        new="            raise\n",
        caught_by=(f"{REBUILD}::test_rebuild_that_a_full_disk_breaks_off_begins_again",),
    ),
    Mutant(
        name="messages do not grow old while their store timestamps are ahead of the clock",
        file="broker/log/arrivals.py",
        old="        return min(stamp_ms, self._clock.wall_ms() - round(seconds * 1000))\n",
        new="        return stamp_ms\n",
        caught_by=(
            f"{GLITCHES}::test_messages_grow_old_after_a_clock_that_was_ahead",
            "tests/unit/broker/log/test_arrivals.py::test_ages_grow_though_all_stamps_are_the_same",
        ),
    ),
    Mutant(
        name="timers that were sent after a clock was set right wait until it shows the wrong time",
        file="broker/scheduled/timer/opening.py",
        old="    yield from _open_slot(parts)\n",
        new="",
        caught_by=(f"{GLITCHES}::test_timers_are_on_time_after_a_forward_glitch_and_a_restart",),
    ),
    Mutant(
        name="units in slots of a clock that was ahead are taken over",
        file="broker/scheduled/timer/opening.py",
        old="            return False\n",
        new="            pass\n",
        caught_by=(f"{GLITCHES}::test_timers_are_on_time_after_a_forward_glitch_and_a_restart",),
    ),
    Mutant(
        name="RocketMQ is told that its master enqueued nothing",
        file="broker/scheduled/timer/pending/state.py",
        old="check.offset, _NO_MASTER, *self._versions)",
        new="check.offset, 0, *self._versions)",
        caught_by=(
            "tests/integration/broker/scheduled/test_timers_stops.py::test_rocketmq_enqueues_nothing_again_after_a_kill",
        ),
    ),
    Mutant(
        name="RocketMQ is told of a later moment and offset than what waits",
        file="broker/scheduled/timer/pending/state.py",
        old="_CHECK.pack(check.read_ms, check.log_end, check.offset, _NO_MASTER,",
        new="_CHECK.pack(check.read_ms + 3_600_000, check.log_end, check.offset + 9, _NO_MASTER,",
        caught_by=("tests/interop/test_timers.py::test_what_waits_goes_there_and_back_again",),
        seconds_max=900,
    ),
    Mutant(
        name="a receipt of a batch has the handle of another",
        file="proxy/services/producer_service.py",
        old="        for place, out_ms in waiting.items():\n            unique_key = receipts[place].msg_id\n",
        new="        for place, out_ms in waiting.items():\n            unique_key = receipts[0].msg_id\n",
        caught_by=("tests/integration/proxy/services/test_timers_wire.py::test_batch_mixes_all_kinds_of_delay",),
    ),
)
