"""Sends to topics of Kafka."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SENDS = "tests/integration/proxy/services/test_kafka_sends.py"
HEADERS = "tests/unit/upstream/kafka/test_headers.py"

MUTANTS = (
    Mutant(
        name="a hash chooses a partition of Kafka with its sign",
        file="proxy/services/kafka/ports.py",
        old="        return queue_of_hash(hash_id, partitions)\n",
        new="        return hash_id - partitions * int(hash_id / partitions)\n",
        caught_by=(f"{SENDS}::test_partition_is_chosen_as_a_queue_is",),
        rows=("W80",),
    ),
    Mutant(
        name="a delay on a topic of Kafka is sent at once",
        file="proxy/services/message_checks.py",
        old="    if transactional or waits:\n",
        new="    if transactional:\n",
        caught_by=(f"{SENDS}::test_delays_timers_and_transactions_are_refused",),
    ),
    Mutant(
        name="a send to Kafka is answered when it is handed over",
        file="proxy/services/kafka/sends.py",
        old="        sending.timer.after(_seconds(timeout_ms))\n",
        new="        sending.timer.after(0)\n",
        caught_by=(f"{SENDS}::test_batch_of_both_is_answered_once_all_is_stored",),
    ),
    Mutant(
        name="a send to Kafka waits for its report without end",
        file="proxy/services/kafka/sends.py",
        old="        sending.timer.after(_seconds(timeout_ms))\n",
        new="        pass\n",
        caught_by=(
            f"{SENDS}::test_send_is_answered_at_its_timeout_and_what_comes_later_is_counted",
            f"{SENDS}::test_send_without_a_timeout_is_answered_in_ten_seconds",
        ),
    ),
    Mutant(
        name="a batch that Kafka has in part is refused as if it had nothing",
        file="proxy/services/kafka/sends.py",
        old="        is_known = not stored and all(each.code is code for _, each in refusals)\n",
        new="        is_known = True\n",
        caught_by=(
            f"{SENDS}::test_batch_that_is_stored_in_part_says_so",
            f"{SENDS}::test_each_message_of_a_batch_has_one_outcome",
        ),
    ),
    Mutant(
        name="the number of a failed record is free while one behind it is stored",
        file="proxy/services/kafka/sends.py",
        old="        if not is_known or (sending.numbered and not self.numbers.is_last(sending.keys[-1])):\n",
        new="        if not is_known:\n",
        caught_by=(f"{SENDS}::test_failure_before_what_is_stored_already_is_undecided",),
    ),
    Mutant(
        name="what hangs in Kafka takes all memory",
        file="proxy/services/kafka/sends.py",
        old="            if under_way and under_way + size > room:\n",
        new="            if False:\n",
        caught_by=(f"{SENDS}::test_bytes_for_a_hanging_cluster_are_bounded",),
    ),
    Mutant(
        name="a repeat of what is under way to Kafka is sent again",
        file="proxy/services/kafka/sends.py",
        old="        if not self.numbers.is_under_way(keys):\n",
        new="        if True:\n",
        caught_by=(
            f"{SENDS}::test_repeat_of_what_is_under_way_waits_for_it",
            f"{SENDS}::test_repeat_of_what_was_late_has_its_receipt",
        ),
    ),
    Mutant(
        name="what Kafka has stored is not remembered",
        file="proxy/services/kafka/numbers.py",
        old="        self._deduplication.stored_elsewhere(numbered)\n",
        new="        pass\n",
        caught_by=(
            f"{SENDS}::test_repeat_has_the_first_receipt_and_is_not_sent_again",
            f"{SENDS}::test_after_a_clean_restart_a_repeat_is_known_without_its_place",
        ),
    ),
    Mutant(
        name="a message is stored before one that Kafka did not take",
        file="proxy/services/keyed_sends.py",
        old="        if judged.places is None or self.in_kafka.has_hole_before(judged):\n",
        new="        if judged.places is None:\n",
        caught_by=(f"{SENDS}::test_message_behind_one_that_failed_is_a_gap_until_it_came_again",),
    ),
    Mutant(
        name="a stop waits for no cluster",
        file="proxy/node/node.py",
        old="            if not (self.store.unsettled or self.kafka.unsettled) and all(",
        new="            if not self.store.unsettled and all(",
        caught_by=(f"{SENDS}::test_stop_waits_for_what_is_under_way",),
    ),
    Mutant(
        name="a header that looks like the second of its name is taken for it",
        file="upstream/kafka/headers.py",
        old="        return number <= counts.get(base, 0) + 1\n",
        new="        return False\n",
        caught_by=(f"{HEADERS}::test_decode_is_undone_by_encode", f"{HEADERS}::test_headers_as_properties"),
    ),
    Mutant(
        name="a header may be a fact of the broker's own",
        file="upstream/kafka/headers.py",
        old="    if counts[name] > 1 or _reserved(name):\n",
        new="    if counts[name] > 1:\n",
        caught_by=(f"{HEADERS}::test_property_block_holds_what_was_decoded",),
    ),
)
