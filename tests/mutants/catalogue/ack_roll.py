"""The ack journal's segments: what a roll waits for, what waits for a roll, and the start after one."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ROLL = "tests/unit/upstream/progress/test_ack_roll.py"

MUTANTS = (
    Mutant(
        name="what was to follow a roll begins amid its steps",
        file="upstream/progress/ack_writer.py",
        old="                self._next_sync.after(0.0)\n",
        new="                self._on_timer()\n",
        caught_by=(
            "tests/unit/upstream/progress/test_roll_after_roll.py::"
            "test_ack_that_the_next_segment_cannot_take_is_refused",
        ),
    ),
    Mutant(
        name="a roll is synced in its turn",
        file="upstream/progress/ack_writer.py",
        old="        self._rolls = FileWrites(journal.disk, syncs)\n",
        new="        self._rolls = FileWrites(journal.disk)\n",
        caught_by=(f"{ROLL}::test_segment_begins_without_a_sync_in_the_turn",),
    ),
    Mutant(
        name="the folder is not synced with a roll",
        file="upstream/progress/ack_writer.py",
        old="            yield self._journal.file\n            yield self._journal.folder\n        except SyncFailed",
        new="            yield self._journal.file\n        except SyncFailed",
        caught_by=(f"{ROLL}::test_no_answered_ack_is_lost_wherever_a_roll_stops",),
    ),
    Mutant(
        name="the new segment is not synced with a roll",
        file="upstream/progress/ack_writer.py",
        old="            yield self._journal.file\n            yield self._journal.folder\n        except SyncFailed",
        new="            yield self._journal.folder\n        except SyncFailed",
        caught_by=(f"{ROLL}::test_what_was_synced_before_a_roll_holds_until_it_is_durable",),
    ),
    Mutant(
        name="the segment before is given up as a roll begins",
        file="upstream/progress/ack_writer.py",
        old="        self._rolling = self._unsynced = True\n        self._segments.value += 1\n",
        new="        self._rolling = self._unsynced = True\n        self._segments.value += 1\n"
        "        self._journal.give_up_earlier()\n",
        caught_by=(f"{ROLL}::test_what_was_synced_before_a_roll_holds_until_it_is_durable",),
    ),
    Mutant(
        name="what was written amid a roll is taken for durable with it",
        file="upstream/progress/ack_writer.py",
        old="            self._journal.give_up_earlier()\n            self._durable(covered)\n",
        new="            self._journal.give_up_earlier()\n            self._durable(self._written)\n",
        caught_by=(f"{ROLL}::test_entry_is_durable_when_the_roll_and_the_sync_after_it_are",),
    ),
    Mutant(
        name="a sync does not wait for the end of a roll",
        file="upstream/progress/ack_writer.py",
        old="        if self._in_flight is not None or self._rolling:\n",
        new="        if self._in_flight is not None:\n",
        caught_by=(f"{ROLL}::test_sync_that_falls_due_amid_a_roll_is_that_of_the_roll",),
    ),
    Mutant(
        name="a roll begins before the last one has ended",
        file="upstream/progress/ack_writer.py",
        old="        before = self.failed\n        self._rolls.finish()\n",
        new="        before = self.failed\n",
        caught_by=(f"{ROLL}::test_segment_that_is_full_before_it_is_durable_is_waited_for",),
    ),
    Mutant(
        name="a spare is made amid a roll",
        file="upstream/progress/ack_writer.py",
        old="        if self._rolling:\n            # The segment that is about",
        new="        if self._closed:\n            # The segment that is about",
        caught_by=(f"{ROLL}::test_space_of_the_next_segment_is_not_claimed_amid_a_roll",),
    ),
    Mutant(
        name="blocks of another life stay in a segment",
        file="upstream/progress/journal.py",
        old="            if not is_clean:\n                _clear(file, position + len(END_OF_BLOCKS))\n",
        new="",
        caught_by=(f"{ROLL}::test_segment_shows_nothing_of_one_whose_name_the_power_took",),
    ),
    Mutant(
        name="acks go on after a roll's sync has failed",
        file="upstream/progress/ack_writer.py",
        old="""            if self.failed is None or isinstance(self.failed, ProgressFull):
                self._refuse("syncing", error)
            return
        finally:
""",
        new="""            return
        finally:
""",
        caught_by=(
            f"{ROLL}::test_failed_sync_of_a_roll_refuses_acks_for_good",
            f"{ROLL}::test_who_waits_for_a_roll_hears_that_it_failed",
        ),
    ),
    Mutant(
        name="what was answered before a roll whose sync fails is not synced",
        file="upstream/progress/ack_writer.py",
        old="                    self._journal.sync_earlier()\n",
        new="                    pass\n",
        caught_by=(f"{ROLL}::test_failed_sync_of_a_roll_refuses_acks_for_good",),
    ),
    Mutant(
        name="a segment whose sync failed is given up for the one behind it",
        file="upstream/progress/ack_writer.py",
        old="        if self.failed is None or isinstance(self.failed, ProgressFull):\n"
        "            self._journal.give_up",
        new="        if self._journal is not None:\n            self._journal.give_up",
        caught_by=(f"{ROLL}::test_failed_sync_of_the_segment_before_refuses_acks_and_it_is_not_given_up",),
    ),
    Mutant(
        name="a failed write leaves unsynced what was answered amid a roll",
        file="upstream/progress/ack_writer.py",
        old="            self._save_earlier()\n",
        new="",
        caught_by=(f"{ROLL}::test_failed_write_amid_a_roll_still_makes_earlier_acks_durable",),
    ),
    Mutant(
        name="who makes everything durable does not wait for a roll",
        file="upstream/progress/ack_writer.py",
        old="            self._syncing.wait()\n        self._rolls.finish()\n",
        new="            self._syncing.wait()\n",
        caught_by=(f"{ROLL}::test_what_is_durable_on_return_is_so_amid_a_roll",),
    ),
    Mutant(
        name="who waited for a roll is not told that it failed",
        file="upstream/progress/ack_writer.py",
        old="        self.wait()\n        if self.failed is not None:\n            raise self.failed\n",
        new="        self.wait()\n",
        caught_by=(f"{ROLL}::test_who_waits_for_a_roll_hears_that_it_failed",),
    ),
    Mutant(
        name="a commit beside the loop knows nothing of a roll",
        file="upstream/progress/ack_writer.py",
        old="self._written, self._syncing, self._rolling, self._journal.number\n",
        new="self._written, self._syncing, False, self._journal.number\n",
        caught_by=(f"{ROLL}::test_begun_commit_amid_a_roll_waits_for_it_beside_the_loop",),
    ),
    Mutant(
        name="ackFlush sync syncs nothing",
        file="upstream/progress/ack_writer.py",
        old="            if self._sync_each_flush or self._sync_next:\n",
        new="            if self._sync_next:\n",
        caught_by=(f"{ROLL}::test_ack_flush_sync_waits_for_the_segment",),
    ),
    Mutant(
        name="a sync that found no space is taken for a full disk",
        file="upstream/progress/ack_writer.py",
        old='        full = what == "writing" and error.errno in NO_SPACE\n',
        new="        full = error.errno in NO_SPACE\n",
        caught_by=(f"{ROLL}::test_sync_that_finds_no_space_is_not_tried_again",),
    ),
    Mutant(
        name="a sync is taken for that which something staged asks for",
        file="upstream/progress/ack_writer.py",
        old="            if not self.pending:\n                # What is staged now may ask for its own.\n"
        "                self._sync_next = False\n",
        new="            self._sync_next = False\n",
        caught_by=(f"{ROLL}::test_entry_that_asks_for_a_sync_gets_its_own",),
    ),
    Mutant(
        name="a start gives up segments for one that may be in the page cache alone",
        file="upstream/progress/journal.py",
        old="(len(numbers) == 1 or self._is_made_durable(best.number)):\n",
        new="best.number:\n",
        caught_by=(f"{ROLL}::test_start_after_a_kill_amid_a_roll_gives_up_no_segment_before_another_is_durable",),
    ),
    Mutant(
        name="a start does not make the name of the segment that counts durable",
        file="upstream/progress/journal.py",
        old="                file.sync()\n            self.disk.sync_folder(self.folder)\n        except OSError:\n",
        new="                file.sync()\n        except OSError:\n",
        caught_by=(f"{ROLL}::test_start_after_a_kill_amid_a_roll_gives_up_no_segment_before_another_is_durable",),
    ),
    Mutant(
        name="a start that cannot sync a segment ends",
        file="upstream/progress/journal.py",
        old="            # The next segment is another file, and what is kept here until then is looked at again.\n"
        "            return False\n",
        new="            raise\n",
        caught_by=(f"{ROLL}::test_start_that_cannot_sync_the_segment_that_counts_gives_up_none_for_it",),
    ),
    Mutant(
        name="a start that cannot sync the segment that counts gives up the others",
        file="upstream/progress/journal.py",
        old="            # The next segment is another file, and what is kept here until then is looked at again.\n"
        "            return False\n",
        new="            return True\n",
        caught_by=(f"{ROLL}::test_start_that_cannot_sync_the_segment_that_counts_gives_up_none_for_it",),
    ),
    Mutant(
        name="a segment that is given up is deleted",
        file="upstream/progress/journal.py",
        old="                if self._fits_as_spare(path) and not self.disk.exists(spare):\n",
        new="                if self.disk.exists(path) and self.disk.exists(spare):\n",
        caught_by=(f"{ROLL}::test_acks_go_on_beside_the_loop_while_the_disk_is_full",),
    ),
    Mutant(
        name="a sync that was asked for amid a roll never begins",
        file="upstream/progress/ack_writer.py",
        old="            self._durable(covered)\n            self._begin_asked_for()\n\n    def _refuse",
        new="            self._durable(covered)\n\n    def _refuse",
        caught_by=(f"{ROLL}::test_sync_that_falls_due_amid_a_roll_follows_it_for_what_came_meanwhile",),
    ),
)
