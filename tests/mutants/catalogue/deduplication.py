"""Messages that a producer has numbered: their keys, the window, its checkpoint, and the answers to repeats."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

UNIT = "tests/unit/broker/features/test_deduplication.py"
WINDOW = "tests/unit/broker/features/test_deduplication_window.py"
STORE = "tests/integration/broker/features/test_deduplication.py"
NODE = "tests/integration/proxy/services/test_deduplication_node.py"

MUTANTS = (
    Mutant(
        name="a wall clock that is set ahead silences producers",
        file="broker/deduplication/deduplication.py",
        old="            self.window.forget(moments[0][1] + silence_ms)\n",
        new="            pass\n        self.window.forget(self._store.store_ms)\n",
        caught_by=(
            "tests/simulation/test_numbered.py::test_clock_that_is_set_ahead_silences_nobody_while_the_node_lives",
            "tests/integration/broker/features/test_deduplication.py::test_clock_set_ahead_and_back_silences_nobody",
        ),
    ),
    Mutant(
        name="silent producers are never forgotten",
        file="broker/deduplication/deduplication.py",
        old="        if moments[0][0] <= since:\n",
        new="        if moments[0][0] < 0:\n",
        caught_by=(
            "tests/integration/broker/features/test_deduplication.py::test_who_sends_nothing_while_the_node_lives_is_forgotten",
        ),
    ),
    Mutant(
        name="the first number of a name is cut short",
        file="broker/deduplication/numbers.py",
        old="    return int(name[START_AT:], 16) << _START_SHIFT\n",
        new="    return int(name[START_AT:], 16)\n",
        caught_by=(f"{UNIT}::test_key_says_who_and_which",),
    ),
    Mutant(
        name="a number below the first is a number",
        file="broker/deduplication/numbers.py",
        old="    return Numbered(name, number) if number >= first_number(name) else None\n",
        new="    return Numbered(name, number)\n",
        caught_by=(f"{UNIT}::test_key_of_another_form_is_none", f"{NODE}::test_key_of_another_form_is_refused"),
    ),
    Mutant(
        name="digits of a key may be small",
        file="broker/deduplication/numbers.py",
        old='_is_key = re.compile(rb"FE[0-9A-F]{%d}"',
        new='_is_key = re.compile(rb"(?i)FE[0-9A-F]{%d}"',
        caught_by=(f"{UNIT}::test_key_of_another_form_is_none", f"{NODE}::test_key_of_another_form_is_refused"),
    ),
    Mutant(
        name="of a batch the last number alone is looked at",
        file="broker/deduplication/numbers.py",
        old="        return keys == numbered_keys(keys[0][:-_LOW_DIGITS], low, count)\n",
        new="        return keys[-1] == numbered_keys(keys[0][:-_LOW_DIGITS], low, count)[-1]\n",
        caught_by=(f"{UNIT}::test_keys_in_order_are_told_from_others",),
    ),
    Mutant(
        name="the numbers of a batch may come in any order",
        file="broker/deduplication/deduplication.py",
        old="        if not are_in_order(keys, first):\n",
        new="        if not are_in_order(keys[:1], first):\n",
        caught_by=(f"{NODE}::test_batch_has_the_numbers_of_one_producer_in_order_or_none",),
    ),
    Mutant(
        name="the client begins with another number than its name says",
        file="pyddmq/client/numbers.py",
        old="        self.next = start << 16\n",
        new="        self.next = (start << 16) + 1\n",
        caught_by=(f"{UNIT}::test_numbers_of_the_client_are_those_of_the_broker",),
    ),
    Mutant(
        name="a message behind a gap is new",
        file="broker/deduplication/window.py",
        old="        if at > known:\n            return None\n",
        new="        if at > known:\n            return ()\n",
        caught_by=(
            f"{WINDOW}::test_window_says_what_is_new_stored_older_and_behind_a_gap",
            f"{NODE}::test_message_above_a_gap_is_refused_until_the_ones_before_it_came",
        ),
    ),
    Mutant(
        name="a producer that is not known begins with any number",
        file="broker/deduplication/window.py",
        old="            return () if number == first_number(name) else None\n",
        new="            return ()\n",
        caught_by=(
            f"{WINDOW}::test_window_says_what_is_new_stored_older_and_behind_a_gap",
            f"{NODE}::test_window_ends_with_so_many_messages",
        ),
    ),
    Mutant(
        name="the window cuts a large call in two",
        file="broker/deduplication/window.py",
        old="        kept = max(self.limits.messages, last_call)\n",
        new="        kept = self.limits.messages\n",
        caught_by=(f"{WINDOW}::test_last_call_is_known_whole_however_large",),
    ),
    Mutant(
        name="a copy takes the place of the first record",
        file="broker/deduplication/window.py",
        old="            if places[at] == MISSING:\n                places[at] = place\n",
        new="            places[at] = place\n",
        caught_by=(f"{WINDOW}::test_what_damage_took_is_missing_and_may_be_stored",),
    ),
    Mutant(
        name="who was known first is forgotten first",
        file="broker/deduplication/window.py",
        old="        producer.last_ms = now_ms\n        self.producers.move_to_end(name)\n        self._receipts +=",
        new="        producer.last_ms = now_ms\n        self._receipts +=",
        caught_by=(f"{WINDOW}::test_producers_are_forgotten_by_silence_and_number",),
    ),
    Mutant(
        name="silence is no reason to forget a producer",
        file="broker/deduplication/window.py",
        old="        while producers and next(iter(producers.values())).last_ms < silent_ms:\n",
        new="        while producers and next(iter(producers.values())).last_ms < 0:\n",
        caught_by=(f"{WINDOW}::test_producers_are_forgotten_by_silence_and_number",),
    ),
    Mutant(
        name="receipts of all together have no bound",
        file="broker/deduplication/window.py",
        old="        while self._receipts > RECEIPTS_MAX and len(self.producers) > 1:\n",
        new="        while self._receipts < 0:\n",
        caught_by=(f"{WINDOW}::test_receipts_of_all_together_are_bounded",),
    ),
    Mutant(
        name="a checkpoint has what is not visible yet",
        file="broker/deduplication/checkpoint.py",
        old="        if producer.last_place >= end:\n",
        new="        if producer.last_place < 0:\n",
        caught_by=(f"{UNIT}::test_checkpoint_has_what_is_below_an_offset",),
    ),
    Mutant(
        name="the sum of a checkpoint is not looked at",
        file="broker/deduplication/checkpoint.py",
        old="    if len(raw) < _HEAD.size + _SUM.size or _SUM.unpack_from(raw, len(raw) - _SUM.size)[0] != (\n"
        "        crc32(raw[: -_SUM.size]) & 0xFFFFFFFF\n    ):\n",
        new="    if len(raw) < _HEAD.size + _SUM.size:\n",
        caught_by=(f"{UNIT}::test_damaged_checkpoint_is_told",),
    ),
    Mutant(
        name="a delivery counts like what was sent",
        file="broker/deduplication/deduplication.py",
        old="        if not replaced:\n            self.window",
        new="        if replaced >= 0:\n            self.window",
        caught_by=(f"{STORE}::test_record_that_takes_the_place_of_another_does_not_count",),
    ),
    Mutant(
        name="a checkpoint that says more than the log is believed",
        file="broker/deduplication/deduplication.py",
        old="        if end > self._store.end:\n            self.window.clear()\n            return None\n",
        new="",
        caught_by=(f"{STORE}::test_checkpoint_that_says_more_than_the_log_is_not_believed",),
    ),
    Mutant(
        name="a checkpoint that is not believed stays until the next one",
        file="broker/deduplication/deduplication.py",
        old="        if start is None or start < store.end:\n",
        new="        if start is not None and start < store.end:\n",
        caught_by=(f"{STORE}::test_checkpoint_that_says_more_than_the_log_is_not_believed",),
    ),
    Mutant(
        name="a repeat of what a failed sync left undecided is answered as stored",
        file="proxy/services/keyed_sends.py",
        old="            if error is not None:\n                self._publishing",
        new="            if error is not None and not places:\n                self._publishing",
        caught_by=(f"{STORE}::test_repeat_of_what_a_failed_sync_left_undecided_is_refused_as_that_is",),
    ),
    Mutant(
        name="a repeat is answered before the first is durable",
        file="proxy/services/keyed_sends.py",
        old="        if max(places) >= self._store.end:\n            self._store.commit.when_told(done)\n",
        new="        if not places:\n            self._store.commit.when_told(done)\n",
        caught_by=(f"{STORE}::test_repeat_of_what_is_not_durable_yet_is_answered_when_it_is",),
    ),
    Mutant(
        name="what was stored is not remembered",
        file="proxy/services/producer_service.py",
        old="            if judged is not None:\n                self._keyed.stored(judged, positions)\n",
        new="",
        caught_by=(
            f"{NODE}::test_message_that_comes_again_gets_its_first_receipt",
            f"{NODE}::test_two_that_come_in_one_turn_are_one_message",
            f"{NODE}::test_messages_that_wait_are_known_too",
        ),
    ),
    Mutant(
        name="a batch that was stored is not remembered",
        file="proxy/services/producer_service.py",
        old="            if positions:\n                self._keyed.stored(judged, positions)\n            return\n",
        new="            return\n",
        caught_by=(f"{NODE}::test_batch_that_comes_again_gets_its_first_receipts",),
    ),
    Mutant(
        name="a half that was stored is not remembered",
        file="proxy/services/transaction_service.py",
        old="                self._keyed.stored(judged, positions)\n",
        new="                pass\n",
        caught_by=(f"{NODE}::test_halves_are_known_too",),
    ),
    Mutant(
        name="the record of a delayed message has no number",
        file="proxy/services/delay_service.py",
        old="            waiting = keyed(waiting, judged.key)\n",
        new="            pass\n",
        caught_by=(f"{NODE}::test_delayed_messages_of_ddmq_and_loops_are_known_too",),
    ),
    Mutant(
        name="a refused message has used its number",
        file="proxy/services/producer_service.py",
        old="                judged = self._keyed.judge([key])\n                if judged.places:\n",
        new="                judged = self._keyed.judge([key])\n                if not judged.places:\n"
        "                    self._keyed._deduplication.stored(judged, [0])\n                if judged.places:\n",
        caught_by=(f"{NODE}::test_refused_message_leaves_its_number_free",),
    ),
    Mutant(
        name="a repeat is checked like a new message before it is known",
        file="proxy/services/producer_service.py",
        old="            if key is not None:\n                judged = self._keyed.judge([key])\n",
        new="            if key is not None:\n                self._checks.check([message], [], [], keyed=True)\n"
        "                judged = self._keyed.judge([key])\n",
        caught_by=(f"{NODE}::test_repeat_takes_no_rate_token",),
    ),
    Mutant(
        name="a repeat is refused while the node drains",
        file="proxy/services/producer_service.py",
        old="            if key is not None:\n                judged = self._keyed.judge([key])\n",
        new="            if key is not None:\n                self._publishing.check_open()\n"
        "                judged = self._keyed.judge([key])\n",
        caught_by=(f"{NODE}::test_repeat_is_answered_while_the_node_drains",),
    ),
    Mutant(
        name="the log behind the checkpoint is not read",
        file="broker/deduplication/deduplication.py",
        old="        position = made._window_start() if start is None else start\n",
        new="        position = store.end\n",
        caught_by=(f"{NODE}::test_repeats_are_known_after_a_kill_and_after_a_stop",),
    ),
)
