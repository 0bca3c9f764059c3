"""What one client may take: rates, numbers, shares, and what a client above a limit is answered."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

LIMITS = "tests/access/test_limits.py"
SDKS = "tests/access/test_sdks_limited.py"
METER = "tests/unit/proxy/limits/test_meter.py"
LIMITER = "tests/unit/proxy/limits/test_limiter.py"
GATE = "proxy/port/gate.py"
CONSUMER = "proxy/services/consumer_service.py"

MUTANTS = (
    Mutant(
        name="a client above its rate is served all the same",
        file=GATE,
        old="        if wait > self._patience:\n",
        new="        if wait > 1_000_000:\n",
        caught_by=(
            f"{LIMITS}::test_each_method_above_a_rate_has_its_answer",
            f"{LIMITS}::test_frames_behind_wait_while_a_connection_rests",
        ),
    ),
    Mutant(
        name="a client above its rate is asked to wait, and its connection does not rest",
        file=GATE,
        old="        connection.rest(SEND_PATIENCE if method in _SENDS else PATIENCE)\n",
        new="",
        caught_by=(
            f"{SDKS}::test_consumers_far_above_their_rate_come_once_a_second_each",
            f"{SDKS}::test_producer_above_its_rate_slows_down_and_keeps_the_node",
            f"{LIMITS}::test_frames_behind_wait_while_a_connection_rests",
        ),
    ),
    Mutant(
        name="sends above a rate are held for as long as pulls",
        file=GATE,
        old="SEND_PATIENCE = 0.040\n",
        new="SEND_PATIENCE = 1.0\n",
        caught_by=(f"{SDKS}::test_producer_above_its_rate_slows_down_and_keeps_the_node",),
    ),
    Mutant(
        name="results of a pull above its rate are thrown away",
        file=CONSUMER,
        old="            self._take(connection, request.results, partial(self._pull_over,",
        new="            self._take(connection, [], partial(self._pull_over,",
        caught_by=(
            f"{LIMITS}::test_results_of_a_pull_above_its_rate_are_taken_and_it_is_answered_empty",
            f"{LIMITS}::test_long_chain_of_results_is_taken_above_a_rate_too",
        ),
    ),
    Mutant(
        name="a pull with results above its rate gets an exception",
        file=CONSUMER,
        old="        if request.results:\n            return encode_empty_pull_reply(header)\n",
        new="",
        caught_by=(
            f"{LIMITS}::test_results_of_a_pull_above_its_rate_are_taken_and_it_is_answered_empty",
            f"{SDKS}::test_consumers_far_above_their_rate_come_once_a_second_each",
        ),
    ),
    Mutant(
        name="acks are refused above a rate",
        file=GATE,
        old='_TAKEN = frozenset(("submit", "ack", "endTransaction", "authenticate"))\n',
        new='_TAKEN = frozenset(("authenticate",))\n',
        caught_by=(f"{LIMITS}::test_each_method_above_a_rate_has_its_answer",),
    ),
    Mutant(
        name="frames are handled while their connection rests",
        file="proxy/port/reading.py",
        old="                and not self._resting\n",
        new="",
        caught_by=(f"{LIMITS}::test_frames_behind_wait_while_a_connection_rests",),
    ),
    Mutant(
        name="a client that connects anew is another one",
        file="proxy/limits/limiter.py",
        old="            self._kept[meter.name] = meter\n            self._bound()\n\n    def _bound",
        new="            self._bound()\n\n    def _bound",
        caught_by=(f"{LIMITER}::test_connecting_anew_brings_no_further_second",),
    ),
    Mutant(
        name="sends and pulls of a client wait for the same rate",
        file="proxy/limits/meter.py",
        old="        found = self._rates.get(service)\n",
        new="        found = next(iter(self._rates.values()), None)\n",
        caught_by=(f"{METER}::test_another_line_holds_at_once_and_forgives_nothing",),
    ),
    Mutant(
        name="clients without a connection are kept for ever",
        file="proxy/limits/limiter.py",
        old="        if len(self._kept) > KEPT_MAX:\n",
        new="        if not self._kept:\n",
        caught_by=(f"{LIMITER}::test_no_more_clients_are_kept_than_the_bound",),
    ),
    Mutant(
        name="an IPv6 client has as many addresses as it likes",
        file="proxy/limits/limiter.py",
        old="IPV6_BITS = 64\n",
        new="IPV6_BITS = 128\n",
        caught_by=(f"{LIMITER}::test_ipv6_address_counts_by_its_64",),
    ),
    Mutant(
        name="a principal has a place for every connection",
        file="proxy/limits/limiter.py",
        old="            if most is not None and meter.connections.total() >= most:\n"
        "                quota.is_known = False\n",
        new="            if most is not None and most < 0:\n                quota.is_known = False\n",
        caught_by=(
            f"{LIMITS}::test_connection_without_a_place_is_told_so_and_closed",
            f"{SDKS}::test_producer_without_a_place_gets_one_when_another_leaves",
        ),
    ),
    Mutant(
        name="one client takes all places of a port",
        file="proxy/limits/limiter.py",
        old="        if self.share is not None and meter.connections[service] >= self.share * free:\n",
        new="        if self.share is not None and meter.connections[service] >= self.share * free * 1000:\n",
        caught_by=(
            f"{LIMITS}::test_share_of_a_port_and_of_waiting_pulls",
            f"{LIMITER}::test_share_leaves_places_for_others",
        ),
    ),
    Mutant(
        name="one client has all the pulls of a group wait",
        file="proxy/limits/quota.py",
        old="client.parked[line] >= self.share * free:",
        new="client.parked[line] >= self.share * free * 1000:",
        caught_by=(
            f"{LIMITS}::test_share_of_a_port_and_of_waiting_pulls",
            f"{LIMITER}::test_pulls_that_wait_are_limited_in_all_and_share_those_of_a_group",
        ),
    ),
    Mutant(
        name="what waits no more is counted on",
        file="proxy/services/waiting_pulls.py",
        old="        slot.withdraw = self._parked = None\n"
        "        if self._counted:\n"
        "            unpark(self._counted, self._group.name)\n"
        "        self._lingers.remove(self)\n",
        new="        slot.withdraw = self._parked = None\n        self._lingers.remove(self)\n",
        caught_by=(f"{LIMITS}::test_waiting_pulls_of_a_client_are_so_many",),
    ),
    Mutant(
        name="halves are forgotten by whose they are",
        file="broker/transaction/halves.py",
        old="            self.owned[half.owner] += 1\n",
        new="",
        caught_by=(f"{LIMITS}::test_open_transactions_are_so_many_also_after_a_restart",),
    ),
    Mutant(
        name="halves whose answer is on its way are not counted",
        file="proxy/services/client_counts.py",
        old="            self._meter.halves += 1\n",
        new="            self._meter.halves += 0\n",
        caught_by=(f"{LIMITS}::test_halves_of_one_turn_are_not_more_than_the_limit",),
    ),
    Mutant(
        name="a cancelled message counts until it would have been due",
        file="proxy/services/delay_service.py",
        old="            if outcome is CancelOutcome.CANCELLED:\n                ended()\n",
        new="",
        caught_by=(f"{LIMITS}::test_pending_timers_are_so_many_until_they_are_due_or_cancelled",),
    ),
    Mutant(
        name="another section of limits holds for new connections alone",
        file="proxy/port/server.py",
        old="            connection.quota = self._limiter.renew(connection.quota, connection.host, self.service)\n",
        new="            pass\n",
        caught_by=(f"{LIMITS}::test_reload_holds_for_living_connections",),
    ),
    Mutant(
        name="bytes of replies are not counted",
        file="proxy/port/replying.py",
        old="            self.quota.sent(size)\n",
        new="            self.quota.sent(0)\n",
        caught_by=(f"{LIMITS}::test_bytes_count_in_both_directions",),
    ),
    Mutant(
        name="memory is taken back from single connections, whoever has many",
        file="proxy/port/memory.py",
        old="(shares[_client_of(pair[1])], _weight(pair[1], now))",
        new="_weight(pair[1], now)",
        caught_by=(f"{LIMITS}::test_memory_is_taken_back_from_who_holds_most_in_all",),
    ),
    Mutant(
        name="a client's word of when to come again is not heard",
        file="pyddmq/client/sends.py",
        old="min(self.pause_ms << doubled, _PAUSE_MS_MAX), told)",
        new="min(self.pause_ms << doubled, _PAUSE_MS_MAX), told * 0)",
        caught_by=("tests/unit/pyddmq/test_client_sends.py::test_pause_is_as_long_as_the_node_says_within_reason",),
    ),
)
