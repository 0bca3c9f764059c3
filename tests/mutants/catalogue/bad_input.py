"""Bad input gets an error, and takes neither memory nor places without a bound."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="a topic that comes later is not read",
        file="upstream/kafka/partitions.py",
        old=("            self._ask_for_topics()\n            self._expand()\n"),
        new="            self.subscriptions.found.clear()\n",
        caught_by=(
            "tests/unit/upstream/kafka/test_subscriptions.py::test_each_topic_that_fits_is_read_also_one_that_comes_later",
        ),
    ),
    Mutant(
        name="each node takes the total rate for its own",
        file="upstream/kafka/subscriptions.py",
        old="entry.total_max_tps * mine / partitions",
        new="entry.total_max_tps",
        caught_by=("tests/unit/upstream/kafka/test_subscriptions.py::test_rate_follows_the_partitions_of_the_node",),
    ),
    Mutant(
        name="a node that nobody pulls from is a member",
        file="upstream/delivery/group.py",
        old="self.node.runtime.clock.monotonic() - asked_at < seconds",
        new="True",
        caught_by=("tests/integration/proxy/node/test_kafka_node.py::test_node_is_a_member_while_somebody_pulls",),
    ),
    Mutant(
        name="the local transaction runs before its half is stored",
        file="pyddmq/client/transaction_producer.py",
        old="        half, attempts = self._call(HALF, half_arg",
        new=("        self._listener.execute(message, arg)\n        half, attempts = self._call(HALF, half_arg"),
        caught_by=("tests/unit/pyddmq/test_client_transactions.py::test_refused_half_raises_and_runs_nothing",),
    ),
    Mutant(
        name="commits go out for every queue ever seen, without a comparison",
        file="upstream/progress/offset_commits.py",
        old=(
            "            if (len(known.file_values) != 1 or known.file_values[0] != "
            "known.tracker.watermark) and not known.let_go\n"
        ),
        new="            if known\n",
        caught_by=(
            "tests/unit/upstream/progress/test_queue_ownership.py::test_the_group_changes_hands_both_ways_without_loss_or_repetition",
        ),
        rows=("W27",),
    ),
    Mutant(
        name="nobody is told that queues were lost",
        file="upstream/embedded/ownership.py",
        old="                self._lost(topic)\n",
        new="",
        caught_by=(
            "tests/unit/upstream/progress/test_queue_ownership.py::test_a_proxy_that_lost_its_locks_stops_and_waits",
        ),
        rows=("W28",),
    ),
    Mutant(
        name="Json consumes empty and null bodies in silence",
        file="actions/json_action.py",
        old="                answers.append(error)\n",
        new=(
            '                answers.append(error if bytes(job.body).strip() not in (b"", '
            'b"null") else Status.FINISH)\n'
        ),
        caught_by=(
            "tests/integration/upstream/test_ddmq_faults_pipeline.py::test_body_that_json_cannot_take_is_dead_lettered_with_the_reason",
        ),
        rows=("W17",),
    ),
    Mutant(
        name="the signature leaves the body out",
        file="actions/http/signature.py",
        old='hmac.digest(secret, head + body, "sha256")',
        new='hmac.digest(secret, head, "sha256")',
        caught_by=("tests/unit/actions/http/test_signature.py::test_signature_changes_with_each_part",),
        rows=("W63",),
    ),
    Mutant(
        name="a new rate begins with a burst",
        file="actions/http/pace.py",
        old="        self._tokens = 0.0\n",
        new="        self._tokens = 1e9\n",
        caught_by=("tests/unit/actions/http/test_pace.py::test_rate_is_kept_from_the_first_request_on",),
        rows=("W65",),
    ),
    Mutant(
        name="a request that crosses the close of a kept connection is an error",
        file="actions/http/client.py",
        old="            if was_kept and ",
        new="            if False and ",
        caught_by=(
            "tests/unit/actions/http/test_client.py::test_request_is_sent_again_where_a_kept_connection_closed_before_a_byte_of_the_reply",
        ),
    ),
    Mutant(
        name="a reload logs the configuration",
        file="proxy/node/reload.py",
        old='        _log.info("reloaded", changes=list(result.changes), warnings=list(warnings))\n',
        new=(
            '        _log.info("reloaded", changes=list(result.changes), '
            "warnings=list(warnings), of=str(loaded.config))\n"
        ),
        caught_by=("tests/integration/proxy/node/test_ddmq_faults_node.py::test_reload_logs_names_and_no_values",),
        rows=("W66",),
    ),
)
