"""Of one key never two in flight and never out of order, while other keys go on."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="a storm of retries is one of timeouts",
        file="proxy/operate/attention/of_groups.py",
        old=('    failed = timeouts + rise("pyddmq_failed_attempts_total") + rise("pyddmq_error_attempts_total")\n'),
        new="    failed = timeouts\n",
        caught_by=(
            "tests/simulation/test_troubles.py::test_trouble_is_told_of_within_seconds_and_no_longer_than_it_lasts[failing_consumers]",
        ),
    ),
    Mutant(
        name="a member that leaves waits as long for a cluster that is away",
        file="upstream/kafka/member_settings.py",
        old=("        return min(self.session_seconds, self.revoke_seconds) if cut_off else self.session_seconds\n"),
        new="        return self.session_seconds\n",
        caught_by=(
            "tests/unit/upstream/kafka/test_answered_is_kept.py::test_node_that_stops_while_the_cluster_is_away_waits_no_longer_than_in_a_revoke",
        ),
    ),
    Mutant(
        name="a refused message holds its level",
        file="broker/scheduled/delivery.py",
        old=("                    waiter.refuse(message, str(error))\n                    continue\n"),
        new=("                    waiter.wait([*run, *messages[place:]], error)\n                    return False\n"),
        caught_by=("tests/integration/broker/scheduled/test_delays.py::test_refused_message_does_not_hold_its_level",),
    ),
    Mutant(
        name="a retry that no store takes is dropped",
        file="broker/consumer/sending_back.py",
        old="        shared.scheduler.call_soon(self.unfit, self.message, f",
        new="        shared.scheduler.call_soon(print, self.message, f",
        caught_by=(
            "tests/unit/broker/features/test_concurrent_consumer.py::test_a_retry_that_no_store_takes_is_a_dead_letter_with_the_reason",
        ),
    ),
    Mutant(
        name="a dead letter that goes home keeps what delayed it",
        file="broker/retry/redrive.py",
        old=("    COUNTS_NAME,\n    *ROUTE_NAMES,\n)\n"),
        new=("    COUNTS_NAME,\n)\n"),
        caught_by=("tests/integration/broker/features/test_redrive.py::test_rocketmqs_dead_letters_go_home",),
    ),
    Mutant(
        name="a queue that changes hands is read from its end",
        file="broker/consumer/member.py",
        old="        start = self.first_offset(name)\n",
        new="        start = max(self.first_offset(name), queue.max_offset)\n",
        caught_by=(
            "tests/unit/upstream/progress/test_queue_ownership.py::test_the_group_changes_hands_both_ways_without_loss_or_repetition",
        ),
    ),
    Mutant(
        name="a mark of the timer log never reaches its file",
        file="broker/scheduled/timer/pending/log.py",
        old="            self._write_at(position + _SIZE_AT, bytes(4))\n",
        new="",
        caught_by=("tests/unit/broker/scheduled/test_timer_log.py::TestTimerLog",),
    ),
    Mutant(
        name="what is due this very moment is made to wait",
        file="broker/scheduled/timer/puts.py",
        old="        if due_ms <= now:\n",
        new="        if due_ms <= 0:\n",
        caught_by=("tests/unit/broker/scheduled/test_timer_puts.py::test_past_due_is_delivered_at_once",),
    ),
    Mutant(
        name="the fuller a slot is the less is refused",
        file="broker/scheduled/timer/puts.py",
        old="self._random.random() * limit < count - limit:",
        new="self._random.random() * limit > count - limit:",
        caught_by=("tests/unit/broker/scheduled/test_timer_puts.py::test_refusals_rise_with_the_slot",),
    ),
    Mutant(
        name="messages of the retry topic have the queue ids of others",
        file="upstream/delivery/group_queues.py",
        old='RETRY_QID = "retry_"\n',
        new='RETRY_QID = ""\n',
        caught_by=(
            "tests/unit/upstream/retry/test_retry_topic.py::test_same_offset_of_topic_and_retry_topic_are_two_messages",
        ),
        rows=("W31",),
    ),
    Mutant(
        name="with maxConsumeLag a queue starts with one message at a time",
        file="upstream/embedded/source.py",
        old=(
            "                room = max(0, group_queue.tracker.watermark + self.lag_max - group_queue.pending[0][3])\n"
        ),
        new=(
            "                started = group_queue.tracker.watermark > 0 or group_queue.tracker.ahead > 0\n"
            "                lag_max = self.lag_max if started else 1\n"
            "                room = max(0, group_queue.tracker.watermark + lag_max - "
            "group_queue.pending[0][3])\n"
        ),
        caught_by=(
            "tests/unit/upstream/delivery/test_group.py::test_consume_lag_bounds_reading_from_the_first_message_on",
        ),
        rows=("W32",),
    ),
)
