"""Certificates that are replaced, expire or are taken back while a node runs."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import pytest

from broker.runtime.steps import run_now
from proxy.node.reload import Candidate, Reloader
from proxy.operate.attention.findings import judged
from proxy.operate.live_node import LiveNode
from proxy.tls.port import ENDED, EXPIRES, FAILED
from proxy.tls.ports import RELOADS, Prepared
from pyddmq import Consumer, Producer
from tests.running_node import RunningNode
from tests.tls.authority import HOUR, Authority
from tests.tls.conftest import Certificates
from tests.tls.world import TlsWorld


@pytest.fixture
def own(tmp_path: Path) -> Certificates:
    """Certificates that a test may replace."""
    return Certificates(tmp_path / "certificates")


def kinds(world: TlsWorld) -> set[str]:
    """What needs attention."""
    live = LiveNode(world.node, Reloader(world.node, lambda: (_ for _ in ()).throw(AssertionError)))
    return {each.finding for each in judged(live).findings}


def shown(world: TlsWorld) -> str:
    """The certificate that a new client is shown."""
    subject = world.open().engine.getpeercert()
    assert subject is not None
    return str(dict(each[0] for each in subject["subject"])["commonName"])  # type: ignore[misc]


def test_new_files_are_taken_up_and_nobody_is_dropped(own: Certificates) -> None:
    """Within seconds, without a reload; who is connected goes on."""
    world = TlsWorld(own, ask="optional")
    old, certified = world.open(), world.open("consumer", world.context("client"))
    own.authority.issue("node-2").write(own.folder, "node")
    world.run(20)
    assert shown(world) == "node-2"
    assert world.node.runtime.metrics.value(RELOADS, "applied") == 1
    for each in (old, certified):
        assert world.pull(each.raw).error is None
    world.run(60)
    assert world.node.runtime.metrics.value(RELOADS, "applied") == 1


def test_half_a_pair_changes_nothing_until_the_other_half_is_there(own: Certificates) -> None:
    """The old pair goes on, the finding names the file, and the rest is taken up by itself."""
    world = TlsWorld(own)
    following = own.authority.issue("node-2")
    (own.folder / "node.crt").write_bytes(following.pem)
    world.run(20)
    assert shown(world) == "node"
    assert "tls_reload_refused" in kinds(world)
    assert f"{own.folder}/node.key: does not belong to the certificate" in world.node.parts.tls.refused
    assert world.node.runtime.metrics.value(RELOADS, "refused") == 1
    (own.folder / "node.key").write_bytes(following.key_pem)
    world.run(20)
    assert shown(world) == "node-2"
    assert "tls_reload_refused" not in kinds(world)


def test_reload_reads_certificates_and_is_refused_with_bad_ones(own: Certificates) -> None:
    """All or nothing: the configuration that comes with them is not taken either."""
    world = TlsWorld(own)
    reloader = Reloader(world.node, lambda: (_ for _ in ()).throw(AssertionError))
    own.authority.issue("node-2").write(own.folder, "node")
    assert run_now(reloader.applying(world.config)).accepted
    assert shown(world) == "node-2"
    (own.folder / "node.key").write_text("no key")
    later = world.config.model_copy(update={"node": world.config.node.model_copy(update={"max_tps": 5.0})})
    refused = run_now(reloader.applying(later))
    assert not refused.accepted
    assert "tls.key: " in refused.problems[0]
    assert "has no readable private key" in refused.problems[0]
    assert world.node.in_force.config.node.max_tps is None
    assert shown(world) == "node-2"


def test_new_files_are_taken_up_though_a_reload_with_them_is_only_tried_or_refused(own: Certificates) -> None:
    """Whoever only looks at what a reload would do keeps no certificate from coming into force, and reports none."""
    world = TlsWorld(own)
    reloader = Reloader(world.node, lambda: (_ for _ in ()).throw(AssertionError))
    own.authority.issue("node-2").write(own.folder, "node")
    trial = world.loop.create_task(reloader.preview(candidate=Candidate("topics: {orders: {queues: 1}}\n", "new")))
    world.loop.run(trial.done, seconds=1)
    assert trial.result().dry_run
    world.run(20)
    assert shown(world) == "node-2"
    own.authority.issue("node-3").write(own.folder, "node")
    billing = world.config.groups["billing"]
    wrong = billing.topics[0].model_copy(update={"topic": "others", "actions": ["Nothing"]})
    groups = {"billing": billing.model_copy(update={"topics": [wrong]})}
    assert not run_now(reloader.applying(world.config.model_copy(update={"groups": groups}))).accepted
    world.run(20)
    assert shown(world) == "node-3"
    (own.folder / "node.key").write_text("no key")
    trial = world.loop.create_task(reloader.preview(candidate=Candidate("topics: {orders: {queues: 1}}\n", "new")))
    world.loop.run(trial.done, seconds=1)
    assert any("has no readable private key" in each for each in trial.result().problems)
    assert (world.node.parts.tls.refused, world.node.runtime.metrics.value(RELOADS, "refused")) == ("", 0)


def test_certificate_that_has_expired_takes_no_place_of_one_that_has_not(own: Certificates) -> None:
    """Somebody put the old file back."""
    world = TlsWorld(own)
    # The world's clock stands in 2023: seen from there every certificate is valid.
    world.node.parts.seams.clock.step(own.node.not_after_ms - world.node.parts.seams.clock.wall_ms() - 60_000)  # type: ignore[attr-defined]
    own.authority.issue("old", begins=-3 * HOUR, ends=-HOUR).write(own.folder, "node")
    world.run(20)
    assert "has expired, and the one in force has not" in world.node.parts.tls.refused


def test_connections_of_a_ca_that_has_gone_end(own: Certificates) -> None:
    """And those of the others go on; nobody of it comes back, be it by a session of before."""
    (own.folder / "ca.crt").write_bytes(own.authority.own.pem + own.foreign.own.pem)
    world = TlsWorld(own, ask="optional")
    stays, nameless = world.open("consumer", world.context("client")), world.open()
    contexts = [world.context("foreign", version) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)]
    leave = [world.open("consumer", each) for each in contexts]
    assert not any(each.error for each in leave)
    (own.folder / "ca.crt").write_bytes(own.authority.own.pem)
    world.run(20)
    assert [each.lost for each in (stays, nameless, *leave)] == [False, False, True, True]
    assert world.counted(ENDED, "unknown_ca") == 2
    for context, before in zip(contexts, leave, strict=True):
        back = world.open("consumer", context, session=before.engine.session)
        assert back.lost
    assert world.counted(FAILED, "unknown_ca") == 2


def test_ca_of_the_same_name_is_another(own: Certificates) -> None:
    """It is told by its certificate, not by what that says."""
    world = TlsWorld(own, ask="required")
    client = world.open("consumer", world.context("client"))
    (own.folder / "ca.crt").write_bytes(Authority().own.pem)
    world.run(20)
    assert client.lost


def test_handshake_that_was_begun_before_the_ca_went_is_refused(own: Certificates) -> None:
    """It ends under the context that it began with, and is looked at again under the one in force."""
    world = TlsWorld(own, ask="required")
    late = world.open("consumer", world.context("client"), silent=True)
    (own.folder / "ca.crt").write_bytes(Authority().own.pem)
    prepared = world.node.parts.tls.prepare()
    assert isinstance(prepared, Prepared)
    world.node.parts.tls.swap(prepared)
    late.silent = False
    late.go_on()
    world.run(0.5)
    assert late.lost
    assert world.counted(FAILED, "unknown_ca") == 1


def test_revoked_certificate_is_refused_and_its_connections_end(own: Certificates) -> None:
    """By a list that is replaced; the others of its CA go on."""
    crl = own.folder / "ca.crl"
    crl.write_bytes(own.authority.revoke())
    world = TlsWorld(own, f"crl: {crl}", ask="required")
    client, other = (world.open("consumer", world.context(name)) for name in ("client", "other"))
    crl.write_bytes(own.authority.revoke(own.client))
    world.run(20)
    assert (client.lost, other.lost) == (True, False)
    assert world.open("consumer", world.context("client")).error is not None
    assert world.counted(ENDED, "revoked") == 1
    assert world.counted(FAILED, "revoked") == 1


def test_list_that_has_expired_refuses_its_clients(own: Certificates) -> None:
    """Fail closed, told of before."""
    crl = own.folder / "ca.crl"
    crl.write_bytes(own.authority.revoke(ends=-HOUR / 2))
    world = TlsWorld(own, f"crl: {crl}", ask="required")
    assert world.open("consumer", world.context("client")).error is not None
    assert world.counted(FAILED, "crl") == 1
    world.node.parts.seams.clock.step(own.node.not_after_ms - world.node.parts.seams.clock.wall_ms() - 60_000)  # type: ignore[attr-defined]
    assert "tls_crl_expiring" in kinds(world)


def test_connection_ends_with_its_certificate(own: Certificates) -> None:
    """And one without a certificate goes on; the node's own is a finding days before."""
    world = TlsWorld(own, ask="optional")
    client, nameless = world.open("consumer", world.context("client")), world.open()
    assert kinds(world) == set()
    clock = world.node.parts.seams.clock
    clock.step(own.client.not_after_ms - clock.wall_ms() - 5_000)  # type: ignore[attr-defined]
    world.run(2)
    assert not client.lost
    assert "tls_expiring" in kinds(world)
    assert world.counted(EXPIRES) in range(1, 5)
    world.run(5)
    assert (client.lost, nameless.lost) == (True, False)
    assert world.counted(ENDED, "expired") == 1


@pytest.mark.usefixtures("both_loops")
def test_swap_under_load_drops_no_call(own: Certificates, tmp_path: Path) -> None:
    """Producers that never send again, and new connections all the while: no failure in twenty swaps."""
    with RunningNode(own.yaml(ask="required"), tmp_path / "data") as node:
        failed: list[Exception] = []
        stop = threading.Event()
        sent = [[0] for _ in range(3)]

        def send(count: list[int]) -> None:
            try:
                with Producer(node.producer_tls, tls=own.tls("client"), resends=0) as producer:
                    while not stop.is_set():
                        producer.send("orders", b"x")
                        count[0] += 1
            except Exception as error:
                failed.append(error)

        def connect() -> None:
            try:
                while not stop.is_set():
                    with Consumer(node.consumer_tls, "billing", tls=own.tls("client"), linger_ms=0) as consumer:
                        consumer.connect()
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=send, args=(count,)) for count in sent] + [threading.Thread(target=connect)]
        for thread in threads:
            thread.start()
        for number in range(20):
            before = sum(count[0] for count in sent)
            own.authority.issue(f"node-{number}").write(own.folder, "node")
            assert node.reload(own.yaml(ask="required")).accepted
            while not failed and sum(count[0] for count in sent) < before + 5:
                threading.Event().wait(0.001)
        stop.set()
        for thread in threads:
            thread.join()
        assert failed == []
