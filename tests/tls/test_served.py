"""`pyddmq serve` with encrypted ports: asked by commands, by OpenSSL's own client, and by Spark's."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lag.spark.sources.node import NodeClient, NodeFailed, tls_of
from lag.spark.sources.options import OptionRefused
from proxy.cli.app import run
from proxy.cli.tls.dev_certificates import make
from pyddmq import Producer, Tls, TlsFailed
from tests.acceptance.conftest import Done, NodeProcess
from tests.conftest import need
from tests.patient import PATIENCE_SECONDS, until
from tests.tls.conftest import Certificates

PORTS = "  producer: {port: 0}\n  consumer: {port: 0}\n  admin: {port: 0, clientCertificates: none}\n"
PLAIN = "node: {producerPort: null, consumerPort: null, adminPort: null}\n"
TOPICS = """topics: {orders: {queues: 1}}
groups:
  - {group: billing, topics: [{topic: orders}]}
  - {group: spark, topics: [{topic: orders, actions: [LowLevel]}]}
"""


def section(folder: Path, ports: str = PORTS) -> str:
    """The section `tls` with the files of `pyddmq tls dev`."""
    return (
        f"tls:\n  certificate: {folder}/node.crt\n  key: {folder}/node.key\n  clientCa: {folder}/ca.crt\n"
        f"  clientCertificates: required\n{ports}"
    )


def command(*arguments: str | Path) -> Done:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(each) for each in arguments])
    return Done(code=code, out=out.getvalue(), err=err.getvalue())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pyddmq tls dev` makes."""
    made = tmp_path_factory.mktemp("dev") / "tls"
    assert command("tls", "dev", made).code == 0
    return made


@pytest.fixture(scope="module")
def node(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that has TLS ports alone."""
    where = tmp_path_factory.mktemp("served")
    (where / "node.yaml").write_text(PLAIN + section(folder) + TOPICS)
    running = NodeProcess(["--config", where / "node.yaml", "--data", where / "data"], where)
    yield running
    running.stop()


def by_tls(folder: Path, *words: str) -> list[str]:
    """A command line with the client's certificate."""
    files = [
        "--tls-ca",
        f"{folder}/ca.crt",
        "--tls-certificate",
        f"{folder}/client.crt",
        "--tls-key",
        f"{folder}/client.key",
    ]
    return [*files, *words]


def test_ready_line_has_the_encrypted_ports(node: NodeProcess) -> None:
    """D24: a service without a plain port has null for it."""
    assert [node.ready[name] for name in ("producer", "consumer", "admin")] == [None] * 3
    assert all(node.ready[f"{name}Tls"].startswith("127.0.0.1:") for name in ("producer", "consumer", "admin"))


def test_files_are_for_their_owner_and_stay(folder: Path) -> None:
    """Keys are nobody else's to read, and what is there is not replaced by accident."""
    assert {each.name for each in folder.iterdir()} == {
        *(f"{name}.{kind}" for name in ("ca", "node", "client") for kind in ("crt", "key"))
    }
    assert {stat.S_IMODE((folder / f"{name}.key").stat().st_mode) for name in ("ca", "node", "client")} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    before = (folder / "ca.crt").read_bytes()
    again = command("tls", "dev", folder)
    assert (again.code, "exists; pass another folder" in again.err) == (2, True)
    assert (folder / "ca.crt").read_bytes() == before


def test_send_and_pull_by_the_command(node: NodeProcess, folder: Path) -> None:
    """Options in front of the command."""
    producer, consumer = (f"tls://{node.ready[f'{name}Tls']}" for name in ("producer", "consumer"))
    sent = command(*by_tls(folder, "send", "--producer", producer, "orders", "hello"))
    assert sent.code == 0, sent.err
    pulled = command(*by_tls(folder, "pull", "--consumer", consumer, "billing", "--count", "1"))
    assert "hello" in pulled.out, pulled.err
    refused = command("--tls-ca", folder / "ca.crt", "send", "--producer", producer, "orders", "hello")
    assert "the node requires a client certificate" in refused.err
    nothing = command("--tls-ca", "/no/such/file", "send", "--producer", producer, "orders", "hello")
    assert (nothing.code, "the CA in /no/such/file cannot be used" in nothing.err) == (2, True)


def test_admin_by_the_command(node: NodeProcess, folder: Path) -> None:
    """https, with its own way to ask for certificates; a page, and a command that reads it."""
    address = node.ready["adminTls"]
    shown = command("--tls-ca", folder / "ca.crt", "groups", "--admin", f"https://{address}", "--json")
    assert "billing" in shown.out, shown.err
    plain = command("groups", "--admin", address)
    assert f"speaks TLS; pass --admin https://{address}" in plain.err
    host, port = address.split(":")
    context = Tls(ca=f"{folder}/ca.crt").context()
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/readyz?verbose", headers={"Origin": f"https://{address}"})
    assert json.loads(connection.getresponse().read())["ready"]
    connection.request("GET", "/metrics")
    metrics = connection.getresponse().read().decode()
    connection.close()
    assert 'pyddmq_tls_handshakes_total{service="admin",version="TLSv1.3"}' in metrics
    assert 'pyddmq_tls_certificate_expires_seconds{service="producer"} 7' in metrics
    with socket.create_connection((host, int(port)), PATIENCE_SECONDS) as clear:
        clear.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert clear.recv(4096).startswith(b"HTTP/1.1 400 Bad Request")


def openssl(node: NodeProcess, folder: Path, *options: str, said: str = "", service: str = "consumer") -> str:
    """Connect by `openssl s_client`; returns all that it says."""
    need(shutil.which("openssl"), "openssl (apt install openssl)")
    files = ["-CAfile", f"{folder}/ca.crt", "-cert", f"{folder}/client.crt", "-key", f"{folder}/client.key"]
    done = subprocess.run(
        ["openssl", "s_client", "-connect", node.ready[f"{service}Tls"], *files, *options],
        input=said,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return done.stdout + done.stderr


def test_openssl_client(node: NodeProcess, folder: Path) -> None:
    """Somebody else's view of the port: versions, verification, no tickets, no renegotiation."""
    newest = openssl(node, folder, "-verify_return_error")
    assert "Protocol  : TLSv1.3" in newest or "TLSv1.3, Cipher is" in newest
    assert "Verify return code: 0 (ok)" in newest
    assert "New Session Ticket arrived" not in newest
    older = openssl(node, folder, "-tls1_2")
    assert "Verify return code: 0 (ok)" in older
    assert "Secure Renegotiation IS supported" in older
    for version in ("-tls1_1", "-tls1"):
        refused = openssl(node, folder, version, "-cipher", "ALL:@SECLEVEL=0")
        assert "Cipher is (NONE)" in refused
    tried = openssl(node, folder, "-tls1_2", said="R\n")
    assert "RENEGOTIATING" in tried
    assert "no renegotiation" in tried or "error" in tried
    # Key updates of 1.3 are answered, and end nothing.
    assert "KEYUPDATE" in openssl(node, folder, "-tls1_3", said="K\nK\nQ\n")


def test_bad_file_ends_the_start_with_its_place(folder: Path, tmp_path: Path) -> None:
    """Path and reason, by `serve` and by `config check`."""
    bad = tmp_path / "node.key"
    bad.write_text("nothing")
    file = tmp_path / "node.yaml"
    file.write_text(section(folder).replace(f"{folder}/node.key", str(bad)) + TOPICS)
    for words in (("config", "check", file), ("serve", "--config", file, "--data", tmp_path / "data")):
        done = command(*words)
        assert done.code == 3, done
        assert f"{file}:3: tls.key: {bad}: has no readable private key" in done.out + done.err


def test_new_certificates_are_taken_up_by_sighup(folder: Path, tmp_path: Path) -> None:
    """A plain and an encrypted port side by side; the listener stays."""
    made = tmp_path / "tls"
    shutil.copytree(folder, made)
    (tmp_path / "node.yaml").write_text(
        "node: {producerPort: 0, consumerPort: 0, adminPort: 0}\n" + section(made) + TOPICS
    )
    node = NodeProcess(["--config", tmp_path / "node.yaml", "--data", tmp_path / "data"], tmp_path)
    try:
        with Producer(node.ready["producer"]) as plain:
            plain.send("orders", b"plain")
        make(made, names=("127.0.0.1",), client="another", days=1)
        tls = Tls(ca=f"{made}/ca.crt", certificate=f"{made}/client.crt", key=f"{made}/client.key")
        node.process.send_signal(signal.SIGHUP)
        until(lambda: is_served(f"tls://{node.ready['producerTls']}", tls), "the new certificates")
    finally:
        node.stop()


def is_served(address: str, tls: Tls) -> bool:
    """Whether both sides take each other."""
    with Producer(address, tls=tls) as producer:
        try:
            producer.send("orders", b"hello")
        except TlsFailed:
            return False
    return True


def test_spark_asks_a_node(node: NodeProcess, folder: Path, certificates: Certificates) -> None:
    """What the sources and the sink speak with, and what they say."""
    address = f"tls://{node.ready['consumerTls']}"
    given = {
        "node": address,
        "tlsCa": f"{folder}/ca.crt",
        "tlsCertificate": f"{folder}/client.crt",
        "tlsKey": f"{folder}/client.key",
    }
    with NodeClient(address, tls=tls_of(given)) as client:
        assert set(client.standings("spark")) == {"orders"}
    for change, said in (
        ({"tlsCa": certificates.ca}, "no trusted CA issued its certificate.*option tlsCa"),
        ({"tlsServerName": "elsewhere"}, "its certificate has another name.*option tlsServerName"),
        ({"tlsCertificate": "", "tlsKey": ""}, "the node requires a client certificate.*tlsCertificate, tlsKey"),
        ({"tlsCa": "/no/such/file"}, "the CA in /no/such/file cannot be used"),
    ):
        with (
            NodeClient(address, tls=tls_of({**given, **change})) as client,
            pytest.raises(NodeFailed, match=said),
        ):
            client.standings("spark")
    with pytest.raises(
        OptionRefused, match="options tlsCa are for TLS, and option 'node' is 'h:1'; write tls://host:port"
    ):
        tls_of({"node": "h:1", "tlsCa": "x"})
