"""Groups over Kafka: leases, claims, what travels with a commit, partitions that go."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PARTITIONS = "tests/unit/upstream/kafka/test_partitions.py"
BLOBS = "tests/unit/upstream/kafka/test_blobs.py"
SUBSCRIPTIONS = "tests/unit/upstream/kafka/test_subscriptions.py"
MEMBER = "tests/unit/upstream/kafka_client/test_member_parts.py"
NODE = "tests/integration/proxy/node/test_kafka_node.py"
CLIENT = "tests/unit/upstream/kafka_client/test_kafka_client.py"
MEMBER = "tests/unit/upstream/kafka_client/test_member_parts.py"
TROUBLES = "tests/unit/upstream/kafka_client/test_troubles.py"

LETTERS = "tests/unit/upstream/kafka/test_letters_on_their_way.py"
REVOKED = "tests/unit/upstream/delivery/test_revoked_queues.py"
KEPT = "tests/unit/upstream/kafka/test_answered_is_kept.py"

MUTANTS = (
    Mutant(
        name="a member leaves its group while its commits cannot get through",
        file="upstream/kafka/partitions.py",
        old="            self.commits.last(lambda: self._member.leave(left), seconds=seconds)\n",
        new="            self._member.leave(left)\n",
        caught_by=(f"{KEPT}::test_node_that_stops_while_the_group_is_shared_out_has_nothing_repeated[classic]",),
    ),
    Mutant(
        name="a member that leaves waits as long for a cluster that is away",
        file="upstream/kafka/member_settings.py",
        old="        return min(self.session_seconds, self.revoke_seconds) if cut_off else self.session_seconds\n",
        new="        return self.session_seconds\n",
        caught_by=(f"{KEPT}::test_node_that_stops_while_the_cluster_is_away_waits_no_longer_than_in_a_revoke",),
    ),
    Mutant(
        name="commits in vain are remembered without a bound",
        file="upstream/kafka/commits.py",
        old="            del said[1:-SAID_MAX]\n",
        new="",
        caught_by=(f"{KEPT}::test_commits_in_vain_are_remembered_within_a_bound",),
    ),
    Mutant(
        name="a broker that is back is looked for when librdkafka pleases",
        file="upstream/kafka_client/settings.py",
        old='            "reconnect.backoff.max.ms": 1_000,\n',
        new="",
        caught_by=(
            "tests/unit/upstream/kafka_client/test_settings.py::test_broker_that_is_back_is_found_within_a_second",
        ),
    ),
    Mutant(
        name="a partition that goes after the lease was over goes without its last commit",
        file="upstream/kafka/partitions.py",
        old="            if still:\n",
        new="            if still and self.lease.holds:\n",
        caught_by=(
            f"{KEPT}::test_partition_that_moves_takes_along_what_was_answered_while_nothing_was_committed[classic]",
        ),
    ),
    Mutant(
        name="a member that gets its partitions back knows what is committed and nothing else",
        file="upstream/kafka/remembered.py",
        old="        return known.ranges\n",
        new="        return ()\n",
        caught_by=(f"{KEPT}::test_node_that_gets_its_partitions_back_has_nothing_repeated",),
    ),
    Mutant(
        name="a member that gets its partitions back keeps what it knew although the group was set back",
        file="upstream/kafka/remembered.py",
        old="        if known is None or (assignment.committed, assignment.metadata) not in known.said:\n",
        new="        if known is None:\n",
        caught_by=(f"{KEPT}::test_group_that_was_set_back_meanwhile_gets_it_all_again",),
    ),
    Mutant(
        name="what was finished of records that are gone counts for those in their place",
        file="upstream/kafka/remembered.py",
        old="        if known.ranges and known.ranges[-1][1] > assignment.high:\n",
        new="        if False:\n",
        caught_by=(f"{KEPT}::test_records_that_are_gone_finish_none_of_those_that_come_in_their_place",),
    ),
    Mutant(
        name="a partition is given up before its last commit can be made",
        file="upstream/kafka_client/member.py",
        old="            revoke_seconds=revoke_seconds + LAST_SECONDS,\n",
        new="            revoke_seconds=revoke_seconds,\n",
        caught_by=(f"{CLIENT}::test_last_commit_of_a_revoke_counts_after_its_time_for_answers",),
    ),
    Mutant(
        name="commits that somebody waits for wait for an idle poll",
        file="upstream/kafka_client/member_thread.py",
        old="        first = self._consumer.poll(SOON_SECONDS if soon else POLL_SECONDS)\n",
        new="        first = self._consumer.poll(POLL_SECONDS)\n",
        caught_by=(f"{MEMBER}::test_thread_polls_briefly_while_somebody_waits_for_commits",),
    ),
    Mutant(
        name="a node hands out whatever its lease says",
        file="upstream/kafka/lease.py",
        old="        return self.now() < self._until\n",
        new="        return self._until >= 0\n",
        caught_by=(f"{PARTITIONS}::test_node_that_wakes_after_its_session_hands_nothing_out",),
    ),
    Mutant(
        name="an idle member makes no commit for its lease",
        file="upstream/kafka/commits.py",
        old="        if not changed and now - self._sent >= self._lease.renew_after:\n",
        new="        if False:\n",
        caught_by=(f"{PARTITIONS}::test_idle_member_commits_for_its_lease",),
    ),
    Mutant(
        name="what is finished above a committed offset is forgotten",
        file="upstream/kafka/partitions.py",
        old="            tracker.finish_range(start, end)\n",
        new="            pass\n",
        caught_by=(f"{PARTITIONS}::test_next_owner_knows_what_is_finished_above_and_how_often_the_rest_failed",),
    ),
    Mutant(
        name="failed attempts do not travel with a commit",
        file="upstream/kafka/commits.py",
        old="tracker.finished_ranges(), dict(tracker.failures)\n",
        new="tracker.finished_ranges(), {}\n",
        caught_by=(f"{PARTITIONS}::test_next_owner_knows_what_is_finished_above_and_how_often_the_rest_failed",),
    ),
    Mutant(
        name="a partition is given up without its last commit",
        file="upstream/kafka/partitions.py",
        old="            if still:\n",
        new="            if False:\n",
        caught_by=(f"{PARTITIONS}::test_node_that_left_in_order_leaves_nothing_to_wait_for",),
    ),
    Mutant(
        name="a partition that is given up is still handed out",
        file="upstream/waiting/buffer.py",
        old=" or group_queue.withheld:\n",
        new=":\n",
        caught_by=(f"{PARTITIONS}::test_nothing_more_of_a_partition_that_is_given_up_is_handed_out",),
        rows=("W28",),
    ),
    Mutant(
        name="a strict takeover waits for nobody",
        file="upstream/kafka/partitions.py",
        old="        if not seconds:\n",
        new="        if True:\n",
        caught_by=(f"{PARTITIONS}::test_strict_takeover_waits_for_clients_of_a_node_that_died",),
    ),
    Mutant(
        name="offsets that hold nothing to read are waited for",
        file="upstream/kafka/source.py",
        old="            group_queue.tracker.finish_range(group_queue.next, offset)\n",
        new="",
        caught_by=(f"{PARTITIONS}::test_caught_up_group_shows_no_lag",),
    ),
    Mutant(
        name="bodies behind a key are kept whatever they take",
        file="upstream/kafka/source.py",
        old="            self._drop(self.bytes_max // 2)\n",
        new="            pass\n",
        caught_by=(f"{PARTITIONS}::test_bodies_that_wait_behind_a_key_are_dropped_and_read_again",),
    ),
    Mutant(
        name="a dead letter counts although Kafka has not taken it",
        file="upstream/kafka/dead_letters.py",
        old="            if failure is None:\n",
        new="            if True:\n",
        caught_by=(f"{PARTITIONS}::test_dead_letter_that_kafka_does_not_take_keeps_its_message",),
    ),
    Mutant(
        name="a group whose cluster has not answered has caught up",
        file="upstream/delivery/group_figures.py",
        old="                unknown=node.broker.unknown(name),\n",
        new="",
        caught_by=(f"{NODE}::test_lag_is_unknown_until_the_cluster_has_said_what_the_node_has",),
    ),
    Mutant(
        name="a topic that comes later is not read",
        file="upstream/kafka/partitions.py",
        old="            self._ask_for_topics()\n            self._expand()\n",
        new="            self.subscriptions.found.clear()\n",
        caught_by=(f"{SUBSCRIPTIONS}::test_each_topic_that_fits_is_read_also_one_that_comes_later",),
    ),
    Mutant(
        name="each node takes the total rate for its own",
        file="upstream/kafka/subscriptions.py",
        old="entry.total_max_tps * mine / partitions",
        new="entry.total_max_tps",
        caught_by=(f"{SUBSCRIPTIONS}::test_rate_follows_the_partitions_of_the_node",),
    ),
    Mutant(
        name="a commit does not wait for the blob that it names",
        file="upstream/kafka/commits.py",
        old="        self._blobs.write(queue.place, offset, long, written, seconds=seconds)\n",
        new="        written(None)\n",
        caught_by=(
            f"{BLOBS}::test_commit_waits_for_its_blob",
            f"{BLOBS}::test_next_owner_knows_what_has_no_room_in_a_text",
        ),
    ),
    Mutant(
        name="a blob is taken whatever its text says of it",
        file="upstream/kafka/blobs.py",
        old="    if _sum(value) != named.sum or not value.startswith(head) or len(value) > len(head) + BLOB_MAX:\n",
        new="    if False:\n",
        caught_by=(f"{BLOBS}::test_blob_that_is_not_what_the_text_says_counts_for_nothing",),
    ),
    Mutant(
        name="the blob that a commit names is written over",
        file="upstream/kafka/blobs.py",
        old="{int(owner.named.endswith('-0'))}",
        new="0",
        caught_by=(f"{BLOBS}::test_slot_that_a_commit_names_is_not_the_next_ones",),
    ),
    Mutant(
        name="an answer waits for no commit where acks are sync",
        file="proxy/services/results/settled.py",
        old="        each.node.settle(told)\n",
        new="        told(True)\n",
        caught_by=(
            f"{NODE}::test_answer_waits_for_the_commit_where_acks_are_sync",
            f"{NODE}::test_result_that_cannot_be_committed_any_more_is_not_answered",
        ),
    ),
    Mutant(
        name="a lease stands still with a machine that is suspended",
        file="upstream/kafka/lease.py",
        old="        return self._clock.since_boot()\n",
        new="        return self._clock.monotonic()\n",
        caught_by=(f"{PARTITIONS}::test_machine_that_was_suspended_hands_nothing_out",),
    ),
    Mutant(
        name="a node that nobody pulls from is a member",
        file="upstream/delivery/group.py",
        old="self.node.runtime.clock.monotonic() - asked_at < seconds",
        new="True",
        caught_by=(f"{NODE}::test_node_is_a_member_while_somebody_pulls",),
    ),
    Mutant(
        name="a node leaves with messages out",
        file="upstream/delivery/group.py",
        old="        return any(each.in_flight or each.calls for each in self.group_queues())\n",
        new="        return False\n",
        caught_by=(f"{NODE}::test_node_is_a_member_while_somebody_pulls",),
    ),
    Mutant(
        name="a member that ended by a fault is none for good",
        file="upstream/kafka/membership.py",
        old="        self._wait(now, failure)\n        self.is_in = False\n",
        new="        self._wait(now, failure)\n",
        caught_by=(f"{NODE}::test_member_that_ended_by_a_fault_is_replaced_and_shown_meanwhile",),
        rows=("W26",),
    ),
    Mutant(
        name="that a member ended by a fault shows nowhere",
        file="upstream/kafka/partitions.py",
        old="        self.trouble_told(failure)\n        self._broken(failure)\n",
        new="        self._broken(failure)\n",
        caught_by=(f"{NODE}::test_member_that_ended_by_a_fault_is_replaced_and_shown_meanwhile",),
        rows=("W26",),
    ),
    Mutant(
        name="retention of the store looks at groups of Kafka",
        file="proxy/node/parts.py",
        old="        return [each for each in self.all_groups() if isinstance(each.node.broker, EmbeddedBroker)]\n",
        new="        return self.all_groups()\n",
        caught_by=(f"{NODE}::test_retention_of_the_store_has_nothing_to_do_with_groups_of_kafka",),
    ),
    Mutant(
        name="a commit of a partition that went is sent",
        file="upstream/kafka_client/commits.py",
        old="        ours = [each for each in self._asked if self._is_ours(each)]\n",
        new="        ours = list(self._asked)\n",
        caught_by=(f"{MEMBER}::test_commit_of_a_former_term_is_not_sent",),
        rows=("W27",),
    ),
    Mutant(
        name="a job whose action raises keeps its offset and its permit",
        file="upstream/running/running.py",
        old="        outcomes.error(job, answer)\n",
        new="        pass\n",
        caught_by=(f"{PARTITIONS}::test_exception_of_an_action_leaves_no_offset_and_no_permit_behind",),
        rows=("W39",),
    ),
    Mutant(
        name="headers that are left out are told of nowhere",
        file="upstream/kafka/source.py",
        old="            self._left_out.add(count)\n",
        new="            pass\n",
        caught_by=(f"{PARTITIONS}::test_header_that_no_property_can_be_named_after_is_counted",),
    ),
    Mutant(
        name="trouble of a cluster shows nowhere",
        file="upstream/kafka/partitions.py",
        old="        before, self.trouble = self.trouble, failure\n",
        new="        before = failure\n",
        caught_by=(f"{NODE}::test_cluster_that_cannot_be_reached_is_told_of_and_nothing_is_handed_out",),
    ),
    Mutant(
        name="why a cluster cannot be reached gives way to that it cannot",
        file="upstream/kafka_client/troubles.py",
        old="                if code == _ALL_DOWN and self._link is not None:\n",
        new="                if False:\n",
        caught_by=(f"{TROUBLES}::test_reason_is_told_once_however_often_all_are_down",),
    ),
    Mutant(
        name="a group over Kafka goes where its subscription began, whatever the time",
        file="proxy/operate/changes/offsets.py",
        old="        if found is not None:\n            return [plan_move",
        new="        if False:\n            return [plan_move",
        caught_by=(f"{NODE}::test_offsets_go_to_a_time",),
    ),
    Mutant(
        name="the store's retention looks at groups of Kafka",
        file="proxy/node/node.py",
        old="Expiry(store, progress, runtime, self.stored_groups)",
        new="Expiry(store, progress, runtime, self.all_groups)",
        caught_by=(f"{NODE}::test_retention_of_the_store_goes_on_beside_a_group_of_kafka",),
    ),
    Mutant(
        name="the answer to a commit is that of the first in line",
        file="upstream/kafka_client/commits.py",
        old="if each.offsets == told or not told]",
        new="if place == 0]",
        caught_by=(f"{MEMBER}::test_answer_that_never_comes_is_not_waited_for",),
    ),
    Mutant(
        name="a commit is waited for after the member was expelled",
        file="upstream/kafka_client/commits.py",
        old='none of it any more."""\n        self._ask_again()\n',
        new='none of it any more."""\n        return\n',
        caught_by=(f"{MEMBER}::test_answer_that_never_comes_is_not_waited_for",),
    ),
    Mutant(
        rows=("W28",),
        name="what was begun in an earlier term of a partition finishes a message of the next",
        file="upstream/delivery/group_queues.py",
        old="group_queue.revoked = True",
        new="group_queue.revoked = False",
        caught_by=(
            f"{LETTERS}::test_letter_of_an_earlier_term_finishes_nothing_of_the_next",
            f"{LETTERS}::test_call_of_an_earlier_term_finishes_nothing_of_the_next",
            f"{REVOKED}::test_record_of_an_earlier_term_finishes_nothing_of_the_next",
        ),
    ),
    Mutant(
        name="a queue that was given back waits for records of its earlier term",
        file="upstream/delivery/group_queues.py",
        old="            group_queue.tracker.undecided.clear()\n",
        new="",
        caught_by=(f"{REVOKED}::test_record_of_an_earlier_term_finishes_nothing_of_the_next",),
    ),
    Mutant(
        name="a dead letter that is refused is forgotten when another partition of its topic moves",
        file="upstream/kafka/dead_letters.py",
        old="if own(job.group_queue.queue).gone:",
        new="if job.group_queue.subscription is not job.subscription:",
        caught_by=(f"{LETTERS}::test_letter_that_is_refused_while_another_partition_moves_is_sent_again",),
    ),
)
