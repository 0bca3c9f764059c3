"""A name node and its data node in memory, as far as the sink's calls go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

Refuse = Callable[[web.BaseRequest], tuple[int, str] | None]


class NameNode:
    """Name node and data node in one; `refuse` says what becomes of a request before it has an effect.

    Attributes:
        files: By path; what clients that are gone wrote is in `under_construction` until an append ends their lease.
        tokens: Delegation tokens of the requests at the name node.
    """

    def __init__(self, refuse: Refuse = lambda _: None) -> None:
        self.files: dict[str, bytes] = {}
        self.under_construction: dict[str, bytes] = {}
        self.refuse = refuse
        self.tokens: list[str | None] = []
        self.url = ""

    async def run(self, work: Callable[[str], Any]) -> Any:
        """Serve while work runs, which is given the URL."""
        server = web.Server(self.answer)
        listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        try:
            return await work(self.url)
        finally:
            listener.close()
            await server.shutdown(1)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        query, path = request.query, request.path.removeprefix("/webhdfs/v1")
        if "data" in query and query["op"] == "OPEN":
            at = int(query["offset"])
            return web.Response(body=self.files[path][at : at + int(query["length"])])
        if "data" in query:
            before = self.files.get(path, b"") if query["op"] == "APPEND" else b""
            self.files[path] = before + await request.read()
            return web.Response(status=201)
        self.tokens.append(query.get("delegation"))
        refused = self.refuse(request)
        if refused is not None:
            return self._exception(*refused)
        operation = query["op"]
        if operation == "APPEND" and path in self.under_construction:
            self.files[path] += self.under_construction.pop(path)
            return self._exception(403, "RecoveryInProgressException")
        if operation == "APPEND" and path not in self.files:
            return self._exception(404, "FileNotFoundException")
        if operation in ("CREATE", "APPEND"):
            return web.json_response({"Location": f"{self.url}/webhdfs/v1{path}?op={operation}&data=1"})
        if path not in self.files:
            return self._exception(404, "FileNotFoundException")
        if operation == "OPEN":
            return web.json_response({"Location": f"{request.url}&data=1"})
        if operation == "GETFILESTATUS":
            return web.json_response({"FileStatus": {"length": len(self.files[path]), "type": "FILE"}})
        assert operation == "RENAME"
        self.files[query["destination"]] = self.files.pop(path)
        return web.json_response({})

    @staticmethod
    def _exception(status: int, name: str) -> web.Response:
        said = {"RemoteException": {"exception": name, "message": "no"}}
        return web.Response(status=status, text=json.dumps(said))
