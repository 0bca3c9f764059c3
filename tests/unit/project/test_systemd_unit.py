"""deploy/systemd/pyddmq.service: it parses, fits the node's settings and exit codes, and systemd takes it."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conf import NodeConfig
from conf.sections.kafka import KafkaClusterConfig
from proxy.process.exit_codes import ExitCode
from tests.patient import PATIENCE_SECONDS

UNIT = Path(__file__).parents[3] / "deploy" / "systemd" / "pyddmq.service"


def unit() -> configparser.ConfigParser:
    """The unit, parsed."""
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser


def test_stop_is_given_longer_than_a_drain() -> None:
    """Else systemd kills while clients still answer, or before a last commit is with Kafka."""
    kafka = KafkaClusterConfig.model_validate({"bootstrapServers": "kafka-1:9092"})
    kafka_seconds = (kafka.revoke_timeout + kafka.session_timeout) / 1000
    assert int(unit()["Service"]["TimeoutStopSec"]) >= NodeConfig().drain_seconds + kafka_seconds + 10


def test_start_waits_for_readiness() -> None:
    """The node tells by itself when it serves; only its main process may."""
    service = unit()["Service"]
    assert (service["Type"], service["NotifyAccess"], service["Restart"]) == ("notify", "main", "on-failure")


def test_codes_that_a_restart_cannot_mend_end_it() -> None:
    """Wrong command line, configuration and data directory, Python and failed disk; a taken port may become free."""
    codes = {int(text) for text in unit()["Service"]["RestartPreventExitStatus"].split()}
    assert codes == {
        ExitCode.USAGE,
        ExitCode.CONFIG_INVALID,
        ExitCode.DATA_UNUSABLE,
        ExitCode.WRONG_PYTHON,
        ExitCode.STORE_FAILED,
    }


def test_node_is_shut_off_from_the_machine() -> None:
    """What systemd itself counts as exposure stays under 2.0; what the node makes is its user's alone."""
    assert unit()["Service"]["UMask"] == "0077"
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not here")
    done = subprocess.run(
        [program, "security", "--offline=true", str(UNIT)], capture_output=True, text=True, check=False, timeout=60
    )
    found = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    if found is None:
        pytest.skip(f"this systemd-analyze judges no unit offline: {done.stderr.strip()[:100]}")
    assert float(found[1]) < 2.0, done.stdout


def test_command_exists() -> None:
    """What ExecStart calls is a command of the program with these options."""
    program, *arguments = shlex.split(unit()["Service"]["ExecStart"])
    assert program.endswith("/bin/pyddmq")
    options = [text for text in arguments if text.startswith("--")]
    done = subprocess.run(
        [Path(sys.executable).parent / "pyddmq", arguments[0], "--help"], capture_output=True, text=True, check=True
    )
    assert arguments[0] == "serve"
    assert all(option in done.stdout for option in options)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_it(tmp_path: Path) -> None:
    """`systemd-analyze verify` finds nothing; the program's path and user are set to what is there."""
    text = re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text())
    text = text.replace("User=pyddmq", "User=root").replace("Group=pyddmq", "Group=root")
    file = tmp_path / "pyddmq.service"
    file.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", file],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if "pyddmq" in line]
    assert said == []
