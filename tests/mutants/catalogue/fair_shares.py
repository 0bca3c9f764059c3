"""Clients that take more than their share of the loop, calls in steps, and what a connection writes when."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FAIR = "tests/hostile/test_fair_shares.py"
SHARES = "tests/unit/proxy/port/test_shares.py"
TURN = "tests/unit/proxy/port/test_connection_turn.py"

MUTANTS = (
    Mutant(
        name="a turn of a connection is bounded by time alone",
        file="proxy/port/reading.py",
        old="                and self.requests < handled + SLICE_FRAMES\n",
        new="",
        caught_by=(f"{FAIR}::test_pipelined_calls_leave_every_turn_to_others_too",),
    ),
    Mutant(
        name="getConsumeStats counts what is unfinished",
        file="proxy/services/consumer_service.py",
        old="        rows = [] if group is None else [",
        new="        rows = [] if group is None or group.stats() is None else [",
        caught_by=(f"{FAIR}::test_stats_of_a_group_do_not_walk_what_waits_behind_a_key",),
    ),
    Mutant(
        name="a long chain of results is applied in one go",
        file="proxy/services/results/result_steps.py",
        old="            if room <= 0:\n",
        new="            if room is None:\n",
        caught_by=(f"{FAIR}::test_long_chain_of_results_is_applied_in_steps",),
    ),
    Mutant(
        name="later frames do not wait for a call that is worked off in steps",
        file="proxy/port/reading.py",
        old="                and self._steps is None\n",
        new="",
        caught_by=(
            f"{FAIR}::test_long_chain_of_results_is_applied_in_steps",
            f"{FAIR}::test_results_on_a_long_pull_count_before_it_takes_messages",
        ),
    ),
    Mutant(
        name="a pull with a long chain of results is served before the last of them",
        file="proxy/services/consumer_service.py",
        old="                connection.work(self._applying(request.results, connection, pull))\n"
        "                return\n",
        new="                connection.work(self._applying(request.results, connection, lambda _: None))\n"
        "                pull(True)\n                return\n",
        caught_by=(f"{FAIR}::test_results_on_a_long_pull_count_before_it_takes_messages",),
    ),
    Mutant(
        name="the end of what a client sends ends its frames that wait for their turn",
        file="proxy/port/replying.py",
        old="not (self._slots or self._out or self.deferred)",
        new="not (self._slots or self._out)",
        caught_by=(f"{FAIR}::test_end_of_file_behind_pipelined_frames_loses_none_of_them",),
    ),
    Mutant(
        name="a connection that waits for its turn is read on without a bound",
        file="proxy/port/reading.py",
        old="            self.deferred or (not self.favoured and server.budget.level >= Pressure.SLOWED)\n",
        new="            not self.favoured and server.budget.level >= Pressure.SLOWED\n",
        caught_by=(f"{FAIR}::test_frames_that_wait_for_their_turn_are_in_the_account",),
    ),
    Mutant(
        name="what arrives while a connection waits for its turn is in nobody's account",
        file="proxy/port/connection.py",
        old="                shares.defer(self)\n                self._note_input(self.requests)\n",
        new="                shares.defer(self)\n",
        caught_by=(f"{FAIR}::test_frames_that_wait_for_their_turn_are_in_the_account",),
    ),
    Mutant(
        name="a call that broke amid its steps leaves its client waiting",
        file="proxy/port/server.py",
        old='kind=f"{self.service} steps", client=connection.address)\n        connection.abort()\n',
        new='kind=f"{self.service} steps", client=connection.address)\n',
        caught_by=(f"{FAIR}::test_call_that_breaks_in_the_middle_of_its_steps_ends_its_connection",),
    ),
    Mutant(
        name="all connections that wait are served in one turn",
        file="proxy/port/shares.py",
        old="                if self.now() >= until:\n                    break\n",
        new="",
        caught_by=(
            f"{SHARES}::test_one_turn_takes_no_longer_for_a_hundred_busy_connections_than_for_one",
            f"{SHARES}::test_heavy_connections_that_ask_one_thing_at_a_time_wait_when_a_turn_is_spent",
        ),
    ),
    Mutant(
        name="a turn of a connection is bounded by its frames alone",
        file="proxy/port/reading.py",
        old="                and moment < began + SLICE_SECONDS\n",
        new="",
        caught_by=(f"{SHARES}::test_one_turn_takes_no_longer_for_a_hundred_busy_connections_than_for_one",),
    ),
    Mutant(
        name="who was served last is served next",
        file="proxy/port/shares.py",
        old="                connection = waiting.popleft()\n",
        new="                connection = waiting.pop()\n",
        caught_by=(f"{SHARES}::test_busy_connections_have_equal_shares",),
    ),
    Mutant(
        name="who asks little waits like everybody when a turn is spent",
        file="proxy/port/shares.py",
        old="            self.spent < TURN_SECONDS or connection.share.used(self.now()) < HEAVY_SECONDS\n",
        new="            self.spent < TURN_SECONDS\n",
        caught_by=(f"{SHARES}::test_light_connection_is_served_as_its_bytes_arrive",),
    ),
    Mutant(
        name="who takes much is served as its bytes arrive",
        file="proxy/port/shares.py",
        old="            self.spent < TURN_SECONDS or connection.share.used(self.now()) < HEAVY_SECONDS\n",
        new="            self.spent >= 0\n",
        caught_by=(f"{SHARES}::test_heavy_connections_that_ask_one_thing_at_a_time_wait_when_a_turn_is_spent",),
    ),
    Mutant(
        name="what a connection took is never forgiven",
        file="proxy/port/shares.py",
        old="        return max(0.0, self._used - (now - self.last) * FORGIVEN_SHARE)\n",
        new="        return self._used\n",
        caught_by=(f"{SHARES}::test_what_was_taken_is_forgiven",),
    ),
    Mutant(
        name="replies of a turn leave before its end when the peer reads again",
        file="proxy/port/reading.py",
        old="        if self.dirty:\n            # Replies of this turn leave with its end and not before",
        new="        if self.dirty and self.ended:\n"
        "            # Replies of this turn leave with its end and not before",
        caught_by=(f"{TURN}::test_reply_waits_for_the_end_of_its_turn_although_the_peer_reads_again",),
    ),
    Mutant(
        name="a peer that reads again waits for the end of another turn",
        file="proxy/port/reading.py",
        old="        self.flush()\n        if not self.closed:\n            self.advance()\n",
        new="        if not self.closed:\n            self.advance()\n",
        caught_by=(f"{TURN}::test_replies_of_earlier_turns_leave_as_soon_as_the_peer_reads",),
    ),
    Mutant(
        name="replies before garbage leave before the end of their turn",
        file="proxy/port/reading.py",
        old="        if self.dirty:\n            # Replies of this turn leave with its end (D9), which",
        new="        if self.closed:\n            # Replies of this turn leave with its end (D9), which",
        caught_by=(f"{TURN}::test_reply_before_garbage_waits_for_the_end_of_its_turn",),
    ),
    Mutant(
        name="every byte gives its frame more time",
        file="proxy/port/reading.py",
        old="        elif self.partial_since is None or self.requests != handled:\n",
        new="        else:\n",
        caught_by=(f"{TURN}::test_frame_that_drips_in_ends_its_connection_although_every_byte_is_recent",),
    ),
    Mutant(
        name="a reply that is stuck on its way counts as heard",
        file="proxy/port/replying.py",
        old="            self._stuck_replies = count\n",
        new="",
        caught_by=(f"{TURN}::test_request_says_which_replies_its_client_can_have_had",),
    ),
    Mutant(
        name="a request that waited to be handled has heard what was answered meanwhile",
        file="proxy/port/reading.py",
        old="        self.heard = marks[0][1]\n",
        new="        self.heard = self.requests - len(self._slots) - len(self._out) - self._stuck_replies\n",
        caught_by=(f"{TURN}::test_request_read_before_a_reply_left_did_not_hear_it",),
    ),
    Mutant(
        name="a connection that comes after the close is let in",
        file="proxy/port/server.py",
        old="        if self._over:\n            return False\n",
        new="",
        caught_by=(f"{TURN}::test_connection_that_comes_after_the_close_is_closed",),
    ),
    Mutant(
        name="a close gives out replies of a turn that has not ended",
        file="proxy/port/replying.py",
        old="            if self.dirty:\n                self._transport.abort()\n            else:\n"
        "                self._transport.close()\n",
        new="            self.flush()\n            self._transport.close()\n",
        caught_by=(f"{TURN}::test_close_gives_out_no_reply_whose_turn_has_not_ended",),
    ),
)
