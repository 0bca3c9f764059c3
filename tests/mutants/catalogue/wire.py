"""DDMQ's faults of API and wire: W1 to W8, W10, W11, W25 and W35."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WIRE = "tests/integration/proxy/services/test_ddmq_faults_wire.py"
NODE = "tests/integration/proxy/node/test_ddmq_faults_node.py"
SERVED = "tests/integration/proxy/node/test_node.py"
GROUP = "tests/unit/upstream/delivery/test_group.py"
CROSSING = "tests/unit/upstream/delivery/test_crossing.py"
BUFFER = "tests/unit/upstream/waiting/test_buffer.py"

MUTANTS = (
    Mutant(
        name="getConsumeStats looks for a group of the topic's name",
        file="proxy/services/consumer_service.py",
        old="        group = self._groups.get(request.group)\n        rows = []",
        new='        group = self._groups.get(request.topic or "")\n        rows = []',
        caught_by=(f"{WIRE}::test_consume_stats_are_found_with_and_without_a_topic",),
        rows=("W1",),
    ),
    Mutant(
        name="getConsumeStats has no rows where no topic is named",
        file="proxy/services/consumer_service.py",
        old="        rows = [] if group is None else",
        new="        rows = [] if group is None or request.topic is None else",
        caught_by=(f"{WIRE}::test_consume_stats_are_found_with_and_without_a_topic",),
        rows=("W1",),
    ),
    Mutant(
        name="every submit is true",
        file="proxy/services/consumer_service.py",
        old="lambda counted: encode_bool_reply(header, counted or not holds_offsets)",
        new="lambda _: encode_bool_reply(header, True)",
        caught_by=(f"{WIRE}::test_submit_is_false_for_what_it_did_not_take",),
        rows=("W2",),
    ),
    Mutant(
        name="offsets that nobody knows are passed over without a word",
        file="upstream/delivery/results.py",
        old="""        subscription.counters.stale("unknown_offset").add()
        return "ignored"
    if group_queue.tracker""",
        new="""        return "repeated"
    if group_queue.tracker""",
        caught_by=(
            f"{GROUP}::test_results_for_what_was_never_delivered_are_counted_by_reason",
            f"{WIRE}::test_submit_is_false_for_what_it_did_not_take",
        ),
        rows=("W2",),
    ),
    Mutant(
        name="a late success ends the work of another client",
        file="upstream/delivery/results.py",
        old="        if present or is_of_only(delivery, holder, number, certain=certain):\n",
        new="        if present or is_of_only(delivery, holder, number, certain=certain) or True:\n",
        caught_by=(
            f"{GROUP}::test_late_success_while_a_newer_delivery_is_out_holds_the_key",
            f"{CROSSING}::test_first_success_after_a_redelivery_to_the_same_client_keeps_the_key",
            f"{CROSSING}::test_answer_before_the_reply_has_left_is_of_an_earlier_delivery",
        ),
        rows=("W3",),
    ),
    Mutant(
        name="a late fail makes a second copy",
        file="upstream/delivery/results.py",
        old="    if job is None or not present:\n        known",
        new="    if job is None:\n        known",
        caught_by=(
            f"{GROUP}::test_fail_counts_only_for_the_present_delivery",
            f"{GROUP}::test_fail_resent_over_a_new_connection_of_the_same_client_counts",
            f"{CROSSING}::test_answer_before_the_reply_has_left_is_of_an_earlier_delivery",
        ),
        rows=("W3",),
    ),
    Mutant(
        name="a fail is taken from the connection alone that got the message",
        file="upstream/delivery/crossing.py",
        old="    return held_by is holder or (held_by.closed and _client(held_by) == _client(holder))\n",
        new="    return held_by is holder\n",
        caught_by=(f"{GROUP}::test_fail_resent_over_a_new_connection_of_the_same_client_counts",),
        rows=("W3",),
    ),
    Mutant(
        name="deliveries that timed out take no answer for themselves",
        file="upstream/delivery/crossing.py",
        old="    if _take(group_queue, offset, lambda earlier: speaks_for(holder, earlier.holder)):\n"
        "        return False\n",
        new="",
        caught_by=(f"{CROSSING}::test_first_success_after_a_redelivery_to_the_same_client_keeps_the_key",),
        rows=("W3",),
    ),
    Mutant(
        name="an answer counts for a delivery whose reply had not left",
        file="upstream/delivery/crossing.py",
        old="    return delivery.holder is not holder or delivery.reply <= holder.heard\n",
        new="    return True\n",
        caught_by=(f"{CROSSING}::test_answer_before_the_reply_has_left_is_of_an_earlier_delivery",),
        rows=("W3",),
    ),
    Mutant(
        name="all elements of a chain go to the group of the first",
        file="proxy/services/consumer_service.py",
        old="            group = self._groups.get(result.group) or self._leaving(result.group)\n",
        new='            group = self._groups.get(results[0].group or "") or self._leaving(result.group)\n',
        caught_by=(f"{WIRE}::test_every_element_of_a_chain_counts_for_its_own_group",),
        rows=("W4",),
    ),
    Mutant(
        name="a result without context ends the connection",
        file="proxy/services/consumer_service.py",
        old='                self._ignore("null_context", connection)\n                continue\n',
        new='                self._ignore("null_context", connection)\n                connection.abort()\n'
        "                return counted\n",
        caught_by=(
            f"{WIRE}::test_null_contexts_and_unknown_groups_do_not_stop_a_chain",
            f"{SERVED}::test_bad_results_never_fail_their_pull",
        ),
        rows=("W5",),
    ),
    Mutant(
        name="what can never be served looks like an empty queue",
        file="proxy/services/consumer_service.py",
        old="            connection.answer(self._refuse(call, *self._refusal(request, group, refused), connection))\n",
        new="            connection.answer(encode_empty_pull_reply(call))\n",
        caught_by=(
            f"{WIRE}::test_what_a_pull_can_never_get_is_told_by_code",
            f"{SERVED}::test_pulls_that_cannot_be_served_say_why",
        ),
        rows=("W6",),
    ),
    Mutant(
        name="a pull above the cap of waiting ones gets an empty reply at once",
        file="proxy/services/consumer_service.py",
        old='            slot.answer(self._refuse(call, PullCode.OVERLOADED, f"{error}: use fewer '
        'connections", connection))\n',
        new="            slot.answer(encode_empty_pull_reply(call) if error else b'')\n",
        caught_by=(f"{WIRE}::test_what_a_pull_can_never_get_is_told_by_code",),
        rows=("W6",),
    ),
    Mutant(
        name="a linger has no upper bound",
        file="proxy/services/consumer_service.py",
        old="        linger_ms = min(max(request.linger_ms or 0, LINGER_MS_MIN), self.linger_ms_max)\n",
        new="        linger_ms = max(request.linger_ms or 0, LINGER_MS_MIN)\n",
        caught_by=(f"{WIRE}::test_linger_has_an_upper_bound",),
        rows=("W7",),
    ),
    Mutant(
        name="a linger has no lower bound",
        file="proxy/services/consumer_service.py",
        old="        linger_ms = min(max(request.linger_ms or 0, LINGER_MS_MIN), self.linger_ms_max)\n",
        new="        linger_ms = min(max(request.linger_ms or 0, 0), self.linger_ms_max)\n",
        caught_by=(f"{WIRE}::test_linger_has_a_lower_bound",),
        rows=("W7",),
    ),
    Mutant(
        name="any number of pulls may wait",
        file="upstream/waiting/buffer.py",
        old="        if self.parked_count >= self.limits.parked_max:\n",
        new="        if self.parked_count < 0:\n",
        caught_by=(f"{BUFFER}::test_parking_beyond_the_cap_is_refused_and_counted",),
        rows=("W7",),
    ),
    Mutant(
        name="the cap of a reply counts bodies only",
        file="upstream/waiting/buffer.py",
        old="                size = job.size\n",
        new="                size = len(job.subscription.body(job))\n",
        caught_by=(f"{WIRE}::test_reply_cap_counts_keys_and_properties",),
        rows=("W8",),
    ),
    Mutant(
        name="the cap of a reply is looked at when the message is in it",
        file="upstream/waiting/buffer.py",
        old="                if size > room and jobs:\n",
        new="                if room <= 0 and jobs:\n",
        caught_by=(
            f"{WIRE}::test_reply_cap_counts_keys_and_properties",
            f"{BUFFER}::test_reply_is_of_one_queue_and_bounded_by_count_and_bytes",
        ),
        rows=("W8",),
    ),
    Mutant(
        name="refused pulls are counted by the name that the client made up",
        file="proxy/services/consumer_service.py",
        old="        self._metrics.counter(PULLS_REFUSED, code.name.lower()).add()\n",
        new="        self._metrics.counter(PULLS_REFUSED, text).add()\n",
        caught_by=(f"{WIRE}::test_names_that_clients_make_up_cost_no_memory",),
        rows=("W10",),
    ),
    Mutant(
        name="the ports bind every interface unless told otherwise",
        file="conf/sections/node.py",
        old='    host: str = setting(\n        "127.0.0.1",\n',
        new='    host: str = setting(\n        "0.0.0.0",\n',
        caught_by=(f"{NODE}::test_node_binds_the_loopback_and_names_itself_by_its_configuration",),
        rows=("W10", "W99"),
    ),
    Mutant(
        name="an option of the command line opens the ports to the network",
        file="proxy/process/serve.py",
        old="    for path, text in check_access(config.node, ruled=config.access is not None):\n",
        new="    for path, text in check_access(loaded.config.node, ruled=config.access is not None):\n",
        caught_by=(
            "tests/acceptance/test_cli_edges.py::test_option_cannot_open_a_node_that_its_configuration_keeps_closed",
        ),
        rows=("W99",),
    ),
    Mutant(
        name="results count for the first group that anybody answered for",
        file="upstream/figures/counters.py",
        old="        self.finished = metrics.counter(FINISHED, group, topic)\n",
        new="        first = [labels[0] for spec, labels, _ in metrics if spec.name == FINISHED] or [group]\n"
        "        self.finished = metrics.counter(FINISHED, first[0], topic)\n",
        caught_by=(f"{WIRE}::test_every_element_of_a_chain_counts_for_its_own_group",),
        rows=("W11",),
    ),
    Mutant(
        name="results of unknown groups land in another metric",
        file="proxy/services/consumer_service.py",
        old='                self._ignore("no_such_group", connection)\n',
        new='                self._ignore("null_context", connection)\n',
        caught_by=(f"{WIRE}::test_null_contexts_and_unknown_groups_do_not_stop_a_chain",),
        rows=("W11",),
    ),
    Mutant(
        name="a message without a body ends the pull",
        file="upstream/embedded/source.py",
        old="            located = self._store.locate(places, locate_unpacked)\n",
        new="            located = self._store.locate(places, locate_unpacked)\n"
        "            if any(begin == end for _, begin, end, _, _ in located):\n"
        '                raise TypeError("there is no body")\n',
        caught_by=(f"{WIRE}::test_message_without_a_body_is_delivered_with_its_neighbours",),
        rows=("W25",),
    ),
    Mutant(
        name="a delivery names its queue another way than the receipt",
        file="upstream/delivery/group_queues.py",
        old='        return f"{self._qid_prefix}{queue_id}"\n',
        new='        return f"null_{queue_id}"\n',
        caught_by=(f"{WIRE}::test_queue_id_is_one_text_everywhere",),
        rows=("W35",),
    ),
)
