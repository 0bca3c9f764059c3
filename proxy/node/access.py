"""What a node does for access besides the look at each call: files that change, names of producers, connections."""

from __future__ import annotations

from collections.abc import Iterable

from broker.errors import StoreUnwritable
from broker.runtime.bundle import Runtime
from conf import NodeConfig
from proxy.access.access import Access, Policy
from proxy.access.audit import Audit
from proxy.access.owners import Owners
from proxy.node.opened import Opened
from proxy.port.server import ThriftServer
from upstream.calls.seams import Threads


def open_owners(access: Access | None, opened: Opened, node: NodeConfig, runtime: Runtime) -> None:
    """Find out whose the producers are that number their messages, where there are rules. Raises StoreUnwritable."""
    if access is None:
        return
    window = opened.deduplication.window
    try:
        access.owners = Owners(
            runtime.disk,
            opened.store.root,
            runtime.metrics,
            names_max=node.deduplication_producers,
            is_known=lambda name: window.next_of(name) is not None,
        )
    except OSError as error:
        raise StoreUnwritable(node.data, error) from error
    window.owner_of = access.owners.of


def look_at_access(access: Access | None, audit: Audit, servers: Iterable[ThriftServer], threads: Threads) -> None:
    """Take what the files say now, and have what was claimed and audited kept; called about once a second."""
    audit.flush()
    if access is None:
        return
    access.look(threads.run, lambda before: review(access, servers, before))
    access.sync()


def replace_policy(access: Access, policy: Policy, servers: Iterable[ThriftServer]) -> None:
    """Bring a policy that was prepared into force, for living connections too."""
    before, access.policy = access.policy, policy
    review(access, servers, before)


def review(access: Access, servers: Iterable[ThriftServer], before: Policy) -> None:
    """Have another policy hold for living connections, and for sessions."""
    for server in servers:
        server.review(access, before)
    for follower in access.followers:
        follower(before)


def close_access(access: Access | None) -> None:
    """Keep whose the producers are. Raises OSError."""
    if access is not None and access.owners is not None:
        access.owners.close()
