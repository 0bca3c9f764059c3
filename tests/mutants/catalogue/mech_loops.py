"""Loops: ids, occurrences, what was missed, cancels and moves, adds and refusals."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

OCCURRENCE = "tests/unit/broker/scheduled/test_occurrence.py"
UNFOLD = "tests/integration/broker/scheduled/test_loop_unfold.py"
LOOPS = "tests/integration/broker/scheduled/test_loops.py"
NODE = "tests/integration/proxy/node/test_loops_node.py"
KILLS = "tests/lifecycle/test_kill_points.py"

MUTANTS = (
    Mutant(
        name="an id has its numbers in another order",
        file="broker/scheduled/recurring/occurrence.py",
        old="        numbers = (self.at_s, self.kind, self.expire_s, self.times, self.made, ",
        new="        numbers = (self.at_s, self.kind, self.expire_s, self.made, self.times, ",
        caught_by=(f"{OCCURRENCE}::test_id_has_ddmqs_form",),
    ),
    Mutant(
        name="an occurrence takes the one before it for the first",
        file="broker/scheduled/recurring/occurrence.py",
        old="            passed = self.made * self.interval\n",
        new="            passed = min(self.made, 1) * self.interval\n",
        caught_by=(
            f"{OCCURRENCE}::test_every_occurrence_tells_the_first",
            f"{LOOPS}::test_cancel_by_any_id_of_a_loop_ends_it",
        ),
    ),
    Mutant(
        name="a message for one moment that is over is made to wait",
        file="broker/scheduled/recurring/loops.py",
        old="            return self._timed.put(delivered(put, occurrence), due)\n",
        new="            return self._timed.put(delivered(put, occurrence), max(due, now + 1))\n",
        caught_by=(f"{UNFOLD}::test_past_single_message_is_delivered_at_once_under_its_id",),
    ),
    Mutant(
        name="a loop comes once more than its times",
        file="broker/scheduled/recurring/occurrence.py",
        old="        return self.expire_s >= self.at_s and self.times > self.made\n",
        new="        return self.expire_s >= self.at_s and self.times >= self.made\n",
        caught_by=(f"{OCCURRENCE}::test_next_walks_the_plain_model",),
    ),
    Mutant(
        name="the next occurrence is due when its second is over",
        file="broker/scheduled/recurring/loops.py",
        old="            due = max(following.at_s * 1000, now + 1)\n",
        new="            due = max(following.at_s * 1000 + 999, now + 1)\n",
        caught_by=(f"{LOOPS}::test_each_occurrence_is_delivered_at_its_very_millisecond[6h]",),
    ),
    Mutant(
        name="growing gaps grow without a bound",
        file="broker/scheduled/recurring/occurrence.py",
        old="        return GAP_MAX if self.made >= 17 else min(self.interval ** (self.made + 1), GAP_MAX)\n",
        new="        return self.interval ** (min(self.made, 17) + 1)\n",
        caught_by=(f"{OCCURRENCE}::test_gaps_grow_to_a_day",),
    ),
    Mutant(
        name="a delivery has not the id of its occurrence as its key",
        file="broker/scheduled/recurring/puts.py",
        old='    return put._replace(properties=b"KEYS\\x01%b\\x02%b" % (occurrence.id.encode(), rest))\n',
        new='    return put._replace(properties=b"KEYS\\x01%b\\x02%b" % (occurrence.first.id.encode(), rest))\n',
        caught_by=(f"{LOOPS}::test_missed_in_a_downtime_come_in_order_and_the_rhythm_goes_on",),
    ),
    Mutant(
        name="the next occurrence waits without the properties of its message",
        file="broker/scheduled/recurring/puts.py",
        old="    rest = without(put.properties, (_KEYS_NAME, LOOP_NAME, _UNIQUE_NAME))\n",
        new='    rest = b"" if occurrence.made else put.properties\n',
        caught_by=(f"{LOOPS}::test_body_and_properties_stay_over_every_occurrence",),
    ),
    Mutant(
        name="a delivery keeps the state of its loop",
        file="broker/scheduled/recurring/puts.py",
        old="    rest = without(put.properties, (_KEYS_NAME, LOOP_NAME))\n",
        new="    rest = without(put.properties, (_KEYS_NAME,))\n",
        caught_by=(f"{UNFOLD}::test_delivery_is_the_message_that_was_added_under_the_occurrences_id",),
    ),
    Mutant(
        name="of what was missed only the newest is delivered",
        file="broker/scheduled/recurring/loops.py",
        old="        skipped = max(0, missed - MISSED_MAX)\n",
        new="        skipped = max(0, missed - 1)\n",
        caught_by=(
            f"{LOOPS}::test_missed_in_a_downtime_come_in_order_and_the_rhythm_goes_on",
            "tests/integration/broker/scheduled/test_loops_stops.py::test_any_downtime_gives_all_that_was_missed",
        ),
    ),
    Mutant(
        name="missed occurrences are skipped and not counted",
        file="broker/scheduled/recurring/loops.py",
        old="            self._skipped.value += unfolded.skipped\n",
        new="",
        caught_by=(f"{UNFOLD}::test_too_many_missed_are_skipped_counted_and_part_of_times",),
    ),
    Mutant(
        name="a cancel looks for the id that it is given alone",
        file="broker/scheduled/recurring/cancel.py",
        old="    store, key, parts = timers.store, occurrence.first.id, timers.parts\n",
        new="    store, key, parts = timers.store, occurrence.id, timers.parts\n",
        caught_by=(f"{LOOPS}::test_cancel_by_any_id_of_a_loop_ends_it",),
    ),
    Mutant(
        name="a moved occurrence is the last of its loop",
        file="broker/scheduled/timer/cancel.py",
        old='    released = release(target.record, parts.store.topics, (*TIMER_NAMES, b"UNIQ_KEY"))\n',
        new='    released = release(target.record, parts.store.topics, (*TIMER_NAMES, b"UNIQ_KEY", MARK))\n',
        caught_by=(
            f"{LOOPS}::test_moved_occurrence_is_delivered_then_and_the_loop_goes_on",
            f"{KILLS}::test_run_goes_along_every_row[Loops]",
        ),
    ),
    Mutant(
        name="an add that comes again is another message",
        file="proxy/services/delay_service.py",
        old="        if key in self._recent:\n            give_tokens_back([port])\n",
        new="        if key in self._recent and False:\n            give_tokens_back([port])\n",
        caught_by=(f"{NODE}::test_add_that_is_sent_again_is_one_message",),
    ),
    Mutant(
        name="a loop without times is added",
        file="proxy/services/delay_rules.py",
        old="    if not 0 < times <= NUMBER_MAX:\n",
        new="    if not 0 <= times <= NUMBER_MAX:\n",
        caught_by=(f"{NODE}::test_every_refusal_is_answered_with_its_code",),
    ),
)
