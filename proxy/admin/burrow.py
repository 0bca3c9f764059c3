"""Burrow's HTTP paths on the admin port, for what asks Burrow today: same paths, same JSON, same refusals.

The one cluster is the broker's (`brokerCluster`). Under `/v3/config` Burrow tells its own set-up: here that is one
module of each kind, named after the cluster, with what holds in the node; what the node has no word for is empty, as of
a Burrow in which nobody set it. A group is not deleted over these paths.
"""

from __future__ import annotations

import platform
from typing import Any

import msgspec
from aiohttp import web

from broker.runtime.async_steps import run_async
from lag.rules.burrow import DEFAULTS
from proxy.operate.burrow import Queues, status_of, topics_of
from proxy.operate.live_node import LiveNode

PREFIX = "/v3/"
MODULE = "pyddmq"
"""Class name of modules: what they are is no class of Burrow's."""
CONFIG_KINDS = ("storage", "evaluator", "cluster", "consumer", "notifier")
_INVALID = b'{"error":true,"message":"invalid request type","result":{}}\n'


class BurrowPaths:
    """Answers as Burrow does.

    Args:
        node: The node.
    """

    def __init__(self, node: LiveNode) -> None:
        self._node = node
        self._host = platform.node()

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the paths; what is under `/v3/` besides is refused as Burrow does."""
        cluster = "/v3/kafka/{cluster}"
        router.add_get("/burrow/admin", self._healthy)
        router.add_get("/v3/kafka", self._clusters)
        router.add_get(cluster, self._cluster)
        router.add_get(f"{cluster}/topic", self._topics)
        router.add_get(f"{cluster}/topic/{{topic}}", self._topic)
        router.add_get(f"{cluster}/topic/{{topic}}/consumers", self._topic_consumers)
        router.add_get(f"{cluster}/consumer", self._consumers)
        router.add_get(f"{cluster}/consumer/{{consumer}}", self._consumer)
        router.add_get(f"{cluster}/consumer/{{consumer}}/status", self._status)
        router.add_get(f"{cluster}/consumer/{{consumer}}/lag", self._lag)
        router.add_get("/v3/config", self._config)
        router.add_get(f"/v3/config/{{kind:{'|'.join(CONFIG_KINDS)}}}", self._modules)
        router.add_get(f"/v3/config/{{kind:{'|'.join(CONFIG_KINDS)}}}/{{name}}", self._module)
        router.add_get("/v3/{rest:.*}", self._invalid)

    async def _healthy(self, _: web.Request) -> web.Response:
        return web.Response(text="GOOD")

    async def _invalid(self, _: web.Request) -> web.Response:
        return web.Response(body=_INVALID, status=404, content_type="text/plain", charset="utf-8")

    async def _clusters(self, request: web.Request) -> web.Response:
        return self._said(request, "cluster list returned", clusters=[self._node.cluster])

    async def _cluster(self, request: web.Request) -> web.Response:
        if not self._is_here(request):
            return self._not_found(request, "cluster module not found")
        return self._said(request, "cluster module detail returned", module=self._module_of("cluster"))

    async def _config(self, request: web.Request) -> web.Response:
        logging = {"filename": "", "max-size": 0, "max-backups": 0, "max-age": 0}
        return self._said(
            request,
            "main config returned",
            general={"pidfile": "", "stdout-logfile": "", "access-control-allow-origin": ""},
            logging={**logging, "use-local-time": False, "use-compression": False, "level": ""},
            zookeeper={"servers": [], "timeout": 0, "root-path": ""},
            httpserver={"default": {"address": request.host, "tls": "", "timeout": 0}},
        )

    async def _modules(self, request: web.Request) -> web.Response:
        kind = request.match_info["kind"]
        # Alarms have places and rules of their own (`/api/lag/alarms`).
        modules = [] if kind == "notifier" else [self._node.cluster]
        return self._said(request, "module list returned", coordinator=kind, modules=modules)

    async def _module(self, request: web.Request) -> web.Response:
        kind = request.match_info["kind"]
        if kind == "notifier" or request.match_info["name"] != self._node.cluster:
            return self._not_found(request, f"{kind} module not found")
        return self._said(request, f"{kind} module detail returned", module=self._module_of(kind))

    def _module_of(self, kind: str) -> dict[str, Any]:
        """Return what Burrow tells of a module, as it is here."""
        profile = {"name": "", "client-id": "", "kafka-version": "", "tls": None, "sasl": None}
        found: dict[str, Any] = {"class-name": MODULE}
        if kind == "storage":
            found |= {"intervals": DEFAULTS.intervals, "min-distance": 0, "group-whitelist": "", "expire-group": 0}
        elif kind == "evaluator":
            found["expire-cache"] = 0
        elif kind == "cluster":
            found |= {"servers": [], "client-profile": profile, "topic-refresh": 0, "offset-refresh": 0}
        else:
            found |= {"cluster": self._node.cluster, "servers": [], "group-whitelist": "", "zookeeper-path": ""}
            found |= {"zookeeper-timeout": 0, "client-profile": profile, "offsets-topic": "", "start-latest": False}
        return found

    async def _topics(self, request: web.Request) -> web.Response:
        if not self._is_here(request):
            return self._not_found(request, "cluster not found")
        return self._said(request, "topic list returned", topics=sorted(self._ends()))

    async def _topic(self, request: web.Request) -> web.Response:
        ends = self._ends().get(request.match_info["topic"]) if self._is_here(request) else None
        if ends is None:
            return self._not_found(request, "cluster or topic not found")
        return self._said(request, "topic offsets returned", offsets=ends)

    async def _topic_consumers(self, request: web.Request) -> web.Response:
        if not self._is_here(request):
            return self._not_found(request, "cluster not found")
        topic = request.match_info["topic"]
        groups = [name for name in self._groups() if any(each == topic for each, _ in self._node.samples(name) or ())]
        return self._said(request, "consumers of topic returned", consumers=groups)

    async def _consumers(self, request: web.Request) -> web.Response:
        if not self._is_here(request):
            return self._not_found(request, "cluster not found")
        return self._said(request, "consumer list returned", consumers=self._groups())

    async def _consumer(self, request: web.Request) -> web.Response:
        queues = self._queues(request)
        if queues is None:
            return self._not_found(request, "cluster or consumer not found")
        return self._said(request, "consumer detail returned", topics=topics_of(queues))

    async def _status(self, request: web.Request) -> web.Response:
        return await self._judged(request, show_all=False)

    async def _lag(self, request: web.Request) -> web.Response:
        return await self._judged(request, show_all=True)

    async def _judged(self, request: web.Request, *, show_all: bool) -> web.Response:
        cluster, group = request.match_info["cluster"], request.match_info["consumer"]
        queues, now_ms = self._queues(request), self._node.clock.wall_ms()
        found = await run_async(status_of(cluster, group, queues, now_ms, show_all=show_all))
        return self._said(request, "consumer status returned", 404 if queues is None else 200, status=found)

    def _is_here(self, request: web.Request) -> bool:
        return request.match_info["cluster"] == self._node.cluster

    def _groups(self) -> list[str]:
        return sorted(each.group for each in self._node.groups(details_max=0))

    def _queues(self, request: web.Request) -> Queues | None:
        return self._node.samples(request.match_info["consumer"]) if self._is_here(request) else None

    def _ends(self) -> dict[str, list[int]]:
        return {
            each.topic: [queue.max for queue in sorted(each.queues, key=lambda queue: queue.queue)]
            for each in self._node.topics()
            if not each.system
        }

    def _not_found(self, request: web.Request, message: str) -> web.Response:
        return self._answer(request, {"error": True, "message": message}, 404)

    def _said(self, request: web.Request, message: str, http_status: int = 200, **fields: Any) -> web.Response:
        return self._answer(request, {"error": False, "message": message, **fields}, http_status)

    def _answer(self, request: web.Request, body: dict[str, Any], http_status: int) -> web.Response:
        body["request"] = {"url": request.path, "host": self._host}
        return web.Response(body=msgspec.json.encode(body), status=http_status, content_type="application/json")
