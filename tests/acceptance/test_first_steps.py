"""Small things that somebody meets who uses the commands for the first time, each by the installed command."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import CONFIGURATION, NodeProcess, StartNode, command, environment
from tests.forking import PYDDMQ
from tests.patient import PATIENCE_SECONDS, Producer


def test_version_is_an_option_too() -> None:
    """`--version` says what `version` does."""
    assert command("--version") == command("version")
    assert command("--version").code == ExitCode.OK


@pytest.mark.parametrize("arguments", [("-h",), ("groups", "--help"), ("send", "-h")])
def test_help_into_head_ends_as_other_commands_do(arguments: tuple[str, ...]) -> None:
    """Whoever reads the help and goes is no error: the code is that of a closed output, and stderr is empty."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [PYDDMQ, *arguments], stdout=write, stderr=subprocess.PIPE, env=environment(), check=False
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (ExitCode.OUTPUT_CLOSED, b"")


@pytest.mark.parametrize(("typed", "wanted"), [("pyddmq gro", "groups"), ("pyddmq groups st", "stuck")])
def test_shell_completes_commands(typed: str, wanted: str) -> None:
    """What the script of --install-completion asks is answered with what fits, also below a word of its own meaning."""
    words = typed.split()
    done = subprocess.run(
        [PYDDMQ],
        capture_output=True,
        text=True,
        env={
            **environment(),
            "_PYDDMQ_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(words) - 1),
        },
        check=False,
    )
    assert wanted in done.stdout.split()


def test_pull_of_a_paused_group_says_so(node: NodeProcess) -> None:
    """On stderr, with the way to go on; stdout has messages alone. Without an admin port nobody knows."""
    assert command("groups", "pause", "billing", *node.admin()).code == ExitCode.OK
    paused = command("pull", "billing", *node.consumer(), *node.admin())
    assert (paused.code, paused.out) == (ExitCode.OK, "")
    assert "Group billing on topic orders: paused for" in paused.err
    assert "pyddmq groups resume billing" in paused.err
    nothing = "pyddmq: no message arrived within 1000 ms; --wait-ms waits longer\n"
    assert command("pull", "permits-audit", *node.consumer(), *node.admin()).err == nothing
    assert command("pull", "billing", *node.consumer(), "--admin", "127.0.0.1:1").err == nothing


def test_quiet_send_prints_how_many_and_nothing_else(node: NodeProcess) -> None:
    """Neither a line per message nor a bar, not even on a terminal."""
    lines = "".join(f"message {number}\n" for number in range(300))
    loud = command("send", "orders", "-", *node.producer(), stdin=lines)
    assert len(loud.out.splitlines()) == 301
    quiet = command("send", "orders", "-", "--quiet", *node.producer(), stdin=lines)
    assert (quiet.code, quiet.out, quiet.err) == (ExitCode.OK, "300 messages sent to orders\n", "")
    as_json = command("send", "orders", "-", "-q", "--json", *node.producer(), stdin=lines)
    assert as_json.json_lines() == [{"topic": "orders", "sent": 300}]


def test_check_of_a_damaged_store_prints_its_report_alone(start_node: StartNode, tmp_path: Path) -> None:
    """No line of the log stands in it or beside it."""
    node = start_node()
    with Producer(node.ready["producer"]) as producer:
        for _ in range(10):
            producer.send("orders", b"{}", key="k")
    node.stop()
    file = tmp_path / "data" / "commitlog" / f"{0:020}"
    content = bytearray(file.read_bytes())
    content[300] ^= 0xFF
    file.write_bytes(content)
    (tmp_path / "data" / "config" / "topics.json").write_text("{")
    done = command("store", "check", tmp_path / "data")
    assert done.code == ExitCode.DAMAGE_FOUND
    assert done.err == ""
    assert all(re.match(r"(damage|warning|note|         |\d)", line) for line in done.out.splitlines()), done.out


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("timeout: 5s", "it is in milliseconds: write 5000"),
        ("retryIntervals: [1s]", "it is in milliseconds: write 1000"),
    ],
)
def test_time_with_a_unit_is_refused_with_the_number_to_write(tmp_path: Path, written: str, said: str) -> None:
    """The sentence names the unit of the setting, and the number that was meant."""
    file = tmp_path / "node.yaml"
    file.write_text(f"topics: {{orders: {{}}}}\ngroups: [{{group: g, topics: [{{topic: orders, {written}}}]}}]\n")
    done = command("config", "check", file)
    assert done.code == ExitCode.CONFIG_INVALID
    assert said in done.out + done.err


def test_time_of_a_setting_in_seconds_names_seconds(tmp_path: Path) -> None:
    """Not every time is in milliseconds."""
    file = tmp_path / "node.yaml"
    file.write_text("node: {drainSeconds: 2m}\n")
    assert "it is in seconds: write 120" in command("config", "check", file).out + command("config", "check", file).err


def test_unknown_page_is_a_page_for_a_browser_and_json_for_others(node: NodeProcess) -> None:
    """Whoever accepts HTML reads a sentence with a way back."""
    for accept, kind in (("text/html,application/xhtml+xml", "text/html"), ("*/*", "application/json")):
        connection = http.client.HTTPConnection(node.ready["admin"], timeout=PATIENCE_SECONDS)
        connection.request("GET", "/statsu?<script>", headers={"Accept": accept})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        assert response.status == 404
        assert response.headers["Content-Type"].startswith(kind)
        assert "Path /statsu does not exist" in text
        if kind == "text/html":
            assert '<a href="/">' in text
            assert "<script" not in text


def test_timers_list_tells_key_id_and_loop_apart(node: NodeProcess) -> None:
    """A timer shows its key and its id, a loop its own id beside, and no id stands for a key."""
    sent = command("send", "orders", "{}", "--key", "k-1", "--delay", "1h", *node.producer(), "--json").json_lines()
    loop = command("send", "orders", "{}", "--every", "1h", "--times", "3", *node.producer(), "--json").json_lines()
    for _ in range(5):
        listed = command("timers", "list", "--json", *node.admin()).json_lines()
        shown = command("timers", "list", *node.admin()).out
        if command("timers", "list", "--json", *node.admin()).json_lines() == listed:
            # No occurrence came in between: the next one has another id.
            break
    plain, looped = sorted(listed, key=lambda each: each["delayId"] is not None)
    assert (plain["key"], plain["id"], plain["delayId"]) == ("k-1", sent[0]["id"], None)
    assert (looped["key"], looped["loop"]["id"]) == ("", loop[0]["delayId"])
    assert looped["id"] in shown
    assert f"{loop[0]['delayId']} ({looped['loop']['made']} made" in shown


def test_terminal_of_80_columns_shows_identifiers_whole(start_node: StartNode) -> None:
    """On a real terminal of 80 columns every identifier stands whole on a line of its own or in its column."""
    node = start_node(configuration=CONFIGURATION.replace("billing", "billing-of-rides-in-the-north-west-region"))
    group = "billing-of-rides-in-the-north-west-region"
    main, side = pty.openpty()
    os.set_blocking(main, False)
    lines = "".join(f"{number}\n" for number in range(3))
    command("send", "orders", "-", "--key", "a-key-of-forty-two-characters-1234567890ab", *node.producer(), stdin=lines)
    sent = command("send", "orders", "{}", "--delay", "1h", *node.producer(), "--json").json_lines()
    shown = ""
    for arguments in (("groups",), ("groups", "stuck"), ("timers", "list"), ("offsets", "show")):
        subprocess.run(
            [PYDDMQ, *arguments, *node.admin()],
            stdout=side,
            stderr=subprocess.DEVNULL,
            env={**environment(), "COLUMNS": "80"},
            check=True,
        )
        while True:
            try:
                shown += os.read(main, 65536).decode()
            except BlockingIOError:
                break
    os.close(main)
    os.close(side)
    lines_shown = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert "…" not in shown
    assert any(group in line for line in lines_shown)
    assert any(sent[0]["id"] in line for line in lines_shown)


def test_attention_documents_are_json(node: NodeProcess) -> None:
    """`--json` of the commands carries the findings as they are."""
    assert json.loads(command("stats", "--json", *node.admin()).out)["findings"] == []
