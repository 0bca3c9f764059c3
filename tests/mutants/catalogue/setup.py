"""DDMQ's faults of clients, set-up and logs: W66, W93, W95 to W98; W99 is in `wire`."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

NODE = "tests/integration/proxy/node/test_ddmq_faults_node.py"
CONSUMER = "tests/unit/pyddmq/test_client_consumer.py"

MUTANTS = (
    Mutant(
        name="a reload logs the configuration",
        file="proxy/node/reload.py",
        old='        _log.info("reloaded", changes=list(result.changes), warnings=list(warnings))\n',
        new='        _log.info("reloaded", changes=list(result.changes), warnings=list(warnings), '
        "of=str(loaded.config))\n",
        caught_by=(f"{NODE}::test_reload_logs_names_and_no_values",),
        rows=("W66",),
    ),
    Mutant(
        name="an iteration over messages ends without a word when a connection fails",
        file="pyddmq/client/pulling/consumer.py",
        old="            batch = self.pull(patience_ms=self._patience_ms)\n            if not batch:",
        new="            try:\n                batch = self.pull()\n"
        "            except ClientError:\n                self.stop()\n                return []\n"
        "            if not batch:",
        caught_by=(
            f"{CONSUMER}::test_iteration_goes_on_over_a_restart_of_the_node",
            f"{CONSUMER}::test_iteration_gives_up_after_its_patience",
        ),
        rows=("W93",),
    ),
    Mutant(
        name="a topic without settings of its own takes no sends",
        file="proxy/services/topic_ports.py",
        old="            if not settings.enabled:\n",
        new="            if not settings.enabled or settings.queues is None:\n",
        caught_by=(f"{NODE}::test_node_binds_the_loopback_and_names_itself_by_its_configuration",),
        rows=("W97",),
    ),
    Mutant(
        name="without a configuration nothing starts",
        file="proxy/cli/commands/serve_command.py",
        old="        config=config or packaged_configuration(),\n",
        new='        config=config or Path("carrera.yaml"),\n',
        caught_by=("tests/acceptance/test_cli.py::test_serve_without_options_uses_the_sample_configuration",),
        rows=("W97",),
    ),
    Mutant(
        name="every result has a line in the log",
        file="proxy/services/consumer_service.py",
        old="            applied = group.apply(\n",
        new='            self._limited_log._write("result", group.name, 1, {"topic": result.topic})\n'
        "            applied = group.apply(\n",
        caught_by=(f"{NODE}::test_traffic_writes_no_log_lines",),
        rows=("W98",),
    ),
    Mutant(
        name="every notice has a line in the log",
        file="broker/runtime/rate_limited_log.py",
        old="        if not self._gathered((event, group, kind), count, "
        "example):\n            self._write(event, group, count",
        new="        if not self._gathered((event, group, kind), count, example) or "
        "count:\n            self._write(event, group, count",
        caught_by=(
            "tests/unit/broker/runtime/test_rate_limited_log.py::test_flood_of_events_becomes_one_line_per_minute",
        ),
        rows=("W98",),
    ),
    Mutant(
        name="a batch drops messages whose hash it has seen",
        file="pyddmq/client/producer.py",
        old="        sent = [self._encode(message) for message in messages]\n",
        new="        sent = list({message.hash_id: self._encode(message) for message in messages}.values())\n",
        caught_by=(
            "tests/unit/pyddmq/test_client_producer.py::test_send_batch_asks_for_receipts_and_returns_one_per_message",
        ),
        rows=("W95",),
    ),
    Mutant(
        name="a close waits for nothing",
        file="pyddmq/client/pulling/consumer.py",
        old="                    self.flush()\n                    break\n",
        new="                    break\n",
        caught_by=(f"{CONSUMER}::test_close_submits_the_rest_in_up_to_three_tries",),
        rows=("W96",),
    ),
)
