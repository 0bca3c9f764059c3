"""Follows a page of the documentation as a person does: saves its files, types its lines into one shell, looks.

What a page is made of, in its order:

- a block whose paragraph says "Save this as `node.yaml`" is saved under that name;
- the lines of an ``sh`` block are typed into bash, one shell per page, in a folder of its own. A line ends with 0, or
  with the code that its comment names (``# exit code 5``); one that ends with ``&`` runs on. After a node was started
  its readiness is waited for, after ``kill`` the end of what was killed. What runs on is started by the installed
  command, a line that ends by one that is forked (`shell_command`);
- a ``text`` block is what the lines before it print: each of its lines, in order, ``...`` standing for anything.

``console`` blocks are not run: what they need is not on every machine (a container engine, systemd, a network).
"""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.conftest import environment
from tests.acceptance.shell_command import shell_command
from tests.forking import PYDDMQ
from tests.patient import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
PORTS = {"9613": "--producer-port", "9713": "--consumer-port", "9813": "--admin-port"}
FURTHER = ("9623", "9723")
"""Ports of TLS, which stand in files alone."""
NOT_RUN = "console"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"\bsave\s+(?:\w+\s+)?as\s+`([\w./-]+)`", re.IGNORECASE)
_CODE = re.compile(r"# exit code (\d+)")
_KILL = re.compile(r"kill (?:-\w+ )?(%\d+)")
_MARK = "@@ end of block"

_PRELUDE = """\
set -m
trap 'kill -9 $(jobs -p) 2>/dev/null' EXIT
until_ready() {
  local tries status
  for tries in $(seq 2000); do
    status=$( (exec 3<>/dev/tcp/127.0.0.1/"$1" && printf 'GET /readyz HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 \\
      && head -n 1 <&3) 2>/dev/null)
    case $status in *" 200 "*) return 0 ;; esac
    sleep 0.1
  done
  return 1
}
ended() { [ "$1" -eq "$2" ] || { echo "line $3 ended with $1 instead of $2: $4" >&2; exit 97; }; }
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page: its language, its text, and the file that it is saved as, "" for none."""

    language: str
    text: str
    file: str


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page, given by its path from the root."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        named = _NAMED.search(text[: match.start()].rstrip("\n").rpartition("\n\n")[2])
        found.append(Block(match[1], match[2], named[1] if named else ""))
    return found


def free_ports() -> dict[str, str]:
    """Free ports of the loopback, by the port of the page that each stands for."""
    wanted = [*PORTS, *FURTHER]
    held = [socket.create_server(("127.0.0.1", 0)) for _ in wanted]
    ports = {port: str(each.getsockname()[1]) for port, each in zip(wanted, held, strict=True)}
    for each in held:
        each.close()
    return ports


def follow(page: str, folder: Path) -> list[str]:
    """Do what a page says, in a folder; returns what each of its shell blocks printed.

    Raises:
        AssertionError: A line failed, or printed something else than the page shows.
    """
    ports = free_ports()
    blocks = [block for block in blocks_of(page) if block.language != NOT_RUN]
    script = [_PRELUDE]
    for number, block in enumerate(blocks):
        if block.file:
            file = folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_with_ports(block.text, ports), encoding="utf-8")
        elif block.language == "sh":
            script += _typed(block.text, ports)
            script.append(f"echo '{_MARK}' {number}")
        else:
            assert block.language == "text", f"{page}: a block of {block.language} is neither run nor saved"
    done = _shell("\n".join(script), folder, ports)
    said = f"{done.stdout}\n--- stderr\n{done.stderr}\n--- log\n{_log(folder)}"
    assert done.returncode == 0, f"{page}: {said}"
    printed = _by_block(done.stdout)
    last = -1
    for number, block in enumerate(blocks):
        if block.language == "sh":
            last = number
        elif block.language == "text":
            _compare(page, block.text, printed[last])
    return list(printed.values())


def _with_ports(text: str, ports: dict[str, str]) -> str:
    for port, free in ports.items():
        text = text.replace(port, free)
    return text


def _typed(text: str, ports: dict[str, str]) -> list[str]:
    """A block's lines, each with what is looked at after it."""
    lines: list[str] = []
    options = " ".join(f"{option} {ports[port]}" for port, option in PORTS.items())
    for line in _with_ports(text.replace("\\\n", " "), ports).splitlines():
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        code = _CODE.search(bare)
        command = bare.partition(" #")[0].rstrip()
        typed = command.replace("pyddmq serve", f"pyddmq serve {options}")
        if command.endswith("&"):
            typed = re.sub(r"\bpyddmq (?=[a-z])", f"{PYDDMQ} ", typed)
        lines.append(typed)
        killed = _KILL.search(command)
        if killed:
            lines.append(f"wait {killed[1]} 2>/dev/null")
        elif command.endswith("&"):
            if "pyddmq serve" in command:
                lines.append(f"until_ready {ports['9813']}; ended $? 0 {len(lines)} 'the node is not ready'")
        else:
            lines.append(f"ended $? {code[1] if code else 0} {len(lines)} {shlex.quote(command)}")
    return lines


def _shell(script: str, folder: Path, ports: dict[str, str]) -> subprocess.CompletedProcess[str]:
    names = {"9613": "PYDDMQ_PRODUCER", "9713": "PYDDMQ_CONSUMER", "9813": "PYDDMQ_ADMIN"}
    addresses = {name: f"127.0.0.1:{ports[port]}" for port, name in names.items()}
    around = environment()
    with shell_command() as commands:
        path = f"{commands}:{Path(sys.executable).parent}:{around['PATH']}"
        return subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            env={**around, **addresses, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE_SECONDS,
            check=False,
        )


def _by_block(stdout: str) -> dict[int, str]:
    """What was printed, by the number of the block."""
    parts = re.split(rf"^{_MARK} (\d+)\n", stdout, flags=re.MULTILINE)
    return {int(number): text for text, number in zip(parts[::2], parts[1::2], strict=False)}


def _compare(page: str, shown: str, printed: str) -> None:
    """Whether each line of the page was printed, in order."""
    rest = printed.splitlines()
    for line in shown.splitlines():
        wanted = re.compile(r".*".join(re.escape(part.strip()) for part in line.split("...")))
        while rest and not wanted.search(rest[0].strip()):
            rest.pop(0)
        assert rest, f"{page} shows {line!r}, and this was printed:\n{printed}"
        rest.pop(0)


def _log(folder: Path) -> str:
    file = folder / "node.log"
    return file.read_text(encoding="utf-8", errors="replace")[-3000:] if file.exists() else "no node.log"
