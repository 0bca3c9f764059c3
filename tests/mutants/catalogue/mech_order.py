"""Order: selectors, queue locks, orderly consumers, strategies, thresholds, chains by key."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SELECTORS = "tests/unit/broker/features/test_selectors.py"
ORDERLY = "tests/unit/broker/features/test_orderly_consumer.py"
OWNERSHIP = "tests/unit/upstream/progress/test_queue_ownership.py"
STRATEGIES = "tests/unit/broker/features/test_consumer_strategies.py"
MODEL = "tests/unit/broker/features/test_orderly_model.py::TestOrderly"
KILLS = "tests/lifecycle/test_kill_points.py"

MUTANTS = (
    Mutant(
        name="a long integer hashes by its lower half alone",
        file="broker/selectors.py",
        old="    folded = (bits ^ bits >> 32) & 0xFFFFFFFF\n",
        new="    folded = bits & 0xFFFFFFFF\n",
        caught_by=(f"{SELECTORS}::test_hash_of_an_argument_is_javas",),
    ),
    Mutant(
        name="a negative hash takes Python's remainder",
        file="broker/format/java.py",
        old="    return abs(value) % queues\n",
        new="    return value % queues\n",
        caught_by=(f"{SELECTORS}::test_negative_remainder_counts_without_its_sign",),
    ),
    Mutant(
        name="one way in takes another remainder of a key's hash",
        file="proxy/services/message_checks.py",
        old="                queue_id = queue_of_hash(self._key_hash(key), queues)\n",
        new="                queue_id = self._key_hash(key) % queues\n",
        caught_by=(
            "tests/integration/proxy/services/test_queue_choice.py::test_every_way_in_sends_a_key_to_its_queue",
        ),
    ),
    Mutant(
        name="a key wins over the selector",
        file="broker/selectors.py",
        old="properties=properties, queue_id=chosen.queue_id)",
        new="properties=properties, queue_id=None if key else chosen.queue_id)",
        caught_by=(f"{SELECTORS}::test_a_selector_gets_queues_message_and_argument_and_is_obeyed",),
    ),
    Mutant(
        name="a lock is granted to another after half its time",
        file="broker/queues/queue_locks.py",
        old="lease.client_id == client_id or now - lease.renewed > EXPIRY_SECONDS:",
        new="lease.client_id == client_id or now - lease.renewed > EXPIRY_SECONDS / 2:",
        caught_by=("tests/unit/broker/queues/test_queue_locks.py::TestLocks",),
    ),
    Mutant(
        name="a group that somebody else consumes is joined",
        file="broker/consumer/members.py",
        old="            if refusal is not None:\n                raise refusal\n        self._members",
        new="            del refusal\n        self._members",
        caught_by=(
            f"{ORDERLY}::test_queues_of_a_stranger_are_refused_with_its_name",
            f"{OWNERSHIP}::test_consumers_inside_are_refused_while_the_proxy_consumes",
        ),
    ),
    Mutant(
        name="locks are renewed once",
        file="broker/consumer/member.py",
        old="            self._renewal.after(RENEWAL_SECONDS)\n",
        new="            pass\n",
        caught_by=(f"{ORDERLY}::test_locks_are_renewed_while_a_listener_runs",),
    ),
    Mutant(
        name="a queue whose lock was lost is committed",
        file="broker/consumer/member.py",
        old="        self.lost = self.lost or lost\n",
        new="",
        caught_by=(f"{ORDERLY}::test_an_answer_after_the_lock_was_lost_commits_nothing",),
    ),
    Mutant(
        name="a queue that changes hands is read from its end",
        file="broker/consumer/member.py",
        old="        start = self.first_offset(name)\n",
        new="        start = max(self.first_offset(name), queue.max_offset)\n",
        caught_by=(f"{OWNERSHIP}::test_the_group_changes_hands_both_ways_without_loss_or_repetition",),
    ),
    Mutant(
        name="a suspended batch comes again behind those that were read",
        file="broker/consumer/orderly.py",
        old="            self._ready.extendleft(reversed(others))\n",
        new="            self._ready.extend(others)\n",
        caught_by=(f"{ORDERLY}::test_a_suspended_batch_comes_again_before_anything_behind_it",),
    ),
    Mutant(
        name="a failure of an orderly message is not counted",
        file="broker/consumer/orderly.py",
        old="        others = [message.failed_again() for message",
        new="        others = [message for message",
        caught_by=(MODEL, f"{ORDERLY}::test_a_suspended_batch_comes_again_before_anything_behind_it"),
    ),
    Mutant(
        name="a rollback goes on behind its batch",
        file="broker/consumer/orderly.py",
        old="        self.reader.next = self.committed\n",
        new="",
        caught_by=(f"{ORDERLY}::test_rollback_goes_back_to_the_last_commit",),
    ),
    Mutant(
        name="failures are counted in memory alone",
        file="broker/consumer/retry_counts.py",
        old='            self._file.save({"version": _VERSION, "queues": queues})\n',
        new="            del queues\n",
        caught_by=(
            f"{ORDERLY}::test_retry_counts_survive_a_kill",
            f"{KILLS}::test_kill_at_some_changes_breaks_nothing[0-OrderlyRetries]",
        ),
    ),
    Mutant(
        name="an orderly message is repeated once more than its bound",
        file="broker/consumer/orderly.py",
        old="        exhausted = [message for message in batch if 0 <= most <= message.reconsume_times]\n"
        "        others = [message.failed_again() for message in batch if not 0 <= most <= message.reconsume_times]\n",
        new="        exhausted = [message for message in batch if 0 <= most < message.reconsume_times]\n"
        "        others = [message.failed_again() for message in batch if not 0 <= most < message.reconsume_times]\n",
        caught_by=(
            f"{ORDERLY}::test_exhausted_messages_become_dead_letters_and_the_queue_goes_on",
            f"{ORDERLY}::test_retry_counts_survive_a_kill",
        ),
    ),
    Mutant(
        name="a queue is given up while its listener runs",
        file="broker/consumer/member.py",
        old="        self.withdraw()\n        if self.busy_since is None:\n            self.owner.released(self)\n",
        new="        self.withdraw()\n        self.owner.released(self)\n",
        caught_by=(f"{ORDERLY}::test_a_queue_is_handed_over_only_when_its_listener_has_ended",),
    ),
    Mutant(
        name="queues that are left over in a division are nobody's",
        file="broker/consumer/strategies.py",
        old="    return list(queues[start : start + size + (index < rest)])\n",
        new="    return list(queues[start : start + size])\n",
        caught_by=(
            f"{STRATEGIES}::test_every_queue_goes_to_exactly_one_client",
            f"{ORDERLY}::test_queues_are_shared_and_move_when_a_member_comes_or_goes",
        ),
    ),
    Mutant(
        name="the ring is a remainder",
        file="broker/consumer/strategies.py",
        old="            if ring[places[bisect_left(places, _ring_hash(str(queue))) % len(places)]] == client_id\n",
        new="            if ring[places[_ring_hash(str(queue)) % len(places)]] == client_id\n",
        caught_by=(f"{STRATEGIES}::test_consistent_hash_moves_only_the_queues_of_who_left",),
    ),
    Mutant(
        name="a concurrent consumer reads ahead without a bound",
        file="broker/consumer/concurrent.py",
        old="        if self.reader.next - low >= self.owner.options.span_max:\n            return False\n",
        new="",
        caught_by=(
            "tests/unit/broker/features/test_concurrent_consumer.py::test_reading_stops_so_far_ahead_of_an_unfinished_message",
        ),
    ),
    Mutant(
        name="the lag of a subscription is without a bound",
        file="upstream/delivery/subscription.py",
        old="        self._source.lag_max = config.consume_lag_max\n",
        new="        self._source.lag_max = 1 << 40\n",
        caught_by=(
            "tests/unit/upstream/delivery/test_group.py::test_consume_lag_bounds_reading_from_the_first_message_on",
        ),
    ),
    Mutant(
        name="a message runs beside one of its key that has just been read",
        file="upstream/waiting/job_loops.py",
        old="            if tail is not None:\n                tail.successor = job\n",
        new="            if tail is not None and tail.state is not _READY:\n                tail.successor = job\n",
        caught_by=("tests/unit/upstream/waiting/test_order.py::test_order_queue_runs_one_per_key_in_order",),
    ),
    Mutant(
        name="a key that waits holds up all others",
        file="upstream/waiting/job_loops.py",
        old="            tail = tails.get(key)\n            tails[key] = job\n",
        new='            tail = tails.get(key := b"")\n            tails[key] = job\n            job.key = key\n',
        caught_by=(
            "tests/unit/upstream/delivery/test_group.py::test_one_key_that_never_answers_leaves_all_others_to_finish",
        ),
    ),
    Mutant(
        name="a subscription by key does not ask for the keys of its messages",
        file="upstream/embedded/source.py",
        old='        self._message_keys = config.order_key == "KEY"\n',
        new="        self._message_keys = False\n",
        caught_by=("tests/acceptance/test_examples.py::test_example_passes_its_checks",),
        seconds_max=300,
    ),
)
