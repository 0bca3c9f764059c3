"""Code of users that ends the interpreter, takes long to import, or does not let go: the node serves, and ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from proxy.process.exit_codes import ExitCode
from proxy.process.process_end import LIBRARY_THREADS
from tests.acceptance.conftest import FREE_PORTS, NodeProcess, StartNode, environment
from tests.acceptance.test_reload_and_stop import api, wait_for
from tests.patient import PATIENCE_SECONDS, Producer

MODULE = """
import asyncio
import threading

from pyddmq.actions import Action, Job, Status


async def stay():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


class Swallows(Action):
    may_be_last = True

    async def act(self, job: Job) -> Status:
        await stay()


class Spawns(Action):
    may_be_last = True

    def open(self) -> None:
        self.task = asyncio.get_running_loop().create_task(stay())

    def act(self, job: Job) -> Status:
        return Status.FINISH


class Threads(Action):
    may_be_last = True

    def open(self) -> None:
        threading.Thread(target=threading.Event().wait, name="stubborn", daemon=False).start()

    def act(self, job: Job) -> Status:
        return Status.FINISH
"""
YAML = """
node: {drainSeconds: 1}
topics: {orders: {queues: 1}}
groups:
  - group: stubborn
    topics: [{topic: orders, actions: ["ACTION"]}]
"""
PLAIN = YAML.replace('"ACTION"', "PullServer")


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the actions where the node finds them."""
    (tmp_path / "stubborn_actions.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def _started(start_node: StartNode, action: str) -> NodeProcess:
    node = start_node(configuration=YAML.replace("ACTION", f"stubborn_actions:{action}"))
    with Producer(node.ready["producer"]) as producer:
        producer.send("orders", b"x")
    return node


@pytest.mark.parametrize("action", ["Swallows", "Spawns", "Threads"])
def test_stopped_node_ends_whatever_code_of_users_goes_on(start_node: StartNode, action: str) -> None:
    """After the grace, with the code of a stop, and with a line that names what went on."""
    node = _started(start_node, action)
    assert node.stop() == ExitCode.OK
    log = node.log_path.read_text()
    assert '"after_seconds": 5.0' in log
    assert ("stubborn" in log.splitlines()[-1]) == (action == "Threads")


@pytest.mark.parametrize("action", ["Swallows", "Threads"])
def test_second_signal_after_the_stop_ends_the_process_at_once(start_node: StartNode, action: str) -> None:
    """Without the grace, at whichever moment of the stop the signal comes."""
    node = _started(start_node, action)
    node.process.send_signal(signal.SIGTERM)
    wait_for(lambda: '"event": "stopped"' in node.log_path.read_text(), "the node's stop")
    assert node.stop() == ExitCode.OK
    assert '"after_seconds": 5.0' not in node.log_path.read_text()


def test_reload_that_imports_an_exit_is_refused(start_node: StartNode, tmp_path: Path) -> None:
    """With file, line, key and what was raised; the node goes on as it was."""
    node = start_node(configuration=PLAIN)
    (tmp_path / "exiting_actions.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "node.yaml").write_text(YAML.replace("ACTION", "exiting_actions:Never"))
    status, answer = api(node, "/api/reload", "POST")
    assert (status, answer["accepted"]) == (409, False)
    [problem] = answer["problems"]
    assert "node.yaml:6: groups[stubborn].topics[orders].actions[0]" in problem
    assert "SystemExit: 3" in problem
    assert api(node, "/api/groups")[0] == 200


def test_module_that_takes_long_to_import_holds_nothing_up(start_node: StartNode, tmp_path: Path) -> None:
    """It waits for a file; the node answers meanwhile, and has the new group once the file is there."""
    node = start_node(configuration=PLAIN)
    (tmp_path / "slow_actions.py").write_text(
        "import pathlib, time\n"
        f"pathlib.Path({str(tmp_path / 'begun')!r}).touch()\n"
        f"while not pathlib.Path({str(tmp_path / 'go')!r}).exists():\n"
        "    time.sleep(0.01)\n"
        "from pyddmq.actions import Status\n"
        "def finish(job):\n"
        "    return Status.FINISH\n"
    )
    more = "  - group: slow\n    topics: [{topic: orders, actions: ['slow_actions:finish', PullServer]}]\n"
    (tmp_path / "node.yaml").write_text(PLAIN + more)
    answers: list[tuple[int, object]] = []
    asking = threading.Thread(target=lambda: answers.append(api(node, "/api/reload", "POST")), daemon=True)
    asking.start()
    wait_for((tmp_path / "begun").exists, "the import")
    assert api(node, "/api/groups")[0] == 200
    with Producer(node.ready["producer"]) as producer:
        producer.send("orders", b"x")
    assert not answers
    (tmp_path / "go").touch()
    asking.join(PATIENCE_SECONDS)
    assert answers[0][0] == 200
    wait_for(lambda: "slow" in str(api(node, "/api/groups")[1]), "the new group")


_SEEN_TO_ITS_END = """
import atexit, threading
atexit.register(print, "the interpreter's end", flush=True)
threading.Thread(target=threading.Event().wait, daemon=True, name="THREAD").start()
threading.Thread(target=threading.main_thread().join).start()
from pyddmq.__main__ import main
main()
"""


@pytest.mark.parametrize(("thread", "torn_down"), [("other", True), (f"{LIBRARY_THREADS}ask-main", False)])
def test_stopped_node_ends_without_the_interpreters_end_beside_librdkafka(
    tmp_path: Path, thread: str, torn_down: bool
) -> None:
    """A thread in librdkafka cannot be joined, and crashes where the interpreter is gone; others are waited for."""
    config = tmp_path / "node.yaml"
    config.write_text(f"node: {{data: {tmp_path / 'data'}}}\n")
    script = _SEEN_TO_ITS_END.replace("THREAD", thread)
    words = [sys.executable, "-c", script, "serve", "--config", str(config), *FREE_PORTS]
    node = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert node.stdout is not None
        for line in node.stdout:
            if "pyddmq is ready" in line:
                break
        node.terminate()
        rest, _ = node.communicate(timeout=PATIENCE_SECONDS)
    finally:
        node.kill()
    assert node.returncode == 0, rest
    assert ("the interpreter's end" in rest) is torn_down
