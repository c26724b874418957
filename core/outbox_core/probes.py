"""One small HTTP server for `/livez`, `/readyz` and `/metrics`.

It runs in a thread of its own: when the event loop hangs it still answers, and says that it hangs.
"""

import contextlib
import logging
import socket
import socketserver
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder

from outbox_core.health import LIVENESS_LIMIT_SECONDS, Check, Checks, Liveness, Readiness
from outbox_core.printable import printable

__all__ = ["Check", "Checks", "Liveness", "Probes", "ProbesError", "Readiness"]

_CONNECTION_SECONDS = 10.0
"""How long a client may take altogether."""
_MOST_CONNECTIONS = 64
"""Each has a thread; beyond, the oldest gives way to a new one, which may be the kubelet's."""
_STOP_POLL_SECONDS = 0.05
_TEXT = "text/plain; charset=utf-8"

_log = logging.getLogger("outbox.probes")


class ProbesError(Exception):
    """The probes cannot be served."""


class Probes:
    """The server, from `__enter__` to `__exit__`.

        with Probes(8080) as probes:
            probes.readiness.add("broker", lambda: None if broker.is_connected else "not connected")
            group.create_task(probes.liveness.run())

    Without the last line the process counts as hanging after a while.
    """

    def __init__(
        self,
        port: int,
        host: str | None = None,
        *,
        registry: CollectorRegistry = REGISTRY,
        liveness_limit_seconds: float = LIVENESS_LIMIT_SECONDS,
    ) -> None:
        """Port 0 takes a free one; without a host it listens on all addresses, IPv4 and IPv6."""
        self.liveness = Liveness(liveness_limit_seconds)
        self.readiness = Readiness()
        self.registry = registry
        self._address = (_everywhere() if host is None else host, port)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on, or will."""
        return self._address[1] if self._server is None else int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self.liveness.beat()
        self._server = _listening(self._address, self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_STOP_POLL_SECONDS,), name="outbox-probes", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], probes: Probes) -> None:
        self.probes = probes
        self._open: dict[socket.socket, float] = {}
        """Until when each connection may last, the oldest first."""
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Not HTTPServer's own: that one asks the DNS for this host's name, which may take seconds.
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = time.monotonic() + _CONNECTION_SECONDS
            crowded = list(self._open)[:-_MOST_CONNECTIONS]
        self._hang_up(crowded)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Called now and then: end the connections that last too long."""
        now = time.monotonic()
        with self._lock:
            late = [request for request, until in self._open.items() if until <= now]
        self._hang_up(late)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def _hang_up(self, requests: list[socket.socket]) -> None:
        """Have their threads end; each then closes its own socket."""
        for request in requests:
            with self._lock:
                self._open.pop(request, None)
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's signature
        # A client that hung up; the base class would print a traceback.
        _log.debug("request failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = _CONNECTION_SECONDS

    def do_GET(self) -> None:
        status, content_type, body = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name http.server calls

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's signature
        _log.debug(format, *args)

    def version_string(self) -> str:
        return "outbox"

    def _answer(self) -> tuple[HTTPStatus, str, bytes]:
        probes = cast("_Server", self.server).probes
        match self.path.partition("?")[0]:
            case "/livez":
                return _verdict(probes.liveness)
            case "/readyz":
                return _verdict(probes.readiness)
            case "/metrics":
                return _metrics(probes.registry, self.headers.get("Accept", ""))
            case _:
                text = b"not found; there are /livez, /readyz and /metrics\n"
                return HTTPStatus.NOT_FOUND, _TEXT, text


def _verdict(checks: Checks) -> tuple[HTTPStatus, str, bytes]:
    failures = checks.failures()
    status = HTTPStatus.SERVICE_UNAVAILABLE if failures else HTTPStatus.OK
    return status, _TEXT, ("\n".join(map(printable, failures or ["ok"])) + "\n").encode()


def _metrics(registry: CollectorRegistry, accept: str) -> tuple[HTTPStatus, str, bytes]:
    encode, content_type = choose_encoder(accept)
    try:
        return HTTPStatus.OK, content_type, encode(registry)
    except Exception:
        _log.exception("metrics cannot be collected")
        return HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"metrics cannot be collected; the log says why\n"


def _listening(address: tuple[str, int], probes: Probes) -> _Server:
    host, port = address
    try:
        return _Server(address, probes)
    except (OSError, OverflowError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise ProbesError(
            f"probes cannot listen on port {port} of {host}: {cause}; "
            f"stop what listens there, or choose another port or address"
        ) from error


def _everywhere() -> str:
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - the kubelet comes from outside
