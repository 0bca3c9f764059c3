"""Burrow's paths over a real socket: what a client of Burrow asks, and gets."""

from __future__ import annotations

import asyncio
import json
import platform
from typing import Any

import aiohttp
import pytest

from lag.samples import QueueSample
from proxy.admin.server import AdminServer
from tests.admin_node import NOW_MS, PlainNode, busy_node

CLUSTER = "/v3/kafka/DefaultCluster"


def node() -> PlainNode:
    """Return a node whose group `permits-audit` stands at an offset in one queue."""
    found = busy_node()
    sample = QueueSample(time_ms=NOW_MS, moved_ms=NOW_MS, start=5, end=1_005, committed=900)
    found.sample_lists["permits-audit"] = {("permits", 0): [sample]}
    return found


def asked(path: str, method: str = "GET", host_name: str = "localhost") -> tuple[int, str, str]:
    """Return status, body and content type; `host_name` is what the client calls the node."""

    async def ask() -> tuple[int, str, str]:
        server = AdminServer(node())
        await server.start("127.0.0.1", 0)
        host, port = server.address
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.request(method, f"http://{host}:{port}{path}", headers={"Host": host_name}) as answer,
            ):
                return answer.status, await answer.text(), answer.content_type
        finally:
            await server.stop()

    return asyncio.run(ask())


def said(path: str) -> tuple[int, dict[str, Any]]:
    """Return status and JSON; `request` names the path and this host."""
    status, text, kind = asked(path)
    body: dict[str, Any] = json.loads(text)
    assert kind == "application/json"
    assert body.pop("request") == {"url": path, "host": platform.node()}
    return status, body


@pytest.mark.parametrize(
    ("path", "message", "fields"),
    [
        ("/v3/kafka", "cluster list returned", {"clusters": ["DefaultCluster"]}),
        (f"{CLUSTER}/topic", "topic list returned", {"topics": ["permits"]}),
        (f"{CLUSTER}/topic/permits", "topic offsets returned", {"offsets": [1_005, 1_006]}),
        (f"{CLUSTER}/topic/permits/consumers", "consumers of topic returned", {"consumers": ["permits-audit"]}),
        (f"{CLUSTER}/topic/none/consumers", "consumers of topic returned", {"consumers": []}),
    ],
)
def test_lists_are_answered(path: str, message: str, fields: dict[str, Any]) -> None:
    """With their message."""
    assert said(path) == (200, {"error": False, "message": message, **fields})


def test_consumers_their_detail_and_status_are_answered() -> None:
    """One commit that left a lag is a stall there."""
    status, body = said(f"{CLUSTER}/consumer")
    assert (status, body["message"]) == (200, "consumer list returned")
    assert "permits-audit" in body["consumers"]
    status, body = said(f"{CLUSTER}/consumer/permits-audit")
    assert (status, body["message"]) == (200, "consumer detail returned")
    assert body["topics"]["permits"][0]["current-lag"] == 105
    for path, listed in (("status", 1), ("lag", 1)):
        status, body = said(f"{CLUSTER}/consumer/permits-audit/{path}")
        assert (status, body["error"], body["message"]) == (200, False, "consumer status returned")
        assert (body["status"]["totallag"], len(body["status"]["partitions"])) == (105, listed)
    assert said(CLUSTER)[1]["module"]["class-name"] == "pyddmq"


def test_its_set_up_is_one_module_of_each_kind() -> None:
    """What Burrow tells of its configuration: the lists, and each module with all of Burrow's fields for it."""
    status, body = said("/v3/config")
    assert (status, body["message"]) == (200, "main config returned")
    assert set(body) == {"error", "message", "general", "logging", "zookeeper", "httpserver"}
    fields = {
        "storage": {"intervals", "min-distance", "group-whitelist", "expire-group"},
        "evaluator": {"expire-cache"},
        "cluster": {"servers", "client-profile", "topic-refresh", "offset-refresh"},
        "consumer": {"cluster", "servers", "group-whitelist", "zookeeper-path", "zookeeper-timeout", "client-profile",
                     "offsets-topic", "start-latest"},
    }  # fmt: skip
    for kind, names in fields.items():
        status, body = said(f"/v3/config/{kind}")
        assert (status, body["message"], body["coordinator"]) == (200, "module list returned", kind)
        [name] = body["modules"]
        status, body = said(f"/v3/config/{kind}/{name}")
        assert (status, body["message"]) == (200, f"{kind} module detail returned")
        assert set(body["module"]) == {"class-name", *names}
    assert said("/v3/config/storage/DefaultCluster")[1]["module"]["intervals"] == 10
    assert said("/v3/config/notifier")[1]["modules"] == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/v3/config/storage/other", "storage module not found"),
        ("/v3/config/notifier/mail", "notifier module not found"),
        ("/v3/kafka/other", "cluster module not found"),
        ("/v3/kafka/other/topic", "cluster not found"),
        ("/v3/kafka/other/topic/permits/consumers", "cluster not found"),
        ("/v3/kafka/other/topic/permits", "cluster or topic not found"),
        (f"{CLUSTER}/topic/none", "cluster or topic not found"),
        ("/v3/kafka/other/consumer", "cluster not found"),
        (f"{CLUSTER}/consumer/nobody", "cluster or consumer not found"),
    ],
)
def test_what_is_not_there_is_refused_in_its_words(path: str, message: str) -> None:
    """404, with `error`."""
    assert said(path) == (404, {"error": True, "message": message})


@pytest.mark.parametrize("path", [f"{CLUSTER}/consumer/nobody/status", "/v3/kafka/other/consumer/permits-audit/lag"])
def test_status_of_what_is_not_there_is_no_error_and_notfound(path: str) -> None:
    """404, with the status as JSON."""
    status, body = said(path)
    assert (status, body["error"], body["status"]["status"]) == (404, False, "NOTFOUND")


def test_unknown_path_is_refused_as_burrow_does_and_health_is_good() -> None:
    """Clients match these texts."""
    refused = (404, '{"error":true,"message":"invalid request type","result":{}}\n', "text/plain")
    assert asked("/v3/nothing") == refused
    assert asked("/v3/config/nothing") == refused
    assert asked(f"{CLUSTER}/consumer/permits-audit/nothing") == refused
    assert asked("/burrow/admin")[:2] == (200, "GOOD")
    assert asked(f"{CLUSTER}/consumer/permits-audit", "DELETE")[0] == 405


def test_node_is_asked_under_any_name() -> None:
    """As the name of a service; what holds keys of messages is not answered so."""
    assert asked("/v3/kafka", host_name="pyddmq.messaging")[0] == 200
    assert asked("/api/lag", host_name="pyddmq.messaging")[0] == 403
