"""The table of addresses and tricks in messages' URLs, each of which is refused (D43, W62)."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from actions.client_factories import Outside
from actions.http import checked_sockets
from actions.http.addresses import looks_numeric, refusal
from actions.http.callback import UrlRefused, check, parse_origin
from actions.http.connection_options import AddressRefused, HttpWish
from pyddmq.actions import Unprocessable
from tests.push_tools import HandContext, HandJob, push, pusher

ANY = [parse_origin("http://*:*"), parse_origin("https://*:*")]

REFUSED = [
    # Addresses of the machine, of networks nearby, of nobody.
    "http://127.0.0.1/",
    "http://127.255.255.254:9813/api",
    "http://0.0.0.0/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.170.2/v2/credentials",
    "http://100.100.100.200/latest/meta-data/",
    "http://168.63.129.16/metadata",
    "http://192.0.0.192/opc/v2/instance/",
    "http://192.0.2.1/",
    "http://192.88.99.1/",
    "http://198.18.0.1/",
    "http://198.51.100.7/",
    "http://203.0.113.9/",
    "http://224.0.0.1/",
    "http://239.255.255.250/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    # The same as a number, octal, hexadecimal, short, with zeros or a dot behind.
    "http://2130706433/",
    "http://0x7f000001/",
    "http://017700000001/",
    "http://0177.0.0.1/",
    "http://0x7f.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.0.0.01/",
    "http://127.0.0.1./",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    "http://2852039166/",
    "http://1.1.1.1.0x7f/",
    "http://0/",
    # IPv6, and IPv4 inside of it.
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::169.254.169.254]/",
    "http://[64:ff9b:1::a00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[2001:0:53aa:64c:0:7bff:80ff:fffe]/",
    "http://[2001:db8::1]/",
    "http://[2a00:1450::5efe:7f00:1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[fec0::1]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://[ff02::1]/",
    "http://[100::1]/",
    "http://[3fff::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    # Hosts that two readers read differently.
    "http://user@127.0.0.1/",
    "http://hooks.example.com@169.254.169.254/",
    "http://hooks.example.com:80@10.0.0.1/",
    "http://169.254.169.254\\@hooks.example.com/",
    "http://hooks.example.com\\.evil.example/",
    "http://hooks.example.com#@169.254.169.254/",
    "http://hooks.example.com /",
    "http://hooks.example.com\r\nHost: x/",
    "http://hooks.example.com/\tx",
    "http://127。0。0。1/",
    "http://①②⑦.0.0.1/",
    "http://127.0.0.1%00.example.com/",
    "http://%31%32%37.0.0.1/",
    "http://localhost./",
    "http://hooks.example.com../",
    "http://.example.com/",
    "http://-x.example.com/",
    "http://hooks.example.com:/",
    "http://hooks.example.com:0/",
    "http://hooks.example.com:99999/",
    "http://hooks.example.com:8o/",
    "http://[127.0.0.1]/",
    "http://[::1/",
    "http:///etc/passwd",
    "http:hooks.example.com",
    "//hooks.example.com/",
    # Schemes.
    "file:///etc/passwd",
    "ftp://hooks.example.com/",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "unix:///run/docker.sock",
    "dict://127.0.0.1:11211/",
    "HTTP+unix://%2Frun/x",
    "javascript:alert(1)",
    "data:text/plain,x",
    "",
    "http://hooks.example.com/" + "x" * 2048,
]


@pytest.mark.parametrize("url", REFUSED)
def test_url_of_a_message_is_refused(url: str) -> None:
    """By its text alone, though every origin is allowed."""
    with pytest.raises(UrlRefused):
        check(url, ANY, [])


RESOLVED = [
    "127.0.0.1",
    "169.254.169.254",
    "10.0.0.7",
    "::1",
    "fe80::1",
    "::ffff:127.0.0.1",
    "64:ff9b::a00:1",
    "0.0.0.0",
]


class Names(AbstractResolver):
    """Resolves every name to the next of its answers."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[ResolveResult]:
        addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        pass


async def push_to(url: str, names: Names, **callback: Any) -> tuple[object, HandContext]:
    """Push one message that names a URL; returns what it answered."""
    context = HandContext()
    action = pusher(
        context,
        outside=Outside(
            http=lambda wish: checked_sockets.connector(wish, resolver=None if wish.allowed is None else names)
        ),
        urls=["http://127.0.0.1:1/never"],
        callback={"origins": ["http://*:*"], **callback},
    )
    try:
        return await push(action, HandJob(properties={"carrera_http_callback_url": url})), context
    finally:
        await action.close()


@pytest.mark.parametrize("address", RESOLVED)
def test_name_that_resolves_to_a_refused_address_is_not_connected_to(address: str) -> None:
    """Where the socket is made, whatever the name looks like."""
    answer, context = asyncio.run(push_to("http://hooks.example.com/", Names([address])))
    assert isinstance(answer, Unprocessable)
    assert "is not a public address" in str(answer)
    assert context.events["callback_refused"] == 1


@pytest.mark.parametrize("address", [*RESOLVED, "::", "2002:7f00:1::", "fd00:ec2::254", "192.168.0.1", "ff02::1"])
def test_socket_is_not_made_for_a_refused_address(address: str) -> None:
    """The last look, at what is connected to, needs nobody who looked before."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    place = (address, 80, 0, 0) if ":" in address else (address, 80)
    with pytest.raises(AddressRefused):
        checked_sockets.guarded_socket([], (family, socket.SOCK_STREAM, 0, "", place))
    if family == socket.AF_INET6:
        with pytest.raises(AddressRefused, match="scope"):
            checked_sockets.guarded_socket([], (family, socket.SOCK_STREAM, 0, "", ("2606:4700::1111", 80, 0, 2)))


def test_one_bad_address_among_good_ones_ends_the_attempt() -> None:
    """A name that has a private address beside a public one is not a valid name to trust."""
    answer, _ = asyncio.run(push_to("http://hooks.example.com/", Names(["127.0.0.1", "1.1.1.1"])))
    assert isinstance(answer, Unprocessable)


def test_name_that_resolves_otherwise_a_moment_later_is_looked_at_again() -> None:
    """Rebinding: what was public for an earlier look is looked at where it is connected to."""
    names = Names(["93.184.215.14"], ["127.0.0.1"])

    async def run() -> object:
        await names.resolve("hooks.example.com")  # whoever looked first saw a public address
        answer, _ = await push_to("http://hooks.example.com/", names)
        return answer

    assert isinstance(asyncio.run(run()), Unprocessable)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "2a00:1450:4001::1", "172.32.0.1"])
def test_public_address_is_allowed(address: str) -> None:
    """What anybody may have."""
    assert refusal(address) is None


def test_private_address_takes_a_block_of_the_list() -> None:
    """Of its own block and no other, mapped or not."""
    [block] = pusher_networks("10.1.0.0/16")
    assert refusal("10.1.2.3", [block]) is None
    assert refusal("::ffff:10.1.2.3", [block]) is None
    assert refusal("10.2.2.3", [block]) is not None
    assert refusal("fe80::1%eth0", pusher_networks("fe80::/10")) is not None


def pusher_networks(*blocks: str) -> list[Any]:
    """Blocks as the options have them."""
    from actions.http.options import CallbackOptions

    return list(CallbackOptions(origins=["http://*"], networks=list(blocks)).parsed_networks)


@pytest.mark.parametrize(
    ("origin", "url", "allowed"),
    [
        ("https://hooks.example.com", "https://hooks.example.com/x?y=z", True),
        ("https://hooks.example.com", "https://HOOKS.example.com:443/", True),
        ("https://hooks.example.com", "http://hooks.example.com/", False),
        ("https://hooks.example.com", "https://hooks.example.com:8443/", False),
        ("https://hooks.example.com:*", "https://hooks.example.com:8443/", True),
        ("https://hooks.example.com", "https://hooks.example.com.evil.example/", False),
        ("https://hooks.example.com", "https://evilhooks.example.com/", False),
        ("https://*.example.com", "https://a.b.example.com/", True),
        ("https://*.example.com", "https://example.com/", False),
        ("https://*.example.com", "https://evilexample.com/", False),
        ("http://10.1.2.3:8080", "http://10.1.2.3:8080/", True),
        ("http://[2606:4700::1111]", "http://[2606:4700::1111]/", True),
    ],
)
def test_origin_of_the_list_matches_itself_and_nothing_near(origin: str, url: str, allowed: bool) -> None:
    """Scheme, whole host and port."""
    networks = pusher_networks("10.1.0.0/16")
    if allowed:
        assert check(url, [parse_origin(origin)], networks) == url
    else:
        with pytest.raises(UrlRefused, match="not one of the allowed origins"):
            check(url, [parse_origin(origin)], networks)


@pytest.mark.parametrize(
    "text", ["hooks.example.com", "https://", "https://a/b", "ftp://a", "http://a:0", "http://u@a", "*"]
)
def test_text_that_is_no_origin_is_said_so(text: str) -> None:
    """With what one looks like."""
    with pytest.raises(ValueError, match=r"not a valid origin|not a valid port"):
        parse_origin(text)


@pytest.mark.parametrize(("host", "numeric"), [("127.1", True), ("a.0x1f", True), ("a.b1", False), ("0xg", False)])
def test_host_that_ends_in_a_number_looks_numeric(host: str, numeric: bool) -> None:
    """As resolvers take it."""
    assert looks_numeric(host) is numeric


def test_configured_urls_are_trusted_and_those_of_messages_are_not() -> None:
    """The connector for configured URLs looks at no address."""

    async def run(wish: HttpWish) -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            url = "http://{}:{}/".format(*bound.getsockname())
            async with aiohttp.ClientSession(connector=checked_sockets.connector(wish)) as session:
                await session.get(url)

    with pytest.raises(aiohttp.ClientConnectorError):
        asyncio.run(run(HttpWish(connections_max=1)))
    with pytest.raises(AddressRefused):
        asyncio.run(run(HttpWish(connections_max=1, allowed=())))
