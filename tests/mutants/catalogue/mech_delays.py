"""Delay levels, and the retries and dead letters that go through them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

LEVELS = "tests/unit/broker/scheduled/test_delay_levels.py"
LEVEL_QUEUE = "tests/unit/broker/scheduled/test_delay_level_queue.py"
DELAYS = "tests/integration/broker/scheduled/test_delays.py"
CONCURRENT = "tests/unit/broker/features/test_concurrent_consumer.py"
RETRY_TOPIC = "tests/unit/upstream/retry/test_retry_topic.py"
REDRIVE = "tests/integration/broker/features/test_redrive.py"
KILLS = "tests/lifecycle/test_kill_points.py"
DEAD_LETTERS = "tests/unit/upstream/retry/test_dead_letters.py"

MUTANTS = (
    Mutant(
        name="a delay level is missing from the standard list",
        file="broker/scheduled/delay/levels.py",
        old='STANDARD_LEVELS = "1s 5s 10s 30s 1m ',
        new='STANDARD_LEVELS = "1s 5s 10s 1m ',
        caught_by=(
            f"{LEVELS}::test_standard_list_is_rocketmqs",
            f"{DELAYS}::test_each_level_is_delivered_at_its_due_time",
            f"{CONCURRENT}::test_without_a_bound_sixteen_retries_are_the_bound",
        ),
    ),
    Mutant(
        name="a level above the highest is the first",
        file="broker/scheduled/delay/levels.py",
        old="        return min(asked, len(self.delays_ms))\n",
        new="        return asked if asked <= len(self.delays_ms) else 1\n",
        caught_by=(
            f"{LEVELS}::test_standard_list_is_rocketmqs",
            f"{DELAYS}::test_level_above_the_highest_is_the_highest",
        ),
    ),
    Mutant(
        name="a level waits in the queue after its own",
        file="broker/scheduled/delay/puts.py",
        old="put._replace(topic=topic, queue_id=level - 1, ",
        new="put._replace(topic=topic, queue_id=level % len(topic.queues), ",
        caught_by=(
            f"{DELAYS}::test_delayed_message_stands_in_the_log_as_rocketmq_writes_it",
            f"{CONCURRENT}::test_the_retry_is_rocketmqs_record",
        ),
    ),
    Mutant(
        name="a changed list of levels changes what waits already",
        file="broker/scheduled/delay/levels.py",
        old="    wait = find_property(properties, WAIT_NAME)\n",
        new="    wait = None\n",
        caught_by=(f"{LEVELS}::test_due_time_is_the_records_own_or_the_lists",),
    ),
    Mutant(
        name="what a step back promised stays a moment of the wall clock",
        file="broker/scheduled/delay/level_queue.py",
        old="            self._caps.append((end, self._clock.monotonic() + self.delay_ms / 1000))\n",
        new="            self._caps.append((end, self._clock.wall_ms() / 1000 - 1000 + self.delay_ms / 1000))\n",
        caught_by=(f"{LEVEL_QUEUE}::test_clock_that_is_set_right_again_hurries_nothing",),
    ),
    Mutant(
        name="what came after a step back of the clock waits for what came before",
        file="broker/scheduled/delay/level_queue.py",
        old="        if start > last.start and len(self._runs) < _RUNS_MAX:\n",
        new="        if start < 0:\n",
        caught_by=(f"{LEVEL_QUEUE}::test_what_came_after_a_step_back_does_not_wait_for_what_came_before",),
    ),
    Mutant(
        name="a clock that was set back holds up what waited before",
        file="broker/scheduled/delay/level_queue.py",
        old="                return min(due, self._clock.wall_ms() + left_ms)\n",
        new="                return due\n",
        caught_by=(
            f"{LEVEL_QUEUE}::test_clock_that_was_set_back_makes_nothing_wait_longer_than_the_delay",
            f"{LEVEL_QUEUE}::test_message_comes_when_it_is_due_or_its_delay_has_passed_whatever_the_clock_does",
            f"{DELAYS}::test_back_step_neither_repeats_nor_delays_by_the_step",
        ),
    ),
    Mutant(
        name="a delivered message keeps the properties of its delay",
        file="broker/scheduled/release.py",
        old="    return moved(record, body, without(block, names), topic, queue_id)\n",
        new="    return moved(record, body, block, topic, queue_id)\n",
        caught_by=(f"{DELAYS}::test_delivered_message_is_the_one_that_was_sent",),
    ),
    Mutant(
        name="a refused message holds its level",
        file="broker/scheduled/delivery.py",
        old="                    waiter.refuse(message, str(error))\n                    continue\n",
        new="                    waiter.wait([*run, *messages[place:]], error)\n                    return False\n",
        caught_by=(f"{DELAYS}::test_refused_message_does_not_hold_its_level",),
    ),
    Mutant(
        name="what a full disk does not take is passed over",
        file="broker/scheduled/delay/due.py",
        old="                level.give_back(offsets)\n",
        new="                pass\n",
        caught_by=(f"{DELAYS}::test_full_disk_makes_delivery_wait",),
    ),
    Mutant(
        name="a damaged record is passed over silently",
        file="broker/scheduled/delay/due.py",
        old="        self.metrics.counter(counted.LOST).add()\n",
        new="",
        caught_by=(f"{DELAYS}::test_damaged_record_is_counted_and_holds_nothing_up",),
    ),
    Mutant(
        name="a position that RocketMQ moved is not believed",
        file="broker/scheduled/delay/delays.py",
        old="            level.begin_at(positions.get(number, 0))\n",
        new="            level.begin_at(0)\n",
        caught_by=(f"{DELAYS}::test_position_that_rocketmq_moved_is_honoured",),
    ),
    Mutant(
        name="levels count from 0 in RocketMQ's file",
        file="broker/scheduled/delay/state.py",
        old="        table = {str(each.level): each.position for",
        new="        table = {str(each.level - 1): each.position for",
        caught_by=(f"{DELAYS}::test_positions_have_rocketmqs_shape",),
    ),
    Mutant(
        name="a start does not read what was delivered since the checkpoint",
        file="broker/scheduled/delay/delays.py",
        old="            yield from decided(start, delays._decided)\n",
        new="            yield from decided(store.end, delays._decided)\n",
        caught_by=(f"{KILLS}::test_kill_at_some_changes_breaks_nothing[0-Delays]",),
    ),
    Mutant(
        name="a step delivers the newest of its level first",
        file="broker/scheduled/delay/due.py",
        old="max(1, STEP_BYTES // len(due)))\n",
        new="max(1, STEP_BYTES // len(due)))[::-1]\n",
        caught_by=(f"{DELAYS}::test_levels_are_delivered_in_order_without_overtaking",),
    ),
    Mutant(
        name="the record of a cancel does not name what it takes the place of",
        file="broker/scheduled/delay/cancel.py",
        old="            prepared_offset=prepared_offset_of(each.physical),\n        )\n        for each in waiting\n",
        new="        )\n        for each in waiting\n",
        caught_by=(
            "tests/integration/broker/scheduled/test_delays_cancel.py::test_cancel_survives_a_kill",
            "tests/acceptance/test_delays.py::test_cancel_says_whether_it_was_in_time",
        ),
    ),
    Mutant(
        name="a level's position goes to RocketMQ one too high",
        file="broker/scheduled/delay/state.py",
        old="each.position for each in levels.values()}\n        yield from",
        new="each.position + 1 for each in levels.values()}\n        yield from",
        caught_by=("tests/interop/test_delays.py::test_what_one_side_left_the_other_delivers",),
        seconds_max=600,
    ),
    Mutant(
        name="every retry waits as long as the first",
        file="broker/retry/puts.py",
        old="    return asked if asked > 0 else FIRST_LEVEL + times\n",
        new="    return asked if asked > 0 else FIRST_LEVEL\n",
        caught_by=(
            f"{CONCURRENT}::test_failed_messages_come_again_from_the_retry_topic",
            f"{CONCURRENT}::test_without_a_bound_sixteen_retries_are_the_bound",
        ),
    ),
    Mutant(
        name="a listener's level is not asked",
        file="broker/retry/puts.py",
        old="    return asked if asked > 0 else FIRST_LEVEL + times\n",
        new="    return FIRST_LEVEL + times\n",
        caught_by=(f"{CONCURRENT}::test_a_listener_chooses_the_delay_level_or_no_retry",),
    ),
    Mutant(
        name="a retry names its message by the unique key",
        file="broker/retry/puts.py",
        old="    facts = (message.topic, message.id, ",
        new="    facts = (message.topic, message.unique_key, ",
        caught_by=(f"{CONCURRENT}::test_the_retry_is_rocketmqs_record",),
    ),
    Mutant(
        name="a second failure makes the first retry the origin",
        file="broker/retry/puts.py",
        old="    if not is_retry_topic(message.topic) or find_property(block, RETRY_TOPIC_NAME) is None:\n",
        new="    if True:\n",
        caught_by=(
            f"{RETRY_TOPIC}::test_last_failure_is_a_dead_letter_with_the_original_place",
            f"{CONCURRENT}::test_exhausted_messages_become_dead_letters",
        ),
    ),
    Mutant(
        name="a retry of the proxy waits whole seconds",
        file="broker/retry/puts.py",
        old="store.waiting(TimedPuts).after(put, wait_ms))",
        new="store.waiting(TimedPuts).after(put, wait_ms // 1000 * 1000))",
        caught_by=(f"{RETRY_TOPIC}::test_failed_message_comes_again_from_the_retry_topic",),
    ),
    Mutant(
        name="a start does not read which messages were sent back",
        file="upstream/retry/retry_topic.py",
        old="queue, broker.replaced_by_retries, begin",
        new="queue, lambda each, _: broker.replaced_by_retries(each, each.max_offset), begin",
        caught_by=(
            "tests/integration/broker/features/test_retry_topic_stops.py::test_stop_at_every_change_neither_loses_nor_doubles_a_retry",
        ),
        seconds_max=300,
    ),
    Mutant(
        name="what was sent back is consumed again in its own queue after a kill",
        file="broker/consumer/concurrent.py",
        old="                if shared.finished.has(self.key, message.offset):\n",
        new="                if shared.finished.has(self.key, message.offset) and False:\n",
        caught_by=(
            "tests/integration/broker/features/test_retries_stops.py::test_stop_at_every_change_neither_loses_nor_doubles_a_retry",
        ),
        seconds_max=300,
    ),
    Mutant(
        name="a retry that the disk has no room for is tried no more",
        file="broker/consumer/leaving.py",
        old="        self._next_try.after(AGAIN_SECONDS)\n",
        new="        self._next_try.cancel()\n",
        caught_by=(f"{CONCURRENT}::test_a_retry_waits_while_the_disk_is_full",),
    ),
    Mutant(
        name="a retry that no store takes is dropped",
        file="broker/consumer/sending_back.py",
        old="        shared.scheduler.call_soon(self.unfit, self.message, f",
        new="        shared.scheduler.call_soon(print, self.message, f",
        caught_by=(f"{CONCURRENT}::test_a_retry_that_no_store_takes_is_a_dead_letter_with_the_reason",),
    ),
    Mutant(
        name="a dead letter that goes home keeps what delayed it",
        file="broker/retry/redrive.py",
        old="    COUNTS_NAME,\n    *ROUTE_NAMES,\n)\n",
        new="    COUNTS_NAME,\n)\n",
        caught_by=(f"{REDRIVE}::test_rocketmqs_dead_letters_go_home",),
    ),
    Mutant(
        name="the log does not tell what was redriven",
        file="broker/retry/redrive.py",
        old="        if entry is not None and entry.topic.startswith(DEAD_LETTER_PREFIX.encode()):\n",
        new="        if entry is None:\n",
        caught_by=(
            f"{REDRIVE}::test_second_redrive_recognises_the_first",
            f"{REDRIVE}::test_stop_at_every_change_redrives_all_and_none_twice",
        ),
        seconds_max=300,
    ),
    Mutant(
        name="a message is retried once more than its bound",
        file="broker/consumer/concurrent.py",
        old="            elif message.reconsume_times >= most:\n",
        new="            elif message.reconsume_times > most:\n",
        caught_by=(
            f"{CONCURRENT}::test_exhausted_messages_become_dead_letters",
            f"{CONCURRENT}::test_without_a_bound_sixteen_retries_are_the_bound",
        ),
    ),
    Mutant(
        name="a start does not read which messages became dead letters",
        file="upstream/retry/dead_letters.py",
        old="queue, broker.replaced_by_dead_letters, begin",
        new="queue, lambda each, _: broker.replaced_by_dead_letters(each, each.max_offset), begin",
        caught_by=(f"{DEAD_LETTERS}::test_restart_between_record_and_journal_entry_writes_no_dead_letter_twice",),
    ),
    Mutant(
        name="a message is finished before its dead letter is durable",
        file="upstream/retry/dead_letters.py",
        old="            self._broker.append_dead_letter(self.group, job, reason, partial(self._done, job, resolved))\n"
        "            tracker.undecided[job.offset] = False\n",
        new="            self._broker.append_dead_letter(self.group, job, reason, lambda *_: None)\n"
        "            self._done(job, resolved, None, self._broker.dead_letter_topic(self.group), 0, 0)\n",
        caught_by=(f"{DEAD_LETTERS}::test_key_waits_until_the_dead_letter_is_durable",),
    ),
    Mutant(
        name="a failed broadcast leaves no trace",
        file="broker/consumer/broadcasting.py",
        old="            for message in batch:\n                self._give_up(message, repr(error)",
        new="            for message in batch[:0]:\n                self._give_up(message, repr(error)",
        caught_by=(f"{CONCURRENT}::test_a_failed_broadcast_is_dropped_and_counted",),
    ),
    Mutant(
        name="a delivery that nobody answers is waited for without a bound",
        file="upstream/waiting/timers.py",
        old="        if expired:\n            self._expired(expired)\n",
        new="",
        caught_by=(
            "tests/unit/upstream/delivery/test_group.py::test_unanswered_delivery_comes_again_and_is_dead_lettered_after_max_retry",
        ),
    ),
)
