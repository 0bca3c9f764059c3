"""Secrets stand in no byte that a node writes or answers, whatever becomes of what needs them (D60, W66).

Thirty-five are planted, in every place that takes one, by file and by variable. Nothing that needs one works: servers
are away, the receiver of pushes sends back every header that it got, as its error.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from tests.acceptance.conftest import command as run_command
from tests.crash.process import NodeProcess
from tests.patient import PATIENCE_SECONDS, Producer, quiet_ports, until

PAGES = (
    "/", "/readyz", "/metrics", "/api/topics", "/api/groups", "/api/groups/stuck", "/api/offsets", "/api/lag",
    "/api/lag/objectives", "/api/attention", "/api/delays", "/api/transactions", "/api/timers",
    "/api/messages?topic=orders", "/api/dead-letters", "/api/stats",
)  # fmt: skip


BEGIN = "planted-"


class Planted:
    """Secrets in files and variables, each found again by its text."""

    def __init__(self, folder: Path, environment: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._environment = environment
        self.all: list[str] = []
        folder.mkdir()

    def place(self) -> dict[str, str]:
        """Plant another one; files and variables take turns."""
        number = len(self.all)
        secret = f"{BEGIN}{number:02d}-{'abcdefghij'[number % 10] * 8}"
        self.all.append(secret)
        if number % 2:
            self._environment.setenv(f"PLANTED_{number}", secret)
            return {"env": f"PLANTED_{number}"}
        path = self._folder / f"{number}"
        path.write_text(f"{secret}\n")
        return {"file": str(path)}

    def shown_in(self, data: bytes) -> list[str]:
        """Those that stand in some bytes: as they are, or as base64."""
        # Files of a store are large: all secrets begin alike, and that is looked for first.
        if not any(each in data for each in written(BEGIN)):
            return []
        return [secret for secret in self.all if any(each in data for each in written(secret))]


def written(secret: str) -> list[bytes]:
    """What stands in some bytes that have a secret, or something that begins with it: as it is, or as base64.

    In base64 what stands before shifts it; the middle of each of the three ways depends on the secret alone.
    """
    raw = secret.encode()
    return [raw, *(base64.b64encode(bytes(shift) + raw)[4 if shift else 0 : -4] for shift in range(3))]


class _Echo(BaseHTTPRequestHandler):
    """Answers with everything that it got: by status 401, or as a failure of the errno protocol; or not at all."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        got = " ".join(f"{name}={value}" for name, value in self.headers.items() if name[0] == "X" or name == "Cookie")
        got += f" {self.headers.get('Authorization')}"
        if self.path == "/reset":
            self.close_connection = True
            return
        raw = json.dumps({"errno": 7, "errmsg": got}).encode()
        self.send_response(401 if self.path == "/401" else 200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def echo() -> Iterator[str]:
    """Address of a receiver that says what it was sent."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def settings(planted: Planted, echo: str, nobody: int) -> dict[str, Any]:
    """A configuration with a secret in each place, three times."""
    away = f"127.0.0.1:{nobody}"
    pipelines: list[tuple[list[str], dict[str, Any], dict[str, Any]]] = []
    for path in ("/401", "/errno", "/reset"):
        headers = {name: planted.place() for name in ("Authorization", "Cookie", "X-Api-Key", "X-Token")}
        push = {"headers": headers, "signature": {"keyId": "k", "secret": planted.place()}}
        pipelines.append((["Async", "AsyncHttp"], {"AsyncHttp": push}, {"urls": [echo + path], "maxRetry": 1}))
        form = {"appendContext": ["TOKEN"], "tokenKey": planted.place()}
        pipelines.append((["Json", "FormParams", "PullServer"], {"FormParams": form}, {}))
        pipelines.append(
            (["Json", "FormParams2", "PullServer"], {"FormParams2": {**form, "tokenKey": planted.place()}}, {})
        )
        redis = {"hosts": [away], "username": "me", "password": planted.place(), "commands": [["SET", "a", "${body}"]]}
        pipelines.append((["Async", "Redis"], {"Redis": redis}, {}))
        s3 = {"endpoint": f"http://{away}", "region": "r", "accessKey": "AK", "secretKey": planted.place()}
        pipelines.append((["Async", "File"], {"File": {"url": "s3://bucket/folder", **s3}}, {}))
        hdfs = {"urls": [f"http://{away}"], "rootPath": "/r", "userName": "u", "token": planted.place()}
        pipelines.append((["Async", "Hdfs"], {"Hdfs": hdfs}, {}))
    link = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    clusters = {
        name: {"bootstrapServers": away, "librdkafka": {**link, "sasl.password": planted.place()}}
        for name in ("a", "b")
    }
    clusters["c"] = {
        "bootstrapServers": away,
        "librdkafka": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "me",
                       "sasl.password": planted.place(), "ssl.key.password": planted.place()},
    }  # fmt: skip
    groups: list[dict[str, Any]] = []
    for actions, options, more in pipelines:
        subscription = {"topic": "orders", "actions": actions, "options": options, "retryIntervals": [10], **more}
        groups.append({"group": f"g{len(groups)}", "topics": [subscription]})
    groups += [{"group": f"k{name}", "topics": [{"topic": f"in-{name}"}]} for name in clusters]
    topics = {"orders": {}, **{f"in-{name}": {"brokerCluster": name} for name in clusters}}
    return {"node": {"adminTokenFile": planted.place()["file"]}, "kafka": clusters, "topics": topics, "groups": groups}


def ask(address: str, path: str) -> bytes:
    """Body of an answer, also of a refusal."""
    try:
        with urlopen(f"http://{address}{path}", timeout=PATIENCE_SECONDS) as answer:
            return bytes(answer.read())
    except HTTPError as error:
        with error:
            return error.read()


def command(*words: str) -> bytes:
    """What a command prints, on both streams."""
    done = run_command(*words)
    return (done.out + done.err).encode()


def test_planted_secret_is_found_wherever_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is and in base64, whatever is around it; else finding none would say nothing."""
    planted = Planted(tmp_path / "secrets", monkeypatch)
    planted.place()
    planted.place()
    for before in (b"", b"a", b"ab", b"abc"):
        raw = before + planted.all[1].encode() + b"z"
        for data in (raw, base64.b64encode(raw)):
            assert planted.shown_in(b"\0" * 9 + data) == planted.all[1:]
    assert planted.shown_in(b"planted") == []


def test_no_secret_in_anything_that_the_node_writes(echo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log, data, backup, pages, metrics, audit, dead letters, and what the commands say."""
    planted = Planted(tmp_path / "secrets", monkeypatch)
    folder = tmp_path / "node"
    folder.mkdir()
    given = settings(planted, echo, quiet_ports(1)[0])
    assert len(planted.all) >= 30
    node = NodeProcess(folder, {**given, "node": {**given["node"], "logLevel": "debug", "drainSeconds": 1}})
    with closing(node):
        assert node.start()
        assert node.producer is not None
        with Producer(f"{node.producer[0]}:{node.producer[1]}") as producer:
            for number in range(5):
                producer.send("orders", b'{"n": %d}' % number, key=f"k{number}")

        def reported() -> bool:
            text = ask(node.admin, "/metrics").decode()
            away = sum('event="server_away"' in line and not line.endswith(" 0.0") for line in text.splitlines())
            dead = ask(node.admin, "/api/dead-letters?group=g0") + ask(node.admin, "/api/dead-letters?group=g6")
            return away >= 6 and b"errno 7" in dead and b"status 401" in dead

        until(reported, "servers found away and pushes refused")
        said = [ask(node.admin, path) for path in PAGES]
        groups = [each["group"] for each in given["groups"]]
        said += [ask(node.admin, f"/api/dead-letters?group={quote(group)}") for group in groups]
        here = ["--address", node.admin]
        said += [command("groups", "--json", *here), command("dlq", "list", groups[0], *here)]
        config = str(folder / "node.yaml")
        said += [command("config", "check", config), command("config", "check", "--json", config)]
        said += [command("actions", "try", config, group, "orders", "--body", "{}") for group in groups[:6]]
        # A place that has nothing any more: the error names the place.
        monkeypatch.delenv("PLANTED_1")
        said += [command("reload", *here), command("actions", "try", config, "g0", "orders", "--body", "{}", "--run")]
        node.stop()
    said.append(command("store", "backup", str(node.data), str(tmp_path / "copy")))

    assert planted.shown_in(b"".join(said)) == []
    for file in [*folder.rglob("*"), *(tmp_path / "copy").rglob("*")]:
        if file.is_file():
            assert planted.shown_in(file.read_bytes()) == [], file
    assert b"***" in node.log.read_bytes() + b"".join(said), "what the receiver sent back is there without them"
