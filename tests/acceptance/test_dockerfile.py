"""The Dockerfile, without a container engine: its parts fit each other, and what it runs works in a folder."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from conf import load
from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import FREE_PORTS, StartNode, command, environment
from tests.patient import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
CONFIGURATION = ROOT / "examples" / "container.yaml"
DATA = "/var/lib/pyddmq"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, continued lines joined, comments left out."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line]


def final() -> list[tuple[str, str]]:
    """Those of the last stage, which is the image."""
    stages = [number for number, (name, _) in enumerate(instructions()) if name == "FROM"]
    return instructions()[stages[-1] :]


def of(name: str) -> str:
    """The one instruction of that name in the image."""
    (found,) = (text for each, text in final() if each == name)
    return found


def health() -> list[str]:
    """The command of the health check."""
    found: list[str] = json.loads(of("HEALTHCHECK").partition("CMD ")[2])
    return found


def test_node_is_no_root_and_owns_its_volume() -> None:
    """The user is made before it is used, has no shell, and the data folder is its own and closed to others."""
    names = [name for name, _ in final()]
    made = next(text for name, text in final() if name == "RUN")
    assert of("USER") == "pyddmq"
    assert "useradd" in made
    assert "nologin" in made
    assert f"install -d -o pyddmq -g pyddmq -m 0700 {DATA}" in made
    assert of("VOLUME") == DATA
    # What is made in a volume's folder after VOLUME is lost.
    assert names.index("RUN") < names.index("USER") < names.index("VOLUME")


def test_command_is_run_without_a_shell_and_stopped_by_the_signal_that_drains() -> None:
    """A shell as process 1 would keep SIGTERM to itself."""
    entry = json.loads(of("ENTRYPOINT"))
    assert entry[:2] == ["pyddmq", "serve"]
    assert entry[entry.index("--data") + 1] == of("VOLUME")
    assert any(name == "COPY" and text.split()[-1] == entry[entry.index("--config") + 1] for name, text in final())
    assert of("STOPSIGNAL") == "SIGTERM"
    seconds = re.search(r"--stop-timeout (\d+)", (ROOT / "docs" / "howto" / "container.md").read_text())
    assert seconds is not None
    assert int(seconds[1]) > load(CONFIGURATION).config.node.drain_seconds


def test_what_is_copied_is_there_and_not_left_out() -> None:
    """Sources exist, .dockerignore and hides none that the wheel is made of."""
    ignored = (ROOT / ".dockerignore").read_text().split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    copied = [text.split() for name, text in instructions() if name == "COPY" and "--from=" not in text]
    needed = [*packages, "pyproject.toml", "hatch_build.py", "compile_accelerators.py"]
    needed += [source for *sources, _ in copied for source in sources if source != "."]
    assert CONFIGURATION.relative_to(ROOT).as_posix() in needed
    needed.append(project["project"]["readme"])
    assert not [each for each in needed if not (ROOT / each).exists()]
    assert not [each for each in needed for pattern in ignored if fnmatch.fnmatch(each, pattern)]


def test_configuration_is_open_on_purpose_and_exposes_its_ports() -> None:
    """The image's file is the page's; the ports of the node are exposed, the admin port is not."""
    loaded = load(CONFIGURATION)
    node = loaded.config.node
    assert not loaded.warnings
    assert (node.access, node.host, node.admin_host) == ("open", "0.0.0.0", "127.0.0.1")
    assert of("EXPOSE").split() == [str(node.producer_port), str(node.consumer_port)]
    assert f"127.0.0.1:{node.admin_port}/livez" in health()[-1]
    shown = re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / "howto" / "container.md").read_text(), re.DOTALL)
    assert shown is not None
    assert yaml.safe_load(shown[1]) == yaml.safe_load(CONFIGURATION.read_text())


def test_what_the_image_runs_serves_is_healthy_drains_and_starts_again(tmp_path: Path, start_node: StartNode) -> None:
    """ENTRYPOINT, HEALTHCHECK and STOPSIGNAL in a folder; on the loopback, since tests open nothing to a network."""
    data = tmp_path / "volume"
    entry = [str(data) if each == DATA else each for each in json.loads(of("ENTRYPOINT"))]
    options = [str(CONFIGURATION) if each.startswith("/etc/") else each for each in entry[2:] if each != "--json"]
    node = start_node(*FREE_PORTS, "--host", "127.0.0.1", *options)
    check = [sys.executable, *health()[1:-1], health()[-1].replace("127.0.0.1:9813", node.ready["admin"])]
    assert healthy(check)
    assert command("send", "orders", "kept", "--key", "k", *node.producer()).code == ExitCode.OK
    # Folders of the store are closed to others, as the volume's is.
    assert data.stat().st_mode & 0o077 == 0
    assert node.stop(getattr(signal, of("STOPSIGNAL"))) == ExitCode.OK
    assert not healthy(check)
    again = start_node(*FREE_PORTS, "--host", "127.0.0.1", *options)
    assert command("pull", "billing", *again.consumer()).out.count("kept") == 1
    assert '"event": "stopped"' in again.log_path.read_text()


def healthy(check: list[str]) -> bool:
    """Whether the health check ends with 0."""
    done = subprocess.run(check, capture_output=True, env=environment(), timeout=PATIENCE_SECONDS, check=False)
    return done.returncode == 0


def test_steps_that_need_a_network_are_what_was_tried_by_hand() -> None:
    """Every RUN is one of these; a new one is tried in a folder first, and entered here."""
    programs = {shlex.split(part)[0] for name, text in instructions() if name == "RUN" for part in text.split("&&")}
    assert programs == {
        "apt-get",
        "rm",
        "python",
        "/opt/build/bin/pip",
        "/opt/pyddmq/bin/pip",
        "groupadd",
        "useradd",
        "install",
    }
