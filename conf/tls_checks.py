"""Contradictions of the section `tls`, in itself and with `node`; as `conf.checks`, with paths below `tls`.

What the files hold is looked at where a context is made of them (`proxy.tls.files`).
"""

from __future__ import annotations

from collections.abc import Iterator

from conf.checks import Finding, collide, is_loopback
from conf.places import Path
from conf.sections.node import NodeConfig
from conf.sections.tls import TlsConfig

_PLAIN = {"producer": "producerPort", "consumer": "consumerPort", "admin": "adminPort"}


def tls_host(name: str, tls: TlsConfig, node: NodeConfig) -> str:
    """Return the address that an encrypted port binds."""
    return tls.listeners()[name].host or (node.admin_host if name == "admin" else node.host)


def check_tls(tls: TlsConfig, node: NodeConfig, *, ruled: bool = False) -> Iterator[Finding]:
    """Find ports without what they need, ports that collide, and those that are open and not meant to be.

    Args:
        tls: The section.
        node: Where plain ports are.
        ruled: Whether there is a section `access`, whose rules hold for all ports.
    """
    listeners = tls.listeners()
    for name in listeners:
        yield from _check_files(name, tls)
    taken: list[tuple[str, str, int | None]] = [
        ("node.producerPort", node.host, node.producer_port),
        ("node.consumerPort", node.host, node.consumer_port),
        ("node.adminPort", node.admin_host, node.admin_port),
    ]
    for name, listener in listeners.items():
        host = tls_host(name, tls, node)
        for other, other_host, other_port in taken:
            if collide(host, listener.port, other_host, other_port):
                text = f"{listener.port} is also the port of {other}; use different ports, or 0 for any free one"
                yield (name, "port"), text
        taken.append((f"tls.{name}.port", host, listener.port))
        is_open = node.access == "open" and name != "admin"
        if listener.host is not None and not (ruled or is_open or is_loopback(listener.host)):
            opened = "" if name == "admin" else ", `access: open` under node if this is intended"
            text = (
                f"{listener.host} is not a loopback address, and a certificate identifies a client, but "
                f"grants no rights; add a section `access` with `rules` beside node{opened}, or use "
                "127.0.0.1 here"
            )
            yield (name, "host"), text


def check_plain_ports(tls: TlsConfig, node: NodeConfig) -> Iterator[Finding]:
    """Find services that would have no port at all; paths below `node`."""
    ports = {"producer": node.producer_port, "consumer": node.consumer_port, "admin": node.admin_port}
    for name, port in ports.items():
        if port is None and name not in tls.listeners():
            text = (
                f"is null, and `tls.{name}` is missing: no client could reach the service; give one of the two a port"
            )
            yield (_PLAIN[name],), text


def _check_files(name: str, tls: TlsConfig) -> Iterator[tuple[Path, str]]:
    files = tls.files(name)
    for field, value in (("certificate", files.certificate), ("key", files.key)):
        if not value:
            text = (
                f"has no {field}; configure a PEM file as `tls.{field}` (`pyddmq tls dev DIR` creates one for "
                "trying it)"
            )
            yield (name,), text
    if files.client_certificates != "none" and files.client_ca is None:
        yield (
            (name,),
            (
                f"requests client certificates ({files.client_certificates}), and `tls.clientCa` is missing; "
                "configure a PEM file with the CA"
            ),
        )
    if files.client_certificates == "none":
        own = tls.listeners()[name]
        for key, unread in (("clientCa", own.client_ca), ("crl", own.crl)):
            if unread is not None:
                text = "is used only where certificates are required; write `clientCertificates: required`"
                yield (name, key), f"{text}, or remove it"
