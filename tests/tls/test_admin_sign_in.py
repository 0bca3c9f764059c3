"""Signing in by https: a real node with rules and certificates, asked as a browser asks."""

from __future__ import annotations

import http.client
import json
import ssl
import stat
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.acceptance.conftest import NodeProcess
from tests.tls.test_served import command

CONFIGURATION = """
node: {{producerPort: 0, consumerPort: 0, adminPort: 0}}
tls:
  certificate: {folder}/node.crt
  key: {folder}/node.key
  clientCa: {folder}/ca.crt
  clientCertificates: optional
  admin: {{port: 0}}
admin: {{hosts: [node.example.com]}}
access:
  tokens: {folder}/tokens.json
  certificates: [{{subject: "CN=dev-client", principal: machine}}]
  rules:
    - {{principals: [anna], view: ["*"], operate: ["*"], administer: true}}
    - {{principals: [machine], view: ["orders"]}}
topics: {{orders: {{queues: 1}}}}
groups: [{{group: billing, topics: [{{topic: orders}}]}}]
"""


class Node(NodeProcess):
    """A node, where it stands, and anna's token."""

    folder: Path
    token: str


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose admin port is there plain and by TLS."""
    where = tmp_path_factory.mktemp("signed-in")
    folder = where / "tls"
    assert command("tls", "dev", folder).code == 0
    made = command("access", "token", "create", "--file", folder / "tokens.json", "--principal", "anna")
    (where / "node.yaml").write_text(CONFIGURATION.format(folder=folder))
    running = Node(["--config", where / "node.yaml", "--data", where / "data"], where)
    running.folder, running.token = where, made.out.strip()
    (where / "anna.token").write_text(running.token)
    yield running
    running.stop()


def ask(
    node: Node, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[http.client.HTTPResponse, str]:
    """Ask by https, with these headers."""
    context = ssl.create_default_context(cafile=f"{node.folder}/tls/ca.crt")
    return _ask(node, method, path, body=body, headers=headers, context=context)


def ask_with_certificate(node: Node, path: str, **headers: str) -> int:
    """Ask with the client's certificate; returns the status."""
    context = ssl.create_default_context(cafile=f"{node.folder}/tls/ca.crt")
    context.load_cert_chain(f"{node.folder}/tls/client.crt", f"{node.folder}/tls/client.key")
    return _ask(node, "GET", path, body=None, headers=headers, context=context)[0].status


def _ask(
    node: Node, method: str, path: str, *, body: str | None, headers: dict[str, str], context: ssl.SSLContext
) -> tuple[http.client.HTTPResponse, str]:
    host, _, port = node.ready["adminTls"].rpartition(":")
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=30)
    try:
        named = {name.replace("_", "-"): each for name, each in headers.items()}
        connection.request(method, path, body=body, headers=named)
        response = connection.getresponse()
        return response, response.read().decode()
    finally:
        connection.close()


def sign_in(node: Node, **headers: str) -> http.client.HTTPResponse:
    """Send the form."""
    form = {"Content_Type": "application/x-www-form-urlencoded", "Origin": f"https://{node.ready['adminTls']}"}
    return ask(node, "POST", "/sign-in", urlencode({"token": node.token}), **{**form, **headers})[0]


def test_cookie_of_https_goes_over_no_plain_connection(node: Node) -> None:
    """Secure, of this host alone by its name, and enough to see what its owner may see."""
    response = sign_in(node)
    assert response.status == 303
    [(name, morsel)] = SimpleCookie(response.headers["Set-Cookie"]).items()
    assert name == f"__Host-pyddmq-{node.ready['adminTls'].rpartition(':')[2]}"
    assert (morsel["secure"], morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, True, "Strict", "/")
    assert morsel["domain"] == ""
    cookie = f"{name}={morsel.value}"
    assert ask(node, "GET", "/api/groups")[0].status == 401
    assert ask(node, "GET", "/api/groups", Cookie=cookie)[0].status == 200
    assert ask(node, "GET", "/audit", Cookie=cookie)[0].status == 200
    pause = json.dumps({"group": "billing"})
    own = {"Content_Type": "application/json", "Cookie": cookie}
    assert ask(node, "POST", "/api/groups/pause", pause, **own)[0].status == 403
    plain_origin = f"http://{node.ready['adminTls']}"
    assert ask(node, "POST", "/api/groups/pause", pause, Origin=plain_origin, **own)[0].status == 403
    origin = f"https://{node.ready['adminTls']}"
    assert ask(node, "POST", "/api/groups/pause", pause, Origin=origin, **own)[0].status == 200
    assert ask(node, "POST", "/sign-out", "", Origin=origin, Cookie=cookie)[0].status == 303
    assert ask(node, "GET", "/api/groups", Cookie=cookie)[0].status == 401


def test_names_of_admin_hosts_are_the_nodes_own(node: Node) -> None:
    """Any other name of DNS opens nothing, though the certificate would not fit it either."""
    origin = "https://node.example.com"
    assert sign_in(node, Host="node.example.com", Origin=origin).status == 303
    assert sign_in(node, Host="other.example.com", Origin="https://other.example.com").status == 403


def test_client_certificate_says_who_asks(node: Node) -> None:
    """By a line of `access.certificates`; a token in the header wins over it."""
    assert ask_with_certificate(node, "/api/topics?topic=orders") == 200
    assert ask_with_certificate(node, "/api/topics") == 403
    assert ask_with_certificate(node, "/api/topics", Authorization=f"Bearer {node.token}") == 200
    assert ask_with_certificate(node, "/api/topics?topic=orders", Authorization="Bearer x") == 401


def test_commands_bring_the_token_of_a_file(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """In front of the command, and from the environment; without one they are told what is missing."""
    admin, file = f"https://{node.ready['adminTls']}", str(node.folder / "anna.token")
    monkeypatch.setenv("PYDDMQ_TLS_CA", f"{node.folder}/tls/ca.crt")
    refused = command("groups", "--admin", admin)
    assert refused.code == 5
    assert "Authentication required" in refused.err
    assert command("--token-file", file, "groups", "--admin", admin).code == 0
    assert command("--token-file", file, "groups", "pause", "billing", "--admin", admin).code == 0
    monkeypatch.setenv("PYDDMQ_TOKEN_FILE", file)
    assert command("topics", "--admin", admin).code == 0
    monkeypatch.delenv("PYDDMQ_TOKEN_FILE")
    monkeypatch.setenv("PYDDMQ_TOKEN", node.token)
    assert command("groups", "resume", "billing", "--admin", admin).code == 0
    monkeypatch.setenv("PYDDMQ_TOKEN", "wrong")
    assert command("groups", "--admin", admin).code == 5
    monkeypatch.setenv("PYDDMQ_TOKEN_FILE", f"{node.folder}/none")
    missing = command("groups", "--admin", admin)
    assert missing.code == 2
    assert "cannot be read" in missing.err


def test_trail_of_a_real_node_is_its_owners_alone(node: Node) -> None:
    """Folder and files, whatever the umask; the token stands in no byte of them, nor in the log."""
    sign_in(node)
    folder = node.folder / "data" / "pyddmq" / "audit"
    files = sorted(folder.iterdir())
    assert [each.name for each in files] == ["changes.jsonl", "denials.jsonl"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert "foreign_file" not in command("store", "check", node.folder / "data").out
    secret = node.token[24:]
    for each in files:
        assert secret not in each.read_text()
        assert all(json.loads(line)["address"] for line in each.read_text().splitlines())


def test_token_is_kept_back_from_a_network_without_tls(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never leaves the command, and where the node asks for it the command says why it has not come."""
    monkeypatch.setattr("proxy.cli.admin_client.is_loopback", lambda _: False)
    monkeypatch.setenv("PYDDMQ_TOKEN", node.token)
    refused = command("groups", "--admin", node.ready["admin"])
    assert refused.code == 5
    assert "Authentication required" in refused.err
    assert "The token was not sent: it is sent only over TLS or to loopback addresses" in refused.err
