"""The admin port over real sockets, on asyncio and on uvloop."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from proxy.admin.entry.gate import REMOVED
from proxy.admin.routes import REFUSED
from proxy.admin.server import AdminServer
from proxy.node.trouble_facts import NodeTroubles
from proxy.node.views import ReloadResult
from proxy.operate.attention.kinds import KINDS
from proxy.operate.views.node import MemoryView
from proxy.operate.views.topics import TopicView
from proxy.port.network import ListenError
from tests.admin_node import NOW_MS, PlainNode, busy_node
from tests.loops import LOOPS
from upstream.views import Position, StuckMessage

Get = Callable[..., Awaitable[tuple[int, str, dict[str, str]]]]
Scenario = Callable[[Get], Awaitable[None]]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[PlainNode, Scenario], None]:
    """Return a function that serves a node on the loop in question and lets a scenario talk to it."""

    def run_scenario(node: PlainNode, scenario: Scenario) -> None:
        async def serve() -> None:
            server = AdminServer(node)
            await server.start("127.0.0.1", 0)
            host, port = server.address
            try:
                async with aiohttp.ClientSession(f"http://{host}:{port}") as session:

                    async def get(path: str, method: str = "GET", **more: Any) -> tuple[int, str, dict[str, str]]:
                        async with session.request(method, path, **more) as response:
                            return response.status, await response.text(), dict(response.headers)

                    await scenario(get)
            finally:
                await server.stop()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(serve())

    return run_scenario


Run = Callable[[PlainNode, Scenario], None]


def test_health_follows_the_node(run: Run) -> None:
    """/livez is 200 throughout; /readyz says 503 and why until the node is ready, and again while it drains."""
    node = PlainNode()
    node.state, node.reasons = "recovering", ("The log is being read.",)

    async def scenario(get: Get) -> None:
        assert (await get("/livez"))[:2] == (200, "ok\n")
        assert (await get("/readyz"))[:2] == (503, "not ready: recovering\nThe log is being read.\n")
        status, text, _ = await get("/readyz?verbose")
        assert (status, json.loads(text)) == (
            503,
            {
                "ready": False,
                "state": "recovering",
                "reasons": ["The log is being read."],
                "memory": {"heldBytes": 1_048_576, "maxBytes": 536_870_912, "pressure": "none"},
                "publishesRefused": False,
                "level": "WARN",
                "findings": [
                    {
                        "finding": "not_ready",
                        "severity": "watch",
                        "text": "The node is recovering. The log is being read.",
                        "advice": KINDS["not_ready"].advice,
                        "group": None,
                        "topic": None,
                        "status": None,
                        "cause": None,
                        "evidence": "",
                        "sinceMs": NOW_MS,
                        "queue": None,
                        "offset": None,
                        "key": None,
                        "attempts": None,
                        "reason": None,
                        "count": 1,
                    }
                ],
            },
        )
        node.state, node.reasons = "ready", ()
        assert (await get("/readyz"))[:2] == (200, "ready\n")
        node.memory_view = MemoryView(held_bytes=450_000_000, max_bytes=536_870_912, pressure="refusing")
        assert (await get("/readyz"))[:2] == (200, "ready\nmemory: refusing\n")
        assert "refusing" in (await get("/"))[1]
        node.state = "draining"
        assert (await get("/readyz"))[0] == 503
        assert (await get("/livez"))[0] == 200

    run(node, scenario)


def test_full_disk_shows_in_readiness(run: Run) -> None:
    """Pulls and acks still work, so the node stays ready, and says so; only a probe for publishes gets 503."""
    node = PlainNode()
    node.troubles_view = NodeTroubles(publishes_refused=True)

    async def scenario(get: Get) -> None:
        assert (await get("/readyz"))[:2] == (200, "ready\npublishes: refused\n")
        assert (await get("/readyz?publish"))[:2] == (503, "not ready: publishes are refused\n")
        status, text, _ = await get("/readyz?verbose")
        assert (status, json.loads(text)["ready"], json.loads(text)["publishesRefused"]) == (200, True, True)
        assert [each["finding"] for each in json.loads(text)["findings"]] == ["disk_full"]
        node.troubles_view = NodeTroubles()
        assert (await get("/readyz?publish"))[:2] == (200, "ready\n")

    run(node, scenario)


def test_groups_come_with_lag_holders_and_stuck_keys(run: Run) -> None:
    """/api/groups has the documented shape: sums over queues, the oldest delivery and the longest stuck key first."""

    async def scenario(get: Get) -> None:
        status, text, headers = await get("/api/groups")
        assert status == 200
        assert headers["Content-Type"].startswith("application/json")
        document = json.loads(text)
        assert [group["group"] for group in document["groups"]] == ["orders-billing", "permits-audit"]
        group = document["groups"][1]
        topic = group["topics"][0]
        assert (topic["lag"], topic["lagSeconds"], topic["inFlight"], topic["waiting"]) == (105, 312.5, 3, 40)
        assert topic["queues"][0] == {
            "qid": "pyddmq_broker-0_0",
            "committed": 900,
            "produced": 1005,
            "lag": 105,
            "lagSeconds": 312.5,
            "expiresSeconds": None,
            "expiresBytes": None,
            "expiresShare": None,
        }
        assert topic["stuckKeys"][0]["key"] == "case-10011"
        assert topic["stuckKeys"][0]["holder"] == "127.0.0.1:50312"
        assert [each["offset"] for each in group["inFlight"]] == [900, 940, 931]

    run(busy_node(), scenario)


def test_lists_are_cut_at_the_limit_and_say_so(run: Run) -> None:
    """?limit=1 leaves one of each list, with the whole length beside it; a bad limit is a 400 with a sentence."""

    async def scenario(get: Get) -> None:
        group = json.loads((await get("/api/groups?limit=1&group=permits-audit"))[1])["groups"][0]
        assert (len(group["inFlight"]), group["inFlightTotal"]) == (1, 3)
        assert (len(group["topics"][0]["stuckKeys"]), group["topics"][0]["stuckKeysTotal"]) == (1, 2)
        stats = json.loads((await get("/api/stats?limit=1"))[1])
        assert (len(stats["connections"]), stats["connectionsTotal"]) == (1, 2)
        for bad in ("x", "-1", "1e3", "9999999999"):
            status, text, _ = await get(f"/api/topics?limit={bad}")
            assert status == 400
            assert "integer" in json.loads(text)["error"]["message"]

    run(busy_node(), scenario)


def test_stuck_and_offsets_have_the_documented_shape(run: Run) -> None:
    """Stuck messages and positions come as docs/admin.md shows them, cut at the limit; unknown groups are a 404."""
    node = busy_node()
    one = StuckMessage(
        group="permits-audit", topic="permits", key="k", queue=1, qid="b_1", offset=9, id="7F", state="out",
        attempts=2, holder="10.0.0.1:5", holder_client="carrera-go 1.2", since_ms=NOW_MS - 5, due_ms=NOW_MS + 5,
        waiting=3,
    )  # fmt: skip
    node.stuck_list = [one, one]
    node.position_list = [
        Position(
            group="permits-audit", topic="permits", queue=1, min=1, max=9, committed=3, finished_above=2, next=8, lag=4,
            oldest_ms=None,
        )
    ]  # fmt: skip

    async def scenario(get: Get) -> None:
        stuck = json.loads((await get("/api/groups/stuck?group=permits-audit&limit=1"))[1])
        assert stuck["stuckTotal"] == 2
        assert stuck["stuck"] == [
            {
                "group": "permits-audit",
                "topic": "permits",
                "key": "k",
                "queue": 1,
                "qid": "b_1",
                "offset": 9,
                "id": "7F",
                "state": "out",
                "attempts": 2,
                "holder": "10.0.0.1:5",
                "holderClient": "carrera-go 1.2",
                "sinceMs": NOW_MS - 5,
                "dueMs": NOW_MS + 5,
                "waiting": 3,
                "reason": None,
                "earlier": False,
            }
        ]
        offsets = json.loads((await get("/api/offsets"))[1])
        assert offsets["offsets"] == [
            {
                "group": "permits-audit",
                "topic": "permits",
                "queue": 1,
                "min": 1,
                "committed": 3,
                "finishedAbove": 2,
                "next": 8,
                "max": 9,
                "lag": 4,
                "oldestMs": None,
            }
        ]
        assert (await get("/api/groups/stuck?group=nobody"))[0] == 404
        assert (await get("/api/offsets?group=nobody"))[0] == 404

    run(node, scenario)


def test_topics_and_stats_have_the_documented_shape(run: Run) -> None:
    """Offsets per queue, and the node's version, state, uptime, store, counters and connections."""

    async def scenario(get: Get) -> None:
        topics = json.loads((await get("/api/topics"))[1])
        assert topics["topics"][0] == {
            "topic": "permits",
            "system": False,
            "kind": "user",
            "messageType": "FIFO",
            "queues": [{"queue": 0, "min": 5, "max": 1005}, {"queue": 1, "min": 5, "max": 1006}],
        }
        assert topics["topics"][1]["system"] is True
        await get("/nothing")
        stats = json.loads((await get("/api/stats"))[1])
        assert (stats["version"], stats["state"], stats["uptimeSeconds"]) == ("0.2.0", "ready", 900.0)
        assert stats["store"]["usedBytes"] == 134_217_728
        assert stats["counters"][REFUSED] == 1
        assert stats["connections"][0]["address"] == "127.0.0.1:50312"

    run(busy_node(), scenario)


def test_unknown_paths_names_and_methods_get_a_json_error_and_a_count(run: Run) -> None:
    """Every refusal has a status, a sentence and a counter; 405 lists what is allowed."""
    node = busy_node()

    async def scenario(get: Get) -> None:
        refused = 0
        for path, method, status in [
            ("/api", "GET", 404),
            ("/api/groups?group=nobody", "GET", 404),
            ("/api/topics?topic=nothing", "GET", 404),
            ("/group?group=nobody", "GET", 404),
            ("/api/groups", "POST", 405),
            ("/api/reload", "GET", 405),
            ("/api/stats", "DELETE", 405),
        ]:
            got, text, headers = await get(path, method)
            refused += 1
            assert got == status, path
            assert json.loads(text)["error"]["status"] == status
            assert json.loads(text)["error"]["message"].endswith(".")
            assert ("Allow" in headers) == (status == 405)
        assert node.metrics.value(REFUSED) == refused

    run(node, scenario)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/api/lag/objectives", "Parameter objective is missing; pass a time span, such as objective=60s."),
        ("/api/lag/objectives?objective=60s", "Parameter since is missing; pass a time span, such as since=60s."),
        *(
            (f"{path}=", f"Parameter {path.partition('?')[2]} is empty; pass a value or leave the parameter out.")
            for path in (
                "/api/lag/objectives?objective",
                "/api/lag?trend",
                "/api/groups?group",
                "/api/groups/stuck?limit",
                "/api/topics?topic",
                "/api/losses?topic",
                "/api/messages?id",
                "/api/timers?from",
                "/api/timers/show?id",
                "/api/delays?level",
                "/api/transactions?state",
                "/api/dead-letters?group",
            )
        ),
        *(
            (
                f"/api/lag/objectives?objective=60s&since=1h&atLeast={wrong}",
                f"atLeast is '{wrong}'; it must be a percentage such as 99.9.",
            )
            for wrong in ("most", "-1", "101", "nan")
        ),
    ],
)
def test_missing_and_empty_parameters_are_named(run: Run, path: str, text: str) -> None:
    """Neither is parsed as the empty text."""
    node = busy_node()

    async def scenario(get: Get) -> None:
        status, answer, _ = await get(path)
        assert (status, json.loads(answer)["error"]["message"]) == (400, text)

    run(node, scenario)


@pytest.mark.parametrize("removed", REMOVED)
def test_removed_path_names_its_replacement(run: Run, removed: str) -> None:
    """Under any method and host name, with a count; a parameter that was removed is a wrong request."""
    path, _, parameter = removed.partition("?")
    where = f"{path}?{parameter}=burrow" if parameter else f"{path}kafka/local" if path.endswith("/") else path
    status = 400 if parameter else 410
    node = PlainNode()

    async def scenario(get: Get) -> None:
        for method in ("GET", "POST", "DELETE"):
            found, text, _ = await get(where, method=method, headers={"Host": "burrow.example"})
            wanted = {"status": status, "message": f"{removed} was removed; {REMOVED[removed]}."}
            assert (found, json.loads(text)) == (status, {"error": wanted})
        assert node.metrics.value(REFUSED, str(status)) == 3

    run(node, scenario)


def test_fault_of_a_page_shows_once_a_minute(run: Run) -> None:
    """Each is answered with 500; the log has a traceback, and later how many more there were."""

    class Broken(PlainNode):
        def topics(self) -> list[TopicView]:
            raise RuntimeError("out of order")

    node = Broken()

    async def scenario(get: Get) -> None:
        for path in ["/api/topics?topic=a", "/api/topics?topic=b", "/api/topics"]:
            status, text, _ = await get(path)
            assert (status, "the cause is in its log" in text) == (500, True)

    with capture_logs() as lines:
        run(node, scenario)
        node.limited_log.flush(everything=True)
    first, rest = lines
    assert (first["event"], first["path"], str(first["exc_info"])) == (
        "admin_request_failed",
        "/api/topics",
        "out of order",
    )
    assert (rest["count"], rest["fault"], rest["log_level"]) == (2, "RuntimeError: out of order", "error")
    assert node.metrics.value(REFUSED, "500") == 3


def test_head_is_answered_without_a_body(run: Run) -> None:
    """Probes that send HEAD get the status of GET."""

    async def scenario(get: Get) -> None:
        for path in ("/", "/livez", "/readyz", "/metrics", "/api/stats"):
            status, text, _ = await get(path, "HEAD")
            assert (status, text) == (200, "")

    run(busy_node(), scenario)


def test_reload_says_what_changed_or_why_not(run: Run) -> None:
    """200 with the changes; 409 with the problems, one sentence each, when the file is refused."""
    node = PlainNode()

    async def scenario(get: Get) -> None:
        status, text, _ = await get("/api/reload", "POST")
        assert status == 200
        assert json.loads(text) == {
            "accepted": True,
            "dryRun": False,
            "changes": ["group billing: concurrency 8 -> 16"],
            "warnings": [],
            "problems": [],
        }
        node.outcome = ReloadResult(accepted=False, problems=("conf.yaml:3: groups: unknown key grop",))
        status, text, _ = await get("/api/reload", "POST")
        assert status == 409
        assert json.loads(text)["problems"] == ["conf.yaml:3: groups: unknown key grop"]

    run(node, scenario)


def test_dry_run_of_a_reload_does_not_reload(run: Run) -> None:
    """It answers as the reload would, marked as a dry run."""
    node = PlainNode()

    async def scenario(get: Get) -> None:
        status, text, _ = await get("/api/reload", "POST", json={"dryRun": True})
        assert (status, json.loads(text)["dryRun"], node.reloads) == (200, True, 0)
        await get("/api/reload", "POST", json={"dryRun": True, "text": "node: {}", "file": "next.yaml"})
        assert node.candidate == ("node: {}", "next.yaml")
        status, text, _ = await get("/api/reload", "POST", json={"text": "node: {}"})
        assert (status, node.reloads) == (400, 0), "a text is never applied"

    run(node, scenario)


def test_reload_cannot_be_set_off_by_another_site(run: Run) -> None:
    """A web page in a person's browser can neither post across sites nor come under a name of its own."""
    node = PlainNode()

    async def scenario(get: Get) -> None:
        for headers in (
            {"Origin": "https://elsewhere.example"},
            {"Origin": "null"},
            {"Host": "elsewhere.example:9813", "Origin": "http://elsewhere.example:9813"},
            {"Host": "[::1"},
        ):
            assert (await get("/api/reload", "POST", headers=headers))[0] in (400, 403), headers
        assert node.reloads == 0
        assert (await get("/api/reload", "POST", headers={"Host": "localhost:9813"}))[0] == 200

    run(node, scenario)


def test_answers_are_not_cached_and_allow_no_foreign_content(run: Run) -> None:
    """Figures are always fresh, and the page can load nothing but its own style."""

    async def scenario(get: Get) -> None:
        for path in ("/", "/api/stats", "/metrics", "/nothing"):
            headers = (await get(path))[2]
            assert headers["Cache-Control"] == "no-store"
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert headers["Server"] == "pyddmq"

    run(busy_node(), scenario)


def test_fault_in_the_node_is_a_500_and_not_the_end(run: Run) -> None:
    """When the node's view raises, the answer is a JSON error and the port goes on."""

    class Broken(PlainNode):
        def connections(self) -> Any:
            raise RuntimeError("broken on purpose")

    async def scenario(get: Get) -> None:
        status, text, _ = await get("/api/stats")
        assert status == 500
        assert "broken on purpose" not in text
        assert (await get("/livez"))[0] == 200

    run(Broken(), scenario)


def test_taken_port_gets_a_sentence() -> None:
    """The error names the address and the setting that helps."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        server = AdminServer(PlainNode())
        with pytest.raises(ListenError, match="is in use; stop the other process, or choose another port"):
            asyncio.run(server.start("127.0.0.1", other.getsockname()[1]))
