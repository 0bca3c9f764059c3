"""Each module of substance has a test file of its name, or it is said here where it is tested.

A test file has a module's name when it is called `test_<module>.py`, or has one of the folders that the module lies in
beside that, as `test_<folder>_<module>.py`; where it stands below `tests` does not matter.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.project.test_house_rules import LINES_MAX, ROOT, name_of, product_files

LINES_MIN = 200
assert LINES_MIN < LINES_MAX

ELSEWHERE: dict[str, tuple[str, ...]] = {
    # Each way to make a reply's messages, against the others and what another library wrote.
    "proxy/wire/scanning/scan_pull.py": ("test_wire_scan",),
    "proxy/wire/pull_reply.py": ("test_accelerators_pull", "test_golden_frames", "test_fetch_reply"),
    # Interfaces and sentences: there is nothing to run but what uses them.
    "broker/errors.py": ("test_store_recovery", "test_failed_disk", "test_full_disk"),
    "actions/sinks/hbase/link.py": ("test_hbase",),
    "proxy/admin/server.py": ("test_admin_http", "test_admin_port"),
    # Rules over columns, each against the same rule over plain numbers.
    "lag/report/engine/column_facts.py": ("test_column_rules",),
    "lag/report/engine/judged.py": ("test_column_rules", "test_local"),
    # The whole of a push, over real sockets and over simulated ones.
    "actions/http/action.py": ("test_push", "test_pushes"),
    # What is shown, by those who ask for it.
    "proxy/admin/console/message.py": ("test_message_pages", "test_console_meanwhile"),
    "proxy/admin/exposition.py": ("test_admin_http", "test_verdicts"),
    "proxy/cli/commands/node_commands.py": ("test_cli",),
    # Two makes of one thing, each case run over both.
    "upstream/kafka/broker.py": ("test_source", "test_partitions", "test_many_nodes"),
    "upstream/kafka/link.py": ("test_source", "test_members"),
    "broker/runtime/disks/linux_aio.py": ("test_syncs",),
    "broker/runtime/disks/private_disk.py": ("test_disk",),
    # Threads around a real Kafka, and a mock one.
    "upstream/kafka_client/member.py": ("test_members", "test_fencing", "test_kafka_client"),
    "upstream/kafka_client/member_thread.py": ("test_members", "test_fencing", "test_kafka_client"),
    "proxy/port/memory.py": ("test_memory_shares", "test_memory_ceiling"),
    "proxy/port/network.py": ("test_sim_network",),
    # The sends of a pass, over a simulated node and byte for byte.
    "proxy/services/publishing.py": ("test_one_pass",),
    "proxy/wire/scanning/scan_send.py": ("test_wire_scan", "test_accelerators"),
    # A connection's both ways, each with a file of its own.
    "proxy/port/connection.py": ("test_connection_turn", "test_port_server", "test_outbox", "test_peers_gone"),
    "proxy/tls/channel.py": ("test_handshakes", "test_what_counts", "test_certificates_change"),
    # What is one thing with its store: made only there, and tested with all that it stands on.
    "broker/index/file.py": ("test_index", "test_index_damage"),
    "broker/opening/opening.py": ("test_store_recovery", "test_fillers"),
    "broker/consumer/shared.py": ("test_consumer_member", "test_consumers_opening"),
    "broker/scheduled/timer/enqueuing.py": ("test_timers", "test_timers_rebuild"),
    "broker/tools/check/queues.py": ("test_store_check",),
    "broker/tools/check/records.py": ("test_store_check", "test_nested_records"),
    "broker/tools/check/small_files.py": ("test_store_check",),
    "broker/tools/repair.py": ("test_store_check",),
    "upstream/delivery/generations.py": ("test_reconfigure",),
    "upstream/waiting/job_loops.py": ("test_group", "test_accelerators_jobs"),
    "upstream/outcomes/outcomes.py": ("test_group", "test_answer_matching", "test_undecided"),
    "upstream/delivery/results.py": ("test_group", "test_results_at_start"),
    "upstream/delivery/subscription.py": ("test_group",),
    "upstream/job.py": ("test_accelerators_jobs", "test_state"),
    # What only a whole node shows, over real or simulated connections.
    "proxy/admin/routes.py": ("test_admin_http", "test_admin_port"),
    "proxy/node/assembly.py": ("test_node", "test_startup"),
    "pyddmq/testing/sim_disk.py": ("test_disk",),
    "pyddmq/testing/loop.py": ("test_virtual_loop",),
    "pyddmq/testing/network.py": ("test_sim_network",),
    "pyddmq/client/connection.py": ("test_client_producer", "test_clients"),
    "pyddmq/client/calls.py": ("test_client_errors", "test_clients"),
    "pyddmq/client/checks.py": ("test_client_transactions",),
    # Each finding is staged on a simulated node.
    "proxy/operate/attention/kinds.py": ("test_troubles",),
    "proxy/operate/attention/of_node.py": ("test_verdicts",),
    "proxy/operate/changes/groups.py": ("test_admin_changes",),
    "proxy/operate/changes/desk.py": ("test_admin_changes", "test_topic_changes"),
    "proxy/operate/live_node.py": ("test_admin_node",),
    "proxy/process/serve.py": ("test_reload_and_stop", "test_exit_codes"),
    "proxy/services/consumer_service.py": ("test_waiting_pulls", "test_node"),
    "proxy/services/delay_service.py": ("test_timers_wire", "test_delays_node"),
    "proxy/services/message_checks.py": ("test_message_rules", "test_own_properties"),
    "proxy/services/producer_service.py": ("test_node", "test_limited_sends"),
    # The command, asked as its users ask it.
    "proxy/cli/app.py": ("test_cli",),
    "proxy/cli/command_table.py": ("test_cli", "test_exit_codes"),
    "proxy/cli/commands/dlq_commands.py": ("test_dlq",),
    "proxy/cli/commands/messages_command.py": ("test_messages",),
    "proxy/cli/commands/send_command.py": ("test_cli_send_loop", "test_cli_send_verdicts"),
    "proxy/cli/store/store_read_commands.py": ("test_cli_store", "test_cli_store_tools"),
    "proxy/cli/waiting/timer_commands.py": ("test_timers",),
    "proxy/cli/waiting/transaction_commands.py": ("test_transactions",),
    "proxy/demo/checker.py": ("test_cli_demo_checker",),
    "proxy/demo/run.py": ("test_demo",),
    "pyddmq/client/aio/async_producer.py": ("test_async_client", "test_client_async"),
    "conf/checks.py": ("test_conf_loader",),
}
"""By module: the test files that test it, by another name. This list only gets shorter."""


def names_of_tests() -> frozenset[str]:
    """Names of all test files, without their ending."""
    return frozenset(path.stem for path in (ROOT / "tests").rglob("test_*.py"))


def own_names(module: Path) -> set[str]:
    """Names that a test file of a module may have."""
    *folders, name = Path(name_of(module)).with_suffix("").parts
    beside = [f"test_{folder}_{name}" for folder in folders] + [f"test_{name}_{folder}" for folder in folders]
    return {f"test_{name}", *beside}


def without_test() -> set[str]:
    """Modules of substance that have no test file of their name."""
    tests = names_of_tests()
    long = [path for path in product_files() if len(path.read_text(encoding="utf-8").splitlines()) >= LINES_MIN]
    return {name_of(path) for path in long if not own_names(path) & tests}


def test_module_of_substance_has_a_test_file_of_its_name() -> None:
    """So that whoever changes it finds in one place what it promises, and what is not tested is seen."""
    missing = sorted(without_test() - ELSEWHERE.keys())
    assert not missing, f"write a test file named after each of {missing}, which tests its public functions directly"


def test_list_of_modules_tested_elsewhere_only_gets_shorter() -> None:
    """A module that got its own test, became short or went, leaves the list."""
    over = sorted(ELSEWHERE.keys() - without_test())
    assert not over, f"take {over} out of ELSEWHERE: they have a test of their name, are short, or are not there"


@pytest.mark.parametrize("module", ELSEWHERE)
def test_what_tests_a_module_elsewhere_is_there(module: str) -> None:
    """By its name, wherever it stands below `tests`."""
    missing = set(ELSEWHERE[module]) - names_of_tests()
    assert not missing, f"{module} is said to be tested in {sorted(missing)}, which is not there"
