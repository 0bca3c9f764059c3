"""The package as users get it: from a wheel and in place, beside modules of their own with the names of our rooms."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from compile_accelerators import sources, target_of
from tests.acceptance.conftest import FREE_PORTS, environment
from tests.conftest import need_module, need_program
from tests.patient import PATIENCE_SECONDS
from tests.spark.test_jobs_report import EVERY_MS, SNAPSHOTS, START_MS, write_story

ROOT = Path(__file__).parents[2]
PACKAGES = Path(sysconfig.get_path("purelib"))
OF_THE_CLIENT = ("thriftpy2", "ply", "ijson")
"""thriftpy2 and what it needs."""

CLIENT = """
import actions, conf, lag, sys
from broker import mine as of_broker
from proxy import mine as of_proxy
if "_rooms" in sys.argv:
    from upstream import mine
from pyddmq import Consumer, Producer

with Producer(sys.argv[1]) as producer:
    producer.send("orders", b"body", key="k")
with Consumer(sys.argv[2], "billing") as consumer:
    message = next(iter(consumer))
print(message.body.decode(), *(each.NAME for each in (actions, conf, lag, of_broker, of_proxy)))
"""
CONFIGURATION = """
topics:
  orders: {queues: 1}
groups:
  - group: billing
    topics: [{topic: orders, actions: [PullServer]}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program's folder with modules that have the names of rooms; `upstream` is a folder without `__init__`."""
    found = tmp_path_factory.mktemp("program")
    for name in (
        "actions.py",
        "conf.py",
        "lag.py",
        "proxy/__init__.py",
        "proxy/mine.py",
        "broker/__init__.py",
        "broker/mine.py",
        "upstream/mine.py",
    ):
        (found / name).parent.mkdir(exist_ok=True)
        (found / name).write_text(f"NAME = {name!r}\n")
    (found / "program.py").write_text(CLIENT)
    (found / "node.yaml").write_text(CONFIGURATION)
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built from this checkout."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out], cwd=ROOT, check=True)
    (found,) = out.glob("*.whl")
    return found


def environment_at(target: Path, packages: Path) -> Path:
    """Make an environment that has what lies in `packages`; returns the folder of its commands."""
    venv.create(target, symlinks=True)
    (place,) = (target / "lib").glob("python*/site-packages")
    (place / "others.pth").write_text(f"{packages}\n")
    return target / "bin"


@pytest.fixture(scope="module", params=["wheel", "in place"])
def commands(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `python` and `pyddmq` are: of an environment with the wheel, and of the one that the tests run in."""
    if request.param == "in place":
        return Path(sys.executable).parent
    found = environment_at(tmp_path_factory.mktemp("whole"), PACKAGES)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        found / "python",
        "--disable-pip-version-check",
        "install",
    ]
    wheel: Path = request.getfixturevalue("wheel")
    subprocess.run([*pip, "-q", "--no-deps", "--no-index", "--no-compile", wheel], check=True)
    return found


@pytest.fixture(scope="module")
def client_alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `commands`, of an environment that has what the plain installation brings."""
    packages = tmp_path_factory.mktemp("packages")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(packages)
    for name in OF_THE_CLIENT:
        (packages / name).symlink_to(PACKAGES / name)
    return environment_at(tmp_path_factory.mktemp("alone"), packages)


def run(folder: Path, *command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a program's folder, which is on PYTHONPATH, too."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**environment(), "PYTHONPATH": str(folder), **more},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def node(commands: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A node that was started in the program's folder; its ready line."""
    data = tmp_path_factory.mktemp("data") / "data"
    with (
        (data.parent / "log").open("w") as log,
        subprocess.Popen(
            [commands / "pyddmq", "serve", "--json", "--config", "node.yaml", "--data", data, *FREE_PORTS],
            cwd=folder,
            env={**environment(), "PYTHONPATH": str(folder)},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (data.parent / "log").read_text()
        yield json.loads(line)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    shutil.rmtree(data)


def test_node_and_program_live_beside_modules_with_the_names_of_rooms(
    commands: Path, folder: Path, node: dict[str, str]
) -> None:
    """The node serves from that folder, and the program gets its own modules and our client."""
    # In place the rooms lie on the path, behind the program's folder; a folder that is no package loses to them.
    whole = [] if commands == Path(sys.executable).parent else ["_rooms"]
    done = run(folder, commands / "python", "program.py", node["producer"], node["consumer"], *whole)
    assert done.stdout == "body actions.py conf.py lag.py broker/mine.py proxy/mine.py\n", done.stderr


def test_command_works_from_such_a_folder(commands: Path, folder: Path) -> None:
    """As a script and as a module, whose path begins with the folder."""
    done = run(folder, commands / "python", "-m", "pyddmq", "config", "check", "node.yaml")
    assert done.returncode == 0, done.stderr
    assert run(folder, commands / "pyddmq", "--version").stdout.startswith("pyddmq ")


@pytest.mark.usefixtures("wheel")
def test_installed_package_runs_the_leaves_that_were_compiled(commands: Path) -> None:
    """Each lies beside its room, where it is found, and is of the sources beside it; building the wheel made them."""
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources()]
    code = (
        "import pyddmq.broker, proxy, sys; from broker.runtime.accelerators import compiled\n"
        f"print([compiled(module)[0].value for module in {modules}], proxy.__file__)"
    )
    wanted = ["compiled" if target_of(path).exists() else "absent" for path in sources()]
    done = run(commands, commands / "python", "-c", code, PYTHONPATH="")
    assert done.stdout.startswith(str(wanted)), done.stderr
    assert ("_rooms" in done.stdout) == (commands != Path(sys.executable).parent)


def test_wheel_has_no_fake_and_no_generator(wheel: Path) -> None:
    """Of what tests are made with it has `pyddmq.testing` alone, and the refusals of former names."""
    number = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    with zipfile.ZipFile(wheel) as content:
        names = [Path(name) for name in content.namelist()]
    assert {name.parts[0].partition("-")[2] for name in names} == {"", f"{number}.dist-info"}
    rooms = {name.parts[2] for name in names if name.parts[1:2] == ("_rooms",)}
    assert rooms == {"actions", "broker", "conf", "lag", "proxy", "upstream"}
    for name in names:
        assert "fakes" not in name.parts, name
        assert not name.stem.endswith("_doc"), name
        assert "testing" not in str(name) or name.parts[1] == "testing" or name.parent.name in ("pyddmq", "client"), (
            name
        )


def test_installed_package_has_what_users_test_with(commands: Path, folder: Path) -> None:
    """Also beside modules that have the names of rooms."""
    code = (
        "from pyddmq.testing import SimDisk, SimNetwork, VirtualLoop\n"
        "from pyddmq.testing.actions import try_action\nfrom pyddmq.testing.client import ScriptedNode\n"
        "print(try_action('Json', b'{}').data)"
    )
    done = run(folder, commands / "python", "-c", code)
    assert done.stdout == "{}\n", done.stderr


def test_client_alone_sends_and_pulls(client_alone: Path, folder: Path, node: dict[str, str]) -> None:
    """With thriftpy2 and nothing else."""
    done = run(folder, client_alone / "python", "program.py", node["producer"], node["consumer"])
    assert done.stdout.startswith("body "), done.stderr
    assert run(folder, client_alone / "python", "-c", "import structlog").returncode == 1


def test_client_alone_says_what_to_install_for_the_rest(client_alone: Path, folder: Path) -> None:
    """In one sentence: asked for the command, and for the broker inside a program."""
    done = run(folder, client_alone / "python", "-m", "pyddmq", "serve")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (8, "", 1)
    assert "pip install 'pyddmq[server]'" in done.stderr
    done = run(folder, client_alone / "python", "-c", "import pyddmq.broker")
    assert done.stderr.splitlines()[-1].startswith("pyddmq.rooms.ClientAlone: the embedded broker is not in this")


def test_what_a_cluster_gets_is_the_same_from_a_wheel(commands: Path, folder: Path, tmp_path: Path) -> None:
    """The zip of `--py-files`, byte for byte; and a program starts from it alone."""
    need_module("pyspark", "pip install 'pyddmq[server,spark]'")
    zips = tmp_path / "installed.zip", tmp_path / "ours.zip"
    subprocess.run([commands / "python", "-m", "pyddmq.spark", zips[0]], cwd=folder, check=True)
    subprocess.run([sys.executable, "-m", "pyddmq.spark", zips[1]], cwd=ROOT, check=True)
    assert zips[0].read_bytes() == zips[1].read_bytes()
    program = (
        "import sys\nsys.path.insert(0, sys.argv.pop(1))\nfrom pyddmq_spark.lag.spark.jobs.program import main\nmain()"
    )
    ended = subprocess.run(
        [commands / "python", "-c", program, zips[0], "--help"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith("usage: pyddmq lag report")


@pytest.mark.long
def test_report_is_made_in_a_spark_session_of_a_wheel(commands: Path, folder: Path, tmp_path: Path) -> None:
    """Session, source and page, from a program's folder whose modules Spark's own processes must not meet."""
    need_program("java", "apt install openjdk-17-jre-headless")
    need_module("pyspark", "pip install 'pyddmq[server,spark]'")
    write_story(str(tmp_path / "journal"), "n1")
    window = (START_MS, START_MS + SNAPSHOTS * EVERY_MS)
    since, until = (datetime.fromtimestamp(time_ms / 1000, UTC).isoformat() for time_ms in window)
    words: list[str | Path] = [
        "--journal",
        tmp_path / "journal",
        "--since",
        since,
        "--until",
        until,
        "--out",
        tmp_path / "lag.html",
    ]
    words += ["--log", tmp_path / "spark.log", "--engine", "spark", "--timezone", "UTC"]
    done = run(folder, commands / "pyddmq", "lag", "report", *words, SPARK_LOCAL_IP="127.0.0.1")
    assert done.returncode == 2, "the code of the worst group at the end"
    page = (tmp_path / "lag.html").read_text(encoding="utf-8")
    assert '<span class="chip bad">BLOCKED</span> <b><a href="#g1">poisoned</a></b>: poison message' in page
    assert "Offset 3000 was tried 179 times" in page
    assert '<div class="bands"' in page


def test_version_names_the_commit_between_releases(commands: Path, folder: Path) -> None:
    """In place and from a wheel that is built of a checkout."""
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    released = subprocess.run(["git", "describe", "--exact-match", "HEAD"], cwd=ROOT, capture_output=True, check=False)
    if said.returncode or not released.returncode:
        pytest.skip("no checkout, or one of a release")
    done = run(folder, commands / "pyddmq", "--version")
    assert done.stdout.rstrip().endswith(f"+g{said.stdout[:8]}")
