"""The benchmark over Kafka runs, small, with all that stands beside the nodes; nothing about time is asserted."""

from __future__ import annotations

import json

import pytest

from bench.kafka.__main__ import main
from bench.kafka.rivals import JARS
from bench.servers.maven import JarsMissing
from tests.conftest import need

pytestmark = pytest.mark.long

SMALL = ["--messages", "300", "--repeat", "1", "--rest", "0.1", "--warm", "300"]


def test_nodes_and_what_stands_beside_them_give_their_figures(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once, with one node."""
    try:
        JARS.fetch()
    except JarsMissing as error:
        need(False, f"{error}, so it")
    monkeypatch.setenv("PYDDMQ_KAFKA", address)
    assert main([*SMALL, "--nodes", "1"]) == 0
    *table, figures = capsys.readouterr().out.splitlines()
    found = json.loads(figures)["costs"]
    assert list(found) == ["1 node", "plain, 500 at once", "plain, one by one", "parallel consumer", "own store"]
    for name, [(_, in_all, per_second, _)] in found.items():
        assert in_all > 0, name
        assert per_second > 0, name
        assert any(line.startswith(name) for line in table)
