"""A half is invisible until its commit; a decision is final."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="clients publish to retry topics",
        file="broker/queues/topics.py",
        old="        or name.startswith((DEAD_LETTER_PREFIX, RETRY_PREFIX))\n",
        new="        or name.startswith(DEAD_LETTER_PREFIX)\n",
        caught_by=(
            "tests/unit/broker/queues/test_topics.py::test_system_topics_are_told",
            "tests/integration/broker/store/test_broker_topics_refused.py::test_publish_to_a_topic_of_the_brokers_own_is_refused",
        ),
    ),
    Mutant(
        name="the next occurrence is due when its second is over",
        file="broker/scheduled/recurring/loops.py",
        old="            due = max(following.at_s * 1000, now + 1)\n",
        new="            due = max(following.at_s * 1000 + 999, now + 1)\n",
        caught_by=(
            "tests/integration/broker/scheduled/test_loops.py::test_each_occurrence_is_delivered_at_its_very_millisecond[6h]",
        ),
    ),
    Mutant(
        name="the next occurrence waits without the properties of its message",
        file="broker/scheduled/recurring/puts.py",
        old="    rest = without(put.properties, (_KEYS_NAME, LOOP_NAME, _UNIQUE_NAME))\n",
        new='    rest = b"" if occurrence.made else put.properties\n',
        caught_by=(
            "tests/integration/broker/scheduled/test_loops.py::test_body_and_properties_stay_over_every_occurrence",
        ),
    ),
    Mutant(
        name="missed occurrences are skipped and not counted",
        file="broker/scheduled/recurring/loops.py",
        old="            self._skipped.value += unfolded.skipped\n",
        new="",
        caught_by=(
            "tests/integration/broker/scheduled/test_loop_unfold.py::test_too_many_missed_are_skipped_counted_and_part_of_times",
        ),
    ),
    Mutant(
        name="a cancel looks for the id that it is given alone",
        file="broker/scheduled/recurring/cancel.py",
        old="    store, key, parts = timers.store, occurrence.first.id, timers.parts\n",
        new="    store, key, parts = timers.store, occurrence.id, timers.parts\n",
        caught_by=("tests/integration/broker/scheduled/test_loops.py::test_cancel_by_any_id_of_a_loop_ends_it",),
    ),
    Mutant(
        name="a moved occurrence is the last of its loop",
        file="broker/scheduled/timer/cancel.py",
        old='    released = release(target.record, parts.store.topics, (*TIMER_NAMES, b"UNIQ_KEY"))\n',
        new='    released = release(target.record, parts.store.topics, (*TIMER_NAMES, b"UNIQ_KEY", MARK))\n',
        caught_by=(
            "tests/integration/broker/scheduled/test_loops.py::test_moved_occurrence_is_delivered_then_and_the_loop_goes_on",
            "tests/lifecycle/test_kill_points.py::test_run_goes_along_every_row[Loops]",
        ),
    ),
    Mutant(
        name="an add that comes again is another message",
        file="proxy/services/delay_service.py",
        old=("        if key in self._recent:\n            give_tokens_back([port])\n"),
        new=("        if key in self._recent and False:\n            give_tokens_back([port])\n"),
        caught_by=("tests/integration/proxy/node/test_loops_node.py::test_add_that_is_sent_again_is_one_message",),
    ),
    Mutant(
        name="a long integer hashes by its lower half alone",
        file="broker/selectors.py",
        old="    folded = (bits ^ bits >> 32) & 0xFFFFFFFF\n",
        new="    folded = bits & 0xFFFFFFFF\n",
        caught_by=("tests/unit/broker/features/test_selectors.py::test_hash_of_an_argument_is_javas",),
    ),
    Mutant(
        name="a group that somebody else consumes is joined",
        file="broker/consumer/members.py",
        old=("            if refusal is not None:\n                raise refusal\n        self._members"),
        new=("            del refusal\n        self._members"),
        caught_by=(
            "tests/unit/broker/features/test_orderly_consumer.py::test_queues_of_a_stranger_are_refused_with_its_name",
            "tests/unit/upstream/progress/test_queue_ownership.py::test_consumers_inside_are_refused_while_the_proxy_consumes",
        ),
    ),
    Mutant(
        name="who has another's handle decides its transaction",
        file="broker/transaction/ending.py",
        old="        elif who.must_not_know(half.group, half.owner):\n",
        new="        elif who.must_not_know(half.group, half.owner) and not half.owner:\n",
        caught_by=("tests/access/test_owners_node.py::test_transaction_is_unknown_to_other_principals",),
    ),
)
