"""What was answered is on the disk, and survives a kill and a power loss."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="the folder is not synced with a roll",
        file="upstream/progress/ack_writer.py",
        old=("            yield self._journal.file\n            yield self._journal.folder\n        except SyncFailed"),
        new=("            yield self._journal.file\n        except SyncFailed"),
        caught_by=(
            "tests/unit/upstream/progress/test_ack_roll.py::test_no_answered_ack_is_lost_wherever_a_roll_stops",
        ),
    ),
    Mutant(
        name="what was written amid a roll is taken for durable with it",
        file="upstream/progress/ack_writer.py",
        old=("            self._journal.give_up_earlier()\n            self._durable(covered)\n"),
        new=("            self._journal.give_up_earlier()\n            self._durable(self._written)\n"),
        caught_by=(
            "tests/unit/upstream/progress/test_ack_roll.py::test_entry_is_durable_when_the_roll_and_the_sync_after_it_are",
        ),
    ),
    Mutant(
        name="a segment whose sync failed is given up for the one behind it",
        file="upstream/progress/ack_writer.py",
        old=(
            "        if self.failed is None or isinstance(self.failed, ProgressFull):\n"
            "            self._journal.give_up"
        ),
        new=("        if self._journal is not None:\n            self._journal.give_up"),
        caught_by=(
            "tests/unit/upstream/progress/test_ack_roll.py::test_failed_sync_of_the_segment_before_refuses_acks_and_it_is_not_given_up",
        ),
    ),
    Mutant(
        name="ackFlush sync syncs nothing",
        file="upstream/progress/ack_writer.py",
        old="            if self._sync_each_flush or self._sync_next:\n",
        new="            if self._sync_next:\n",
        caught_by=("tests/unit/upstream/progress/test_ack_roll.py::test_ack_flush_sync_waits_for_the_segment",),
    ),
    Mutant(
        name="a message is stored before one that Kafka did not take",
        file="proxy/services/keyed_sends.py",
        old="        if judged.places is None or self.in_kafka.has_hole_before(judged):\n",
        new="        if judged.places is None:\n",
        caught_by=(
            "tests/integration/proxy/services/test_kafka_sends.py::test_message_behind_one_that_failed_is_a_gap_until_it_came_again",
        ),
    ),
    Mutant(
        name="the number of a failed record is free while one behind it is stored",
        file="proxy/services/kafka/sends.py",
        old=("        if not is_known or (sending.numbered and not self.numbers.is_last(sending.keys[-1])):\n"),
        new="        if not is_known:\n",
        caught_by=(
            "tests/integration/proxy/services/test_kafka_sends.py::test_failure_before_what_is_stored_already_is_undecided",
        ),
    ),
    Mutant(
        name="one client takes all places of a port",
        file="proxy/limits/limiter.py",
        old="        if self.share is not None and meter.connections[service] >= self.share * free:\n",
        new=("        if self.share is not None and meter.connections[service] >= self.share * free * 1000:\n"),
        caught_by=(
            "tests/access/test_limits.py::test_share_of_a_port_and_of_waiting_pulls",
            "tests/unit/proxy/limits/test_limiter.py::test_share_leaves_places_for_others",
        ),
    ),
    Mutant(
        name="a cancelled message counts until it would have been due",
        file="proxy/services/delay_service.py",
        old=("            if outcome is CancelOutcome.CANCELLED:\n                ended()\n"),
        new="",
        caught_by=("tests/access/test_limits.py::test_pending_timers_are_so_many_until_they_are_due_or_cancelled",),
    ),
    Mutant(
        name="a pull for any topic that found nothing becomes bound to the topic it looked at",
        file="upstream/waiting/buffer.py",
        old="        parked = Parked(self._numbers, topic, count_max, holder, wake)\n",
        new=(
            "        topic = topic or next(iter(self._lines), None)\n"
            "        parked = Parked(self._numbers, topic, count_max, holder, wake)\n"
        ),
        caught_by=(
            "tests/unit/upstream/waiting/test_buffer.py::test_parked_pulls_are_served_in_order_of_arrival_bound_or_not",
        ),
        rows=("W54",),
    ),
    Mutant(
        name="a node has one fetcher for all names",
        file="upstream/fetch/fetchers.py",
        old=("        fetcher = self.by_id.get(name)\n        is_new"),
        new=("        fetcher = next(iter(self.by_id.values()), None)\n        is_new"),
        caught_by=("tests/unit/upstream/fetch/test_fetching.py::test_many_fetchers_of_one_node_share_the_queues",),
        rows=("W68",),
    ),
    Mutant(
        name="an orderly message is repeated once more than its bound",
        file="broker/consumer/orderly.py",
        old=(
            "        exhausted = [message for message in batch if 0 <= most <= message.reconsume_times]\n"
            "        others = [message.failed_again() for message in batch if not 0 <= most "
            "<= message.reconsume_times]\n"
        ),
        new=(
            "        exhausted = [message for message in batch if 0 <= most < message.reconsume_times]\n"
            "        others = [message.failed_again() for message in batch if not 0 <= most "
            "< message.reconsume_times]\n"
        ),
        caught_by=(
            "tests/unit/broker/features/test_orderly_consumer.py::test_exhausted_messages_become_dead_letters_and_the_queue_goes_on",
            "tests/unit/broker/features/test_orderly_consumer.py::test_retry_counts_survive_a_kill",
        ),
    ),
    Mutant(
        name="the text of a message's URL is not looked at",
        file="actions/http/callback.py",
        old="    if not any(origin.matches(scheme, host, port) for origin in origins):\n",
        new="    if False:\n",
        caught_by=(
            "tests/unit/actions/http/test_addresses.py::test_origin_of_the_list_matches_itself_and_nothing_near",
        ),
        rows=("W62",),
    ),
    Mutant(
        name="retries of a push come back together",
        file="upstream/delivery/subscription.py",
        old="            self.outcomes.jitter = runtime.random.random\n",
        new="            self.outcomes.jitter = None\n",
        caught_by=("tests/simulation/test_pushes.py::test_retries_of_business_failures_are_spread",),
    ),
    Mutant(
        name="a dead letter keeps what its producer says of its end",
        file="broker/retry/dead_letter.py",
        old="_RETRIED = (*LETTER_PROPERTIES, ",
        new="_RETRIED = (",
        caught_by=("tests/unit/broker/format/test_own_properties.py::test_forged_facts_of_a_dead_letter_are_left_out",),
    ),
    Mutant(
        name="a damaged record is passed over silently",
        file="broker/scheduled/delay/due.py",
        old="        self.metrics.counter(counted.LOST).add()\n",
        new="",
        caught_by=(
            "tests/integration/broker/scheduled/test_delays.py::test_damaged_record_is_counted_and_holds_nothing_up",
        ),
    ),
)
