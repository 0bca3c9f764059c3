"""What a failed disk leaves undecided, what producers write, reloads and resets."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

UNDECIDED = "tests/unit/upstream/outcomes/test_undecided.py"
RELOADS = "tests/unit/upstream/delivery/test_reconfigure.py"
PROPERTIES = "tests/unit/broker/format/test_own_properties.py"
OPERATOR = "tests/simulation/test_operator.py"

MUTANTS = (
    Mutant(
        name="a record whose sync failed is taken for durable",
        file="upstream/outcomes/apart.py",
        old="""            self._permits.release(1)
        if job.group_queue.tracker.is_finished(job.offset):
""",
        new="""            self._permits.release(1)
        if job.group_queue.tracker.finish(job.offset) or True:
""",
        caught_by=(
            f"{UNDECIDED}::test_message_whose_retry_could_not_be_synced_waits_for_the_restart",
            f"{UNDECIDED}::test_message_whose_dead_letter_could_not_be_synced_waits_for_the_restart",
        ),
    ),
    Mutant(
        name="a generation reads anew what an earlier one left undecided",
        file="upstream/job.py",
        old="        self.apart.update(offset for offset in self.tracker.undecided if",
        new="        self.apart.update(offset for offset in () if",
        caught_by=(
            f"{UNDECIDED}::test_undecided_message_is_left_alone_by_the_next_generation",
            f"{UNDECIDED}::test_generation_that_ends_while_a_dead_letter_is_written_hands_its_message_to_nobody",
        ),
    ),
    Mutant(
        name="a held key is forgotten with its generation",
        file="upstream/job.py",
        old="        self.apart = {offset for offset in self.adopted if self.tracker.is_finished(offset)}\n",
        new="        self.apart = set()\n",
        caught_by=(
            f"{RELOADS}::test_held_key_outlasts_a_forced_change",
            f"{RELOADS}::test_held_key_is_kept_over_two_reloads_and_an_offset_far_behind_the_watermark",
        ),
    ),
    Mutant(
        name="a generation that does not drain is waited for without a bound",
        file="upstream/delivery/generations.py",
        old="            if not subscription.drained and now < slot.replace_at:\n",
        new="            if not subscription.drained:\n",
        caught_by=(f"{RELOADS}::test_held_key_holds_up_nobody_else_after_a_reload",),
    ),
    Mutant(
        name="each reload begins another chain of attempts to start",
        file="upstream/delivery/generations.py",
        old="        _forget_attempt(slot)\n        config = slot.config\n",
        new="        config = slot.config\n",
        caught_by=(f"{RELOADS}::test_reloads_leave_one_attempt_to_start_at_a_time",),
    ),
    Mutant(
        name="a topic that is taken out before it ran stays",
        file="upstream/delivery/generations.py",
        old="            self._end(slot)\n",
        new="",
        caught_by=(
            f"{RELOADS}::test_topic_taken_out_before_it_ran_is_given_up",
            f"{RELOADS}::test_topic_whose_actions_do_not_open_gives_its_queues_up_when_it_is_taken_out",
        ),
    ),
    Mutant(
        name="a dead letter keeps what its producer says of its end",
        file="broker/retry/dead_letter.py",
        old="_RETRIED = (*LETTER_PROPERTIES, ",
        new="_RETRIED = (",
        caught_by=(f"{PROPERTIES}::test_forged_facts_of_a_dead_letter_are_left_out",),
    ),
    Mutant(
        name="a first retry keeps the topic that its producer names",
        file="broker/retry/puts.py",
        old="    if not is_retry_topic(message.topic) or find_property(block, RETRY_TOPIC_NAME) is None:\n",
        new="    if find_property(block, RETRY_TOPIC_NAME) is None:\n",
        caught_by=(f"{PROPERTIES}::test_forged_retry_topic_takes_a_message_to_nobody_else",),
    ),
    Mutant(
        name="a reset that fails leaves its topic drained",
        file="proxy/operate/changes/offsets.py",
        old="            group.undrain_topic(body.topic)\n",
        new="",
        caught_by=(
            f"{OPERATOR}::test_reset_on_a_node_that_fails_meanwhile_leaves_its_topic_at_work",
            f"{OPERATOR}::test_reset_whose_caller_goes_away_leaves_its_topic_at_work",
        ),
    ),
    Mutant(
        name="a reset that waits keeps its turn",
        file="proxy/operate/changes/desk.py",
        old="    turn.give_up()\n    try:\n        yield\n    finally:\n        await turn.take()\n",
        new="    yield\n",
        caught_by=(f"{OPERATOR}::test_other_changes_go_first_while_a_reset_waits",),
    ),
)
