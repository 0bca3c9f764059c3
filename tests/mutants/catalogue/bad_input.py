"""Promise 7: bad input gets a clear error, changes nothing, and takes a bounded share."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "all results of a chain count for the group of the first",
        "proxy/services/consumer_service.py",
        old="            group = self._groups.get(result.group) or self._leaving(result.group)\n",
        new='            group = self._groups.get(results[0].group or "") or self._leaving(result.group)\n',
        caught_by=(
            "tests/integration/proxy/services/test_ddmq_faults_wire.py::test_every_element_of_a_chain_counts_for_its_own_group",
        ),
        rows=("W4",),
    ),
    Mutant(
        "the valid messages of a bad batch are stored",
        "proxy/services/producer_service.py",
        old="""\
        except Refusal as refusal:
            give_tokens_back(self.ports)
            refusal.text""",
        new="""\
        except Refusal as refusal:
            if self.puts:
                return self.append()
            refusal.text""",
        caught_by=(
            "tests/integration/proxy/node/test_ddmq_faults_node.py::test_batch_is_checked_like_single_messages_and_stored_whole",
        ),
        rows=("W82",),
    ),
    Mutant(
        "a delay message with any text as its uuid is accepted",
        "proxy/services/delay_rules.py",
        old="    if not UUID.fullmatch(uuid):\n",
        new="    if uuid is None:\n",
        caught_by=(
            "tests/unit/proxy/services/test_delay_rules.py::test_any_fields_give_an_id_that_can_be_cancelled_or_a_code",
        ),
        rows=("W77", "W88"),
    ),
    Mutant(
        "a topic that a reload removed still takes publishes",
        "proxy/services/topic_ports.py",
        old="""\
        self.by_name.clear()
        self.by_name.update(ports)
""",
        new="        self.by_name.update(ports)\n",
        caught_by=(
            "tests/integration/proxy/node/test_ddmq_faults_node.py::test_topic_taken_out_or_disabled_takes_no_more_sends",
        ),
        rows=("W85",),
    ),
    Mutant(
        "a bad reload stops the running groups",
        "proxy/node/reload.py",
        old="""\
        try:
            loaded = yield from self._loading()
        except ConfigError as error:
            self.configuration = replace(self.configuration, text=error.shown)
            return self._refuse(tuple(str(problem) for problem in error.problems))
""",
        new="""\
        for group in self._node.in_force.groups.values():
            group.begin_drain()
        try:
            loaded = yield from self._loading()
        except ConfigError as error:
            self.configuration = replace(self.configuration, text=error.shown)
            return self._refuse(tuple(str(problem) for problem in error.problems))
""",
        caught_by=("tests/simulation/test_reload.py::test_bad_reload_names_the_place_and_changes_nothing",),
        rows=("W45",),
    ),
    Mutant(
        "a frame of any announced length is read to its end",
        "proxy/wire/frames.py",
        old="        return self._frame_bytes_max < size <= CUT_BYTES_MAX and (\n",
        new="        return self._frame_bytes_max < size and (\n",
        caught_by=("tests/hostile/test_too_long.py::test_splitter_refuses_what_is_far_too_long_at_once",),
    ),
    Mutant(
        "a reply exceeds its byte limit by one message",
        "upstream/waiting/buffer.py",
        old="                if size > room and jobs:\n",
        new="                if room <= 0 and jobs:\n",
        caught_by=(
            "tests/integration/proxy/services/test_ddmq_faults_wire.py::test_reply_cap_counts_keys_and_properties",
            "tests/unit/upstream/waiting/test_buffer.py::test_reply_is_of_one_queue_and_bounded_by_count_and_bytes",
        ),
        rows=("W8",),
    ),
    Mutant(
        "the pull buffer takes any number of messages",
        "upstream/waiting/buffer.py",
        old="        room = self.jobs < limits.jobs_max and self.bytes < limits.bytes_max and not self.budget.level\n",
        new="        room = self.bytes < limits.bytes_max and not self.budget.level\n",
        caught_by=(
            "tests/unit/upstream/waiting/test_buffer.py::test_buffer_bound_stops_reading_but_leaves_every_topic_a_batch",
        ),
        rows=("W50",),
    ),
    Mutant(
        "one turn of the loop serves all busy connections, however long that takes",
        "proxy/port/shares.py",
        old="""\
                if self.now() >= until:
                    break
""",
        new="",
        caught_by=(
            "tests/unit/proxy/port/test_shares.py::test_one_turn_takes_no_longer_for_a_hundred_busy_connections_than_for_one",
            "tests/unit/proxy/port/test_shares.py::test_heavy_connections_that_ask_one_thing_at_a_time_wait_when_a_turn_is_spent",
        ),
    ),
    Mutant(
        "results on a pull above the rate limit are discarded",
        "proxy/services/consumer_service.py",
        old="            self._take(slot, request.results, reply, reply)",
        new="            self._take(slot, [], reply, reply)",
        caught_by=(
            "tests/access/test_limits.py::test_results_of_a_pull_above_its_rate_are_taken_and_it_is_answered_empty",
            "tests/access/test_limits.py::test_long_chain_of_results_is_taken_above_a_rate_too",
        ),
    ),
    Mutant(
        "memory is reclaimed from single connections, not from the client with most in all",
        "proxy/port/memory.py",
        old="(shares[_client_of(pair[1])], _weight(pair[1], now))",
        new="_weight(pair[1], now)",
        caught_by=("tests/access/test_limits.py::test_memory_is_taken_back_from_who_holds_most_in_all",),
    ),
    Mutant(
        "a stored topic name may be any path",
        "broker/runtime/names.py",
        old='_STORED = re.compile(rb"[%|a-zA-Z0-9_-]{1,255}")',
        new='_STORED = re.compile(rb".+", re.DOTALL)',
        caught_by=(
            "tests/integration/broker/store/test_hostile_names.py::test_name_that_no_topic_can_have_is_refused",
            "tests/integration/broker/store/test_hostile_names.py::test_crafted_backup_is_refused_and_changes_nothing",
        ),
    ),
)
