"""TLS towards a node, as options of the sources and the sink say: `node` as `tls://host:port`, and files beside it.

`tlsCa`, `tlsCertificate`, `tlsKey` are paths where Spark's tasks run, on every worker; `tlsServerName` is the name that
the node's certificate must have. Nothing ever falls back to plain text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lag.spark.sources.options import OptionRefused
from pyddmq.client.tls import SCHEME, Tls

OPTIONS: Final = {"tlsCa": "ca", "tlsCertificate": "certificate", "tlsKey": "key", "tlsServerName": "server_name"}
"""By option, the field that it sets."""
_SENTENCES: Final = {
    "ca, --tls-ca": "option tlsCa",
    "certificate, --tls-certificate": "options tlsCertificate, tlsKey",
    "server_name, --tls-name": "option tlsServerName",
}


def tls_of(options: Mapping[str, str]) -> Tls:
    """Read the options. Raises OptionRefused: they stand beside an address without TLS."""
    given = {name: options[name] for name in OPTIONS if options.get(name)}
    node = options.get("node", "")
    if given and not node.startswith(SCHEME):
        names = ", ".join(given)
        raise OptionRefused(f"options {names} are for TLS, and option 'node' is {node!r}; write {SCHEME}host:port")
    return Tls(**{OPTIONS[name]: value for name, value in given.items()})


def by_option(sentence: str) -> str:
    """Return a sentence of the client's with the names of the options in the place of its own."""
    for name, option in _SENTENCES.items():
        sentence = sentence.replace(name, option)
    return sentence
