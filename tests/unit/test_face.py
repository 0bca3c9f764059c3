"""What programs import: `pyddmq`, whole, light, and what its names were before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pyddmq
from pyddmq import client

ROOT = Path(__file__).parents[2]


def test_every_public_name_of_the_client_is_a_name_of_pyddmq() -> None:
    """The lazy names are the client's own objects, and a wrong one is an AttributeError as anywhere."""
    assert sorted(pyddmq.__all__) == sorted(client.__all__)
    assert all(getattr(pyddmq, name) is getattr(client, name) for name in pyddmq.__all__)
    assert set(pyddmq.__all__) <= set(dir(pyddmq))
    with pytest.raises(AttributeError, match="has no attribute 'Produzer'"):
        pyddmq.Produzer  # type: ignore[attr-defined]  # noqa: B018


def test_client_is_imported_without_rooms_and_without_what_servers_need() -> None:
    """A program with the client alone loads none of our rooms and no package but thriftpy2."""
    code = (
        "import sys; from pyddmq import Consumer, Producer; from pyddmq.client import testing\n"
        "Producer('127.0.0.1:1').close(); Consumer('127.0.0.1:1', 'g').close()\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"pyddmq", "thriftpy2"} <= loaded
    rooms_and_servers = {"conf", "broker", "upstream", "actions", "proxy", "structlog", "msgspec", "pydantic", "yaml"}
    assert not loaded & (rooms_and_servers | {"typer", "aiohttp", "prometheus_client"})


def test_old_place_of_the_client_works_and_warns() -> None:
    """`proxy.client` has what it had, and says where it is now."""
    sys.modules.pop("proxy.client", None)
    with pytest.warns(DeprecationWarning, match=r"proxy\.client is now pyddmq"):
        from proxy.client import Producer
    assert Producer is pyddmq.Producer
