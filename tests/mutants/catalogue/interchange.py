"""What a store keeps of itself when it goes to RocketMQ and comes back."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FILLERS = "tests/integration/broker/store/test_fillers.py"
POPPED = "tests/unit/broker/scheduled/test_popped.py"
LOOPS = "tests/integration/broker/scheduled/test_loops_returning.py"
THEIRS = "tests/integration/broker/store/test_from_rocketmq.py"

MUTANTS = (
    Mutant(
        name="a filler in a file names the beginning of the log",
        file="broker/queues/consume_queue.py",
        old="    return FILLER_BYTES if unit is None else UNIT.pack(unit[0], unit[1], 0)",
        new="    return FILLER_BYTES",
        caught_by=(
            f"{FILLERS}::test_filler_repeats_the_next_unit_in_the_file",
            f"{FILLERS}::test_filler_over_the_end_of_a_queue_file_repeats_the_next_file",
            f"{FILLERS}::test_repair_writes_the_same_form",
        ),
    ),
    Mutant(
        name="a filler of an earlier process is taken for its neighbour",
        file="broker/opening/unit_check.py",
        old="            if self._is_filler(queue, offset + place, unit):\n                mended[place] = FILLER\n",
        new="            if self._is_filler(queue, offset + place, unit):\n                pass\n",
        caught_by=(f"{FILLERS}::test_filler_repeats_the_next_unit_in_the_file",),
    ),
    Mutant(
        name="fillers of the older form stay",
        file="broker/queues/fillers.py",
        old="    start, end = queue.min_offset, queue.end_of_files\n",
        new="    start, end = queue.min_offset, queue.min_offset\n",
        caught_by=(
            f"{FILLERS}::test_old_fillers_are_rewritten_at_opening",
            f"{FILLERS}::test_old_fillers_before_a_first_unit_no_longer_hide_the_first_log_file",
        ),
    ),
    Mutant(
        name="a topic made again begins inside a queue file",
        file="broker/queues/topic_lives.py",
        old="        return -(-end // self._file_units) * self._file_units\n",
        new="        return end\n",
        caught_by=(
            f"{FILLERS}::test_topic_made_again_begins_at_a_queue_file_without_fillers",
            f"{FILLERS}::test_first_offset_inside_a_file_moves_where_no_message_stands",
        ),
    ),
    Mutant(
        name="what POP consumers had in hand is forgotten",
        file="upstream/embedded/taking_over.py",
        old="    again = [offset for offset in offsets if tracker.is_finished(offset)]\n",
        new="    again: list[int] = []\n",
        caught_by=(
            f"{POPPED}::test_hand_over_makes_them_unfinished_once_and_for_the_way_back",
            f"{POPPED}::test_everything_else_stays_finished",
        ),
    ),
    Mutant(
        name="a POP message in hand comes from the retry topic as well after the way back",
        file="upstream/embedded/taking_over.py",
        old="            offsets.set(REVIVE_GROUP, topic, queue_id, last)\n",
        new="",
        caught_by=(f"{POPPED}::test_hand_over_makes_them_unfinished_once_and_for_the_way_back",),
    ),
    Mutant(
        name="a loop that RocketMQ ended has ended here",
        file="broker/opening/queue_build.py",
        old="                self.marked.setdefault(mark, []).append(entry.physical)\n",
        new="                pass\n",
        caught_by=(
            f"{LOOPS}::test_loop_goes_on_with_what_was_missed",
            f"{LOOPS}::test_loop_goes_on_once",
        ),
    ),
    Mutant(
        name="a loop goes on as often as the log is scanned",
        file="broker/scheduled/recurring/returning.py",
        old="    if (yield from _timed(store, topic.name, following)):\n        return None\n",
        new="",
        caught_by=(f"{LOOPS}::test_loop_goes_on_once",),
    ),
    Mutant(
        name="a message that only says so starts a loop",
        file="broker/scheduled/recurring/returning.py",
        old="    if not any(found.unique_key == message.unique_key for found in waited):\n        return None\n",
        new="",
        caught_by=(f"{LOOPS}::test_message_that_only_says_so_starts_no_loop",),
    ),
    Mutant(
        name="a topic that RocketMQ deleted comes back from the log",
        file="broker/queues/topics.py",
        old="        return self._file.foreign and name",
        new="        return False and name",
        caught_by=(f"{THEIRS}::test_topic_deleted_there_does_not_come_back_here",),
    ),
    Mutant(
        name="of two unique keys the first alone finds the message",
        file="broker/index/keys.py",
        old="    return [key for key in ((last, first) if first != last else (last,)) if key]\n",
        new="    return [key for key in (first,) if key]\n",
        caught_by=(
            f"{THEIRS}::test_id_that_is_shown_finds_the_message_and_so_does_the_one_that_the_producer_was_told",
            f"{THEIRS}::test_index_that_lacks_the_first_of_two_unique_keys_is_right",
        ),
    ),
    Mutant(
        name="an index file of another size is made anew",
        file="broker/index/file.py",
        old="            if size != self._bytes and not self._fit(size):\n",
        new="            if size != self._bytes:\n",
        caught_by=(f"{THEIRS}::test_index_files_of_another_size_are_used",),
    ),
)
