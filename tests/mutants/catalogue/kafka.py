"""The promises over topics in Kafka, on several nodes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="a long chain of results is applied in one go",
        file="proxy/services/results/result_steps.py",
        old="            if room <= 0:\n",
        new="            if room is None:\n",
        caught_by=("tests/hostile/test_fair_shares.py::test_long_chain_of_results_is_applied_in_steps",),
    ),
    Mutant(
        name="the end of what a client sends ends its frames that wait for their turn",
        file="proxy/port/replying.py",
        old="not (self._slots or self._out or self.deferred)",
        new="not (self._slots or self._out)",
        caught_by=("tests/hostile/test_fair_shares.py::test_end_of_file_behind_pipelined_frames_loses_none_of_them",),
    ),
    Mutant(
        name="what arrives while a connection waits for its turn is in nobody's account",
        file="proxy/port/connection.py",
        old=("                shares.defer(self)\n                self._note_input(self.requests)\n"),
        new="                shares.defer(self)\n",
        caught_by=("tests/hostile/test_fair_shares.py::test_frames_that_wait_for_their_turn_are_in_the_account",),
    ),
    Mutant(
        name="all connections that wait are served in one turn",
        file="proxy/port/shares.py",
        old=("                if self.now() >= until:\n                    break\n"),
        new="",
        caught_by=(
            "tests/unit/proxy/port/test_shares.py::test_one_turn_takes_no_longer_for_a_hundred_busy_connections_than_for_one",
            "tests/unit/proxy/port/test_shares.py::test_heavy_connections_that_ask_one_thing_at_a_time_wait_when_a_turn_is_spent",
        ),
    ),
    Mutant(
        name="a turn of a connection is bounded by its frames alone",
        file="proxy/port/reading.py",
        old="                and moment < began + SLICE_SECONDS\n",
        new="",
        caught_by=(
            "tests/unit/proxy/port/test_shares.py::test_one_turn_takes_no_longer_for_a_hundred_busy_connections_than_for_one",
        ),
    ),
    Mutant(
        name="who was served last is served next",
        file="proxy/port/shares.py",
        old="                connection = waiting.popleft()\n",
        new="                connection = waiting.pop()\n",
        caught_by=("tests/unit/proxy/port/test_shares.py::test_busy_connections_have_equal_shares",),
    ),
    Mutant(
        name="what a connection took is never forgiven",
        file="proxy/port/shares.py",
        old="        return max(0.0, self._used - (now - self.last) * FORGIVEN_SHARE)\n",
        new="        return self._used\n",
        caught_by=("tests/unit/proxy/port/test_shares.py::test_what_was_taken_is_forgiven",),
    ),
    Mutant(
        name="a peer that reads again waits for the end of another turn",
        file="proxy/port/reading.py",
        old=("        self.flush()\n        if not self.closed:\n            self.advance()\n"),
        new=("        if not self.closed:\n            self.advance()\n"),
        caught_by=(
            "tests/unit/proxy/port/test_connection_turn.py::test_replies_of_earlier_turns_leave_as_soon_as_the_peer_reads",
        ),
    ),
    Mutant(
        name="a request that waited to be handled has heard what was answered meanwhile",
        file="proxy/port/reading.py",
        old="        self.heard = marks[0][1]\n",
        new="        self.heard = self.requests - len(self._slots) - len(self._out) - self._stuck_replies\n",
        caught_by=(
            "tests/unit/proxy/port/test_connection_turn.py::test_request_read_before_a_reply_left_did_not_hear_it",
        ),
    ),
    Mutant(
        name="a close gives out replies of a turn that has not ended",
        file="proxy/port/replying.py",
        old=(
            "            if self.dirty:\n"
            "                self._transport.abort()\n"
            "            else:\n"
            "                self._transport.close()\n"
        ),
        new=("            self.flush()\n            self._transport.close()\n"),
        caught_by=(
            "tests/unit/proxy/port/test_connection_turn.py::test_close_gives_out_no_reply_whose_turn_has_not_ended",
        ),
    ),
    Mutant(
        name="a POP message in hand comes from the retry topic as well after the way back",
        file="upstream/embedded/taking_over.py",
        old="            offsets.set(REVIVE_GROUP, topic, queue_id, last)\n",
        new="",
        caught_by=(
            "tests/unit/broker/scheduled/test_popped.py::test_hand_over_makes_them_unfinished_once_and_for_the_way_back",
        ),
    ),
    Mutant(
        name="a loop goes on as often as the log is scanned",
        file="broker/scheduled/recurring/returning.py",
        old=("    if (yield from _timed(store, topic.name, following)):\n        return None\n"),
        new="",
        caught_by=("tests/integration/broker/scheduled/test_loops_returning.py::test_loop_goes_on_once",),
    ),
    Mutant(
        name="a strict takeover waits for nobody",
        file="upstream/kafka/partitions.py",
        old="        if not seconds:\n",
        new="        if True:\n",
        caught_by=(
            "tests/unit/upstream/kafka/test_partitions.py::test_strict_takeover_waits_for_clients_of_a_node_that_died",
        ),
    ),
)
