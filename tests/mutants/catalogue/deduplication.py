"""Promise 1: a numbered message that is sent again is stored once."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a message behind a gap in its producer's numbers is stored",
        "broker/deduplication/window.py",
        old="""\
        if at > known:
            return None
""",
        new="""\
        if at > known:
            return ()
""",
        caught_by=(
            "tests/unit/broker/features/test_deduplication_window.py::test_window_says_what_is_new_stored_older_and_behind_a_gap",
            "tests/integration/proxy/services/test_deduplication_node.py::test_message_above_a_gap_is_refused_until_the_ones_before_it_came",
        ),
    ),
    Mutant(
        "a checkpoint that is ahead of the log is believed",
        "broker/deduplication/deduplication.py",
        old="""\
        if end > self._store.end:
            self.window.clear()
            return None
""",
        new="",
        caught_by=(
            "tests/integration/broker/features/test_deduplication.py::test_checkpoint_that_says_more_than_the_log_is_not_believed",
        ),
    ),
    Mutant(
        "a repeat is answered before the first copy is durable",
        "proxy/services/keyed_sends.py",
        old="""\
        if max(send.judged.places or ()) >= self._store.end:
            self._store.commit.when_reported(send.repeated)
""",
        new="""\
        if not send.judged.places:
            self._store.commit.when_reported(send.repeated)
""",
        caught_by=(
            "tests/integration/broker/features/test_deduplication.py::test_repeat_of_what_is_not_durable_yet_is_answered_when_it_is",
        ),
    ),
    Mutant(
        "the numbers of stored messages are not remembered",
        "proxy/services/producer_service.py",
        old="self.stations.keyed.stored(call.judged, [staged.positions[place]])",
        new="pass",
        caught_by=(
            "tests/integration/proxy/services/test_deduplication_node.py::test_message_that_comes_again_gets_its_first_receipt",
            "tests/integration/proxy/services/test_deduplication_node.py::test_two_that_come_in_one_turn_are_one_message",
        ),
    ),
    Mutant(
        "a start does not read the log behind the checkpoint of numbers",
        "broker/deduplication/deduplication.py",
        old="        position = made._window_start() if start is None else start\n",
        new="        position = store.end\n",
        caught_by=(
            "tests/integration/proxy/services/test_deduplication_node.py::test_repeats_are_known_after_a_kill_and_after_a_stop",
        ),
    ),
    Mutant(
        "the client reuses a number while a late attempt with a higher one may arrive",
        "pyddmq/client/ordered_sends.py",
        old="            self._torn = send.numbers\n",
        new="            pass\n",
        caught_by=(
            "tests/unit/pyddmq/test_client_ordered_sends.py::test_every_outcome_is_true_and_order_holds_whatever_happens",
        ),
    ),
)
