"""Who a connection is: token, certificate, network, in this order; and what a change of the policy makes of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from broker.runtime.rate_limited_log import RateLimitedLog
from conf.sections.access import AccessConfig, AccessRule, CertificateRule, NetworkRule
from conf.sections.access_files import AccessFiles, AccessUnreadable, Signature, StoredToken
from proxy.access.access import Access
from proxy.access.tokens import made
from proxy.tls.peer_certificate import PeerCertificate
from pyddmq.testing import ManualClock

ID, TEXT, DIGEST = made(bytes(range(40)))
TOKEN = StoredToken(id=ID, digest=DIGEST, principal="shop", created_ms=0, expires_ms=1 << 50)
CONFIG = AccessConfig(
    certificates=[
        CertificateRule(subject="CN=audit,O=Example", principal="audit"),
        CertificateRule(name="DNS:*.shop.example", principal="web"),
    ],
    networks=[
        NetworkRule(cidr="10.1.2.0/24", principal="narrow"),
        NetworkRule(cidr="10.0.0.0/8", principal="wide"),
        NetworkRule(cidr="fd00::/8", principal="six"),
    ],
    rules=[AccessRule(principals=["*"], produce=["*"])],
)


class Files:
    """Files that a test changes."""

    def __init__(self) -> None:
        self.tokens = {ID: TOKEN}
        self.state = 0
        self.broken = False

    def read(self, config: AccessConfig) -> AccessFiles:
        if self.broken:
            raise AccessUnreadable(("access", "tokens"), "broken")
        return AccessFiles(tokens=dict(self.tokens), keys={})

    def signature(self, config: AccessConfig) -> Signature:
        return ((self.state, 0, 0),)


def access(files: Files | None = None) -> Access:
    """Make one of `CONFIG`."""
    clock = ManualClock()
    return Access(CONFIG, clock=clock, limited_log=RateLimitedLog(clock), files=files or Files())


@pytest.mark.parametrize(
    ("host", "principal"),
    [
        ("10.1.2.3", "narrow"),
        ("10.1.3.3", "wide"),
        ("::ffff:10.1.2.3", "narrow"),
        ("fd00::1", "six"),
        ("fd00::1%eth0", "six"),
        ("192.168.0.1", "anonymous"),
        ("", "anonymous"),
        ("10.1.2", "anonymous"),
    ],
)
def test_first_network_that_has_an_address_counts(host: str, principal: str) -> None:
    """IPv4 within IPv6 is IPv4; what is not a valid address is nobody's."""
    assert access().rights_of(host, None).principal == principal


def test_certificate_wins_over_the_network_where_a_line_maps_it() -> None:
    """The whole subject, or a name with its kind; a certificate that nobody maps leaves it to the network."""
    found = access()

    def who(subject: str, *names: str) -> str:
        shown = PeerCertificate(subject=subject, names=names, common_name=None, serial="1", not_after_ms=0)
        return found.rights_of("10.1.2.3", shown).principal

    assert who("CN=audit,O=Example") == "audit"
    assert who("CN=x", "DNS:other", "DNS:a.shop.example") == "web"
    assert who("CN=audit,O=Example,C=DE") == "narrow"
    assert who("CN=x", "URI:a.shop.example", "DNS:shop.example.evil") == "narrow"


def test_change_of_a_file_is_taken_and_a_broken_one_is_not() -> None:
    """Whole or not at all; a token that is gone or is another one ends its connections."""
    files = Files()
    found = access(files)
    reported: list[object] = []

    def look() -> list[object]:
        """Look, and have the files read at once; returns the policies that another one took the place of."""
        reported.clear()
        found.look(lambda work, done: done(work()), reported.append)
        return reported

    assert look() == []
    proven = found.proven(TEXT)
    assert proven is not None
    rights = found.rights_by(proven)
    before = found.policy
    files.broken, files.state = True, 1
    assert look() == []
    assert found.policy is before
    files.broken, files.tokens = False, {}
    assert look() == [before]
    assert found.proven(TEXT) is None
    assert found.renewed(rights, "10.1.2.3", None, before) is None


def test_files_are_read_beside_the_loop_one_at_a_time() -> None:
    """Nothing changes while they are read; a reload that comes meanwhile is not undone by what was read before it."""
    files = Files()
    found = access(files)
    orders: list[tuple[Callable[[], object], Callable[[object], None]]] = []
    reported: list[object] = []

    def look() -> None:
        found.look(lambda work, done: orders.append((work, done)), reported.append)

    files.tokens, files.state = {}, 1
    look()
    look()
    [(work, done)] = orders
    read = work()
    assert found.proven(TEXT) is not None
    reloaded = found.prepared(CONFIG)
    found.policy = reloaded
    done(read)
    assert (found.policy, reported) == (reloaded, [])
    files.tokens, files.state = {ID: TOKEN}, 2
    look()
    work, done = orders[1]
    done(work())
    assert reported == [reloaded]
    assert found.proven(TEXT) is not None


def test_files_are_read_by_the_next_look_where_there_is_no_thread_for_one() -> None:
    """A revoked token counts a second longer, and not until the next start."""
    files = Files()
    found = access(files)
    files.tokens, files.state = {}, 1

    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with contextlib.suppress(RuntimeError):
        found.look(refused, lambda _: None)
    assert found.proven(TEXT) is not None
    found.look(lambda work, done: done(work()), lambda _: None)
    assert found.proven(TEXT) is None


def test_reload_that_changes_rules_alone_reads_no_files() -> None:
    """The loop waits for a reload; tokens that have not changed are taken as they were."""
    files = Files()
    found = access(files)
    files.broken = True
    other = CONFIG.model_copy(update={"rules": []})
    assert found.prepared(other).tokens == {ID: TOKEN}
    files.state = 1
    with pytest.raises(AccessUnreadable):
        found.prepared(other)
    files.state = 0
    with pytest.raises(AccessUnreadable):
        found.prepared(CONFIG.model_copy(update={"tokens": "another.json"}))


def test_fault_in_reading_is_told_and_leaves_all_as_it_is() -> None:
    """The next change is read all the same."""
    files = Files()
    found = access(files)
    before = found.policy
    files.tokens, files.state = {"x": None}, 1  # type: ignore[dict-item]
    found.look(lambda _, done: done(RuntimeError("a fault")), lambda _: None)
    assert found.policy is before
    found.look(lambda work, done: done(work()), lambda _: None)
    assert found.policy is not before
