"""Promises over Kafka: commits, leases and terms of partitions."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a node hands out messages after its lease ended",
        "upstream/kafka/lease.py",
        old="        return self.now() < self._until\n",
        new="        return self._until >= 0\n",
        caught_by=(
            "tests/unit/upstream/kafka/test_partitions.py::test_node_that_wakes_after_its_session_hands_nothing_out",
        ),
    ),
    Mutant(
        "messages of a revoked partition are still handed out",
        "upstream/waiting/buffer.py",
        old=" or group_queue.withheld:\n",
        new=":\n",
        caught_by=(
            "tests/unit/upstream/kafka/test_partitions.py::test_nothing_more_of_a_partition_that_is_given_up_is_handed_out",
        ),
        rows=("W28",),
    ),
    Mutant(
        "a commit for a lost partition is sent",
        "upstream/kafka_client/commits.py",
        old="        ours = [each for each in self._asked if self._is_ours(each)]\n",
        new="        ours = list(self._asked)\n",
        caught_by=("tests/unit/upstream/kafka_client/test_member_parts.py::test_commit_of_a_former_term_is_not_sent",),
        rows=("W27",),
    ),
    Mutant(
        "work begun in an earlier term of a partition finishes a message of the next",
        "upstream/delivery/group_queues.py",
        old="group_queue.revoked = True",
        new="group_queue.revoked = False",
        caught_by=(
            "tests/unit/upstream/kafka/test_letters_on_their_way.py::test_letter_of_an_earlier_term_finishes_nothing_of_the_next",
            "tests/unit/upstream/kafka/test_letters_on_their_way.py::test_call_of_an_earlier_term_finishes_nothing_of_the_next",
        ),
        rows=("W28",),
    ),
    Mutant(
        "a partition is released without its last commit",
        "upstream/kafka/partitions.py",
        old="            if still:\n",
        new="            if False:\n",
        caught_by=(
            "tests/unit/upstream/kafka/test_partitions.py::test_node_that_left_in_order_leaves_nothing_to_wait_for",
        ),
    ),
    Mutant(
        "the next owner forgets what is finished above the committed offset",
        "upstream/kafka/partitions.py",
        old="            tracker.finish_range(start, end)\n",
        new="            pass\n",
        caught_by=(
            "tests/unit/upstream/kafka/test_partitions.py::test_next_owner_knows_what_is_finished_above_and_how_often_the_rest_failed",
        ),
    ),
    Mutant(
        "a strict takeover does not wait for clients of the node before",
        "upstream/kafka/partitions.py",
        old="        if not seconds:\n",
        new="        if True:\n",
        caught_by=(
            "tests/unit/upstream/kafka/test_partitions.py::test_strict_takeover_waits_for_clients_of_a_node_that_died",
        ),
    ),
    Mutant(
        "an offset moves although Kafka has not acknowledged the dead letter",
        "upstream/kafka/dead_letters.py",
        old="            if failure is None:\n",
        new="            if True:\n",
        caught_by=(
            "tests/unit/upstream/kafka/test_partitions.py::test_dead_letter_that_kafka_does_not_take_keeps_its_message",
        ),
    ),
    Mutant(
        "ackFlush: sync answers before the commit",
        "proxy/services/results/durable.py",
        old="            wait(self._reported)\n",
        new="            self._reported(True)\n",
        caught_by=(
            "tests/integration/proxy/node/test_kafka_node.py::test_answer_waits_for_the_commit_where_acks_are_sync",
            "tests/integration/proxy/node/test_kafka_node.py::test_result_that_cannot_be_committed_any_more_is_not_answered",
        ),
    ),
    Mutant(
        "a send is answered before Kafka's report",
        "proxy/services/kafka/sends.py",
        old="        sending.timer.after(_seconds(send.timeout_ms))\n",
        new="        sending.timer.after(0)\n",
        caught_by=(
            "tests/integration/proxy/services/test_kafka_sends.py::test_batch_of_both_is_answered_once_all_is_stored",
        ),
    ),
    Mutant(
        "due checks of the first partition hold up those of all others",
        "upstream/kafka/waiting/cluster.py",
        old="        for owner in owners[begin:] + owners[:begin]:\n",
        new="        for owner in owners:\n",
        caught_by=(
            "tests/unit/upstream/kafka/waiting/test_kafka_halves.py::test_many_due_checks_of_a_partition_do_not_hold_up_those_of_others",
        ),
    ),
    Mutant(
        "a commit does not say of which leader its records are",
        "upstream/kafka/commits/commits.py",
        old="        leader_epoch = queue.leader_epoch\n",
        new="        leader_epoch = -1\n",
        caught_by=(
            "tests/unit/upstream/kafka/test_logs_that_go_back.py::test_log_that_goes_back_and_grows_beyond_while_no_node_ran",
            "tests/unit/upstream/kafka/test_logs_that_go_back.py::test_log_that_goes_back_to_between_what_was_answered_out_of_order",
        ),
    ),
    Mutant(
        "what was answered out of order is finished, whoever wrote the record",
        "upstream/kafka/partitions.py",
        old=" or self.logs.differs(queue, came)):",
        new="):",
        caught_by=(
            "tests/unit/upstream/kafka/test_logs_that_go_back.py::test_log_that_goes_back_to_between_what_was_answered_out_of_order",
        ),
    ),
    Mutant(
        "a topic that is created again is taken for the one before",
        "upstream/kafka/positions/topic_ids.py",
        old="                queue.missing = queue.is_other = gone = True\n",
        new="                pass\n",
        caught_by=(
            "tests/unit/upstream/kafka/test_logs_that_go_back.py::test_topic_that_is_created_again_unseen_and_grows_beyond",
        ),
    ),
)
