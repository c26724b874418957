"""A proxy before an API server that answers some calls itself, as an API server under load does."""

import asyncio
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import yaml
from aiohttp import web

Verdict: TypeAlias = int | None
"""The status that a call is answered with; None if it is passed on."""

_GOODBYE_SECONDS = 0.1
_HOP_HEADERS = {"transfer-encoding", "content-encoding", "content-length", "connection", "host"}


class FaultyProxy:
    """Passes calls on, but for those that `judge` answers, and their answers through `alter`."""

    def __init__(self, server: str, trust: ssl.SSLContext) -> None:
        self.judge: Callable[[web.Request], Verdict] = lambda _: None
        """Tells what is answered to a call."""
        self.instead: Callable[[web.Request], bytes | None] = lambda _: None
        """The body that a call is answered with, as if all was well; None if it is passed on."""
        self.alter: Callable[[web.Request, bytes], bytes] = lambda _, body: body
        """Makes another answer of one that comes back; of a watch, of each of its lines."""
        self.answered: list[tuple[int, str, str]] = []
        """The status, method and path of each call that was not passed on."""
        self._server, self._trust = server, trust
        self._handling: set[asyncio.Task[web.StreamResponse]] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one call."""
        task = asyncio.create_task(self._handled(request))
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)
        return await task

    async def close(self) -> None:
        """End what is passed on: a watch would go on for half an hour."""
        for task in self._handling:
            task.cancel()
        if self._handling:
            await asyncio.wait(self._handling)

    async def _handled(self, request: web.Request) -> web.StreamResponse:
        status = self.judge(request)
        if status is not None:
            self.answered.append((status, request.method, request.path))
            refusal = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "code": status,
                "message": "no",
            }
            return web.json_response(refusal, status=status, headers={"Retry-After": "1"})
        if (body := self.instead(request)) is not None:
            return web.Response(body=body, content_type="application/json")
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_HEADERS}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), read_bufsize=1 << 24) as session,
            session.request(
                request.method,
                f"{self._server}{request.path_qs}",
                headers=headers,
                data=await request.read() or None,
                ssl=self._trust,
            ) as answer,
        ):
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_HEADERS}
            response = web.StreamResponse(status=answer.status, headers=kept)
            # Whoever asked may be gone: an operator ends its watches without a word.
            with suppress(ConnectionResetError):
                await response.prepare(request)
                if request.query.get("watch") == "true":
                    async for line in answer.content:
                        await response.write(self.alter(request, line))
                else:
                    await response.write(self.alter(request, await answer.read()))
            return response


@asynccontextmanager
async def faulty_proxy(kubeconfig: Path) -> AsyncIterator[tuple[FaultyProxy, Path]]:
    """A proxy to the server of a kubeconfig, and a kubeconfig that leads through it."""
    cluster = _read(kubeconfig)["clusters"][0]["cluster"]
    proxy = FaultyProxy(cluster["server"], _trust(cluster))
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=_GOODBYE_SECONDS)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    _, port = runner.addresses[0][:2]
    try:
        yield proxy, _through(f"http://127.0.0.1:{port}", kubeconfig)
    finally:
        await proxy.close()
        await runner.cleanup()


def _read(kubeconfig: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    return config


def _through(url: str, kubeconfig: Path) -> Path:
    config = _read(kubeconfig)
    config["clusters"][0]["cluster"] = {"server": url}
    file = kubeconfig.with_suffix(".faulty")
    file.write_text(yaml.safe_dump(config))
    return file


def _trust(cluster: dict[str, Any]) -> ssl.SSLContext:
    if data := cluster.get("certificate-authority-data"):
        return ssl.create_default_context(cadata=b64decode(data).decode())
    return ssl.create_default_context(cafile=cluster["certificate-authority"])
