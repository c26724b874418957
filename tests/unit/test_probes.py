"""The probes, asked over HTTP as the kubelet and Prometheus do."""

import asyncio
import contextlib
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message

import pytest
from prometheus_client import CollectorRegistry, Counter

from outbox_core import probes as probes_module
from outbox_core.probes import Liveness, Probes, ProbesError
from tests.hostile import ALL, escaped

_DEADLINE_SECONDS = 20


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    body: str


def ask(probes: Probes, path: str, method: str = "GET", accept: str = "*/*") -> Answer:
    request = urllib.request.Request(
        f"http://127.0.0.1:{probes.port}{path}", method=method, headers={"Accept": accept}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_DEADLINE_SECONDS) as response:
            return Answer(response.status, response.headers, response.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read().decode())


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def probes(registry: CollectorRegistry) -> Iterator[Probes]:
    with Probes(0, "127.0.0.1", registry=registry) as probes:
        yield probes


def test_a_process_without_checks_is_alive_and_ready(probes: Probes) -> None:
    assert (ask(probes, "/livez").status, ask(probes, "/livez").body) == (200, "ok\n")
    assert (ask(probes, "/readyz").status, ask(probes, "/readyz").body) == (200, "ok\n")


def test_readyz_names_each_check_that_fails_and_why(probes: Probes) -> None:
    probes.readiness.add("broker", lambda: "not connected")
    probes.readiness.add("table", lambda: None)
    probes.readiness.add("database", lambda: "no answer")

    answer = ask(probes, "/readyz")

    assert (answer.status, answer.body) == (503, "broker: not connected\ndatabase: no answer\n")
    assert ask(probes, "/livez").status == 200


def test_readyz_recovers_with_its_checks(probes: Probes) -> None:
    reasons: list[str | None] = ["not connected"]
    probes.readiness.add("broker", lambda: reasons[0])
    assert ask(probes, "/readyz").status == 503

    reasons[0] = None

    assert ask(probes, "/readyz").status == 200


def test_a_check_that_raises_counts_as_failing_and_keeps_its_words_to_the_log(
    probes: Probes, caplog: pytest.LogCaptureFixture
) -> None:
    def check() -> None:
        raise RuntimeError("amqp://shop:secret@broker")

    probes.readiness.add("broker", check)

    answer = ask(probes, "/readyz")

    assert answer.status == 503
    assert answer.body == "broker: the check itself failed with RuntimeError; the log says why\n"
    assert [record.message for record in caplog.records] == ["check failed"]


async def test_livez_fails_while_the_event_loop_hangs_and_says_for_how_long() -> None:
    with Probes(0, "127.0.0.1", liveness_limit_seconds=0.01) as probes:
        # This blocks the loop, as a listener that never awaits would.
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while (answer := ask(probes, "/livez")).status == 200:
            assert time.monotonic() < deadline, "/livez never noticed that the loop does not beat"

    assert answer.status == 503
    assert answer.body.startswith("event loop: last beat ")
    assert answer.body.endswith(" s ago, the limit is 0.01 s\n")


async def test_the_beat_keeps_a_process_alive(probes: Probes) -> None:
    beating = asyncio.create_task(probes.liveness.run())
    assert (await asyncio.to_thread(ask, probes, "/livez")).status == 200
    beating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beating


def test_a_beat_revives_a_process_that_was_given_up() -> None:
    liveness = Liveness(limit_seconds=0)
    assert liveness.failures()
    liveness = Liveness(limit_seconds=60)
    liveness.beat()
    assert liveness.failures() == []


def test_liveness_takes_further_checks(probes: Probes) -> None:
    probes.liveness.add("watch", lambda: "silent for 120 s")
    assert ask(probes, "/livez").body == "watch: silent for 120 s\n"


def test_metrics_are_in_the_text_format_by_default(probes: Probes, registry: CollectorRegistry) -> None:
    Counter("sent", "Messages sent.", registry=registry).inc(3)

    answer = ask(probes, "/metrics")

    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert "sent_total 3.0\n" in answer.body


def test_metrics_are_openmetrics_for_whoever_asks_for_it(probes: Probes, registry: CollectorRegistry) -> None:
    Counter("sent", "Messages sent.", registry=registry).inc()

    answer = ask(probes, "/metrics?name=x", accept="application/openmetrics-text; version=1.0.0,text/plain")

    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.body.endswith("# EOF\n")


def test_a_collector_that_fails_is_a_500_and_not_a_hung_up_connection(
    probes: Probes, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def describe(self) -> list[object]:
            return []

        def collect(self) -> list[object]:
            raise RuntimeError("no")

    registry.register(Broken())  # type: ignore[arg-type]  # duck-typed on purpose

    assert ask(probes, "/metrics").status == 500
    assert "metrics cannot be collected" in caplog.text


def test_head_has_the_headers_and_no_body(probes: Probes) -> None:
    answer = ask(probes, "/livez", method="HEAD")
    assert (answer.status, answer.headers["Content-Length"], answer.body) == (200, "3", "")


def test_an_unknown_path_is_not_found(probes: Probes) -> None:
    answer = ask(probes, "/")
    assert answer.status == 404
    assert "/readyz" in answer.body


def test_requests_are_not_logged(probes: Probes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    ask(probes, "/livez")
    assert caplog.records == []


def test_a_port_in_use_is_one_clear_error_that_names_it(probes: Probes) -> None:
    with pytest.raises(ProbesError, match=rf"port {probes.port} of 127\.0\.0\.1: Address already in use; "):
        Probes(probes.port, "127.0.0.1").__enter__()


def test_the_port_is_free_again_afterwards(registry: CollectorRegistry) -> None:
    with Probes(0, "127.0.0.1", registry=registry) as first:
        port = first.port
    with Probes(port, "127.0.0.1", registry=registry) as second:
        assert ask(second, "/livez").status == 200


def test_without_a_host_it_listens_on_every_address(registry: CollectorRegistry) -> None:
    with Probes(0, registry=registry) as probes:
        assert ask(probes, "/livez").status == 200
        if socket.has_dualstack_ipv6() and _has_ipv6_loopback():
            socket.create_connection(("::1", probes.port), timeout=_DEADLINE_SECONDS).close()


def _has_ipv6_loopback() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


def test_what_a_check_says_does_nothing_to_a_terminal(probes: Probes) -> None:
    probes.readiness.add("broker", lambda: ALL)
    answer = ask(probes, "/readyz")
    assert answer.status == 503
    assert escaped(answer.body)
    assert "\\u202e" in answer.body


# -- clients that wish ill


def is_closed(client: socket.socket) -> bool:
    """Whether the server has ended a connection on which it has nothing to say."""
    client.settimeout(0.01)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def until_closed(client: socket.socket, send: bytes = b"") -> None:
    deadline = time.monotonic() + 10
    while not is_closed(client):
        assert time.monotonic() < deadline, "the server never ended the connection"
        with contextlib.suppress(OSError):
            client.sendall(send)


def test_a_client_that_sends_a_byte_now_and_then_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes_module, "_CONNECTION_SECONDS", 0.3)
    with Probes(0, "127.0.0.1") as served, socket.create_connection(("127.0.0.1", served.port)) as client:
        until_closed(client, send=b"x")


def test_the_oldest_of_too_many_connections_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes_module, "_MOST_CONNECTIONS", 2)
    with Probes(0, "127.0.0.1") as served, contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port))) for _ in range(4)
        ]
        for client in clients[:2]:
            until_closed(client)
        assert not is_closed(clients[-1])
        with socket.create_connection(("127.0.0.1", served.port)) as kubelet:
            kubelet.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            assert kubelet.recv(12) == b"HTTP/1.0 200"
