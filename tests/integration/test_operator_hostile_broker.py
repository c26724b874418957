"""A management API that is anybody's server: its answers are a problem of that virtual host alone."""

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from outbox.topology import Exchange
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import MakeExchange
from outbox_operator.broker.management import Timeouts
from outbox_operator.broker.snapshot import BrokerProblem
from outbox_operator.broker.vhost import Vhost
from outbox_operator.faults import Faults
from tests.integration.broker_access import Counter, serving

_MIB = 1024 * 1024
_INSIDE = "what only the inside knows"
_QUICK = Timeouts(connect_seconds=0.5, call_seconds=0.5, listing_seconds=0.5)

Answer = bytes | Callable[[asyncio.StreamWriter], "asyncio.Future[None]"]


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    length = f"Content-Length: {len(body)}"
    head = "\r\n".join((f"HTTP/1.1 {status}", "Content-Type: application/json", length, *headers))
    return f"{head}\r\n\r\n".encode() + body


@asynccontextmanager
async def answering(answer: bytes, endless: bytes = b"", pause: float = 0.0) -> AsyncIterator[list[str]]:
    """A server that gives one answer to all, and then goes on with `endless` for ever; the requests' heads.

    The first of them is its URL.
    """
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            heads.append(head.decode())
            writer.write(answer)
            while endless:
                writer.write(endless)
                await writer.drain()
                await asyncio.sleep(pause)

    async with serving(serve) as url:
        heads.append(url)
        yield heads


def access_to(url: str) -> BrokerAccess:
    return BrokerAccess("localhost", 5672, False, "/", "shop", "hidden", url)


@asynccontextmanager
async def opened(url: str, parts: list[str], write_seconds: float = 60.0) -> AsyncIterator[Vhost]:
    vhost = Vhost(
        access_to(url),
        on_change=lambda _: None,
        on_call=Counter(),
        write_seconds=lambda: write_seconds,
        timeouts=_QUICK,
        faults=Faults(parts.append),
    )
    try:
        yield vhost
    finally:
        await vhost.close()


async def problem_of(url: str) -> BrokerProblem:
    """What a look finds, which is a problem that was foreseen."""
    parts: list[str] = []
    async with opened(url, parts) as vhost:
        found = await vhost.look()
    assert isinstance(found, BrokerProblem)
    assert parts == []
    assert "hidden" not in found.message
    return found


@pytest.mark.parametrize(
    "url",
    [
        "http://a.b:99999",
        "http://a.b:xx",
        "http://a..b:15672",
        f"http://{'a' * 64}.b:15672",
        "http://[::1",
        "http://[fe80::1%25lo]:1",
        "http://",
        "http://\udcff:1",
        "http://127.0.0.1:0",
        "http://a\x00b:1",
    ],
)
async def test_a_url_that_leads_nowhere_is_a_problem_of_its_virtual_host(url: str) -> None:
    assert (await problem_of(url)).reason == "Unreachable"


_WHOAMI = {"name": "shop", "tags": ["administrator"]}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00" * 1000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nnonsense\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        http(b"[" * 200_000),
        http(b'{"tags":' * 50_000),
        http(b"NaN"),
        http(b"1" * 5000),
        http(b'{"name": "shop", "tags": NaN}'),
        http(b'"\xff\xfe"'),
        http(json.dumps(_WHOAMI).encode()),
        http(json.dumps([_WHOAMI]).encode()),
        http(json.dumps({**_WHOAMI, "tags": [[["administrator"]]]}).encode()),
        http(b"{}", "302 Found", "Location: http://localhost:1/api/whoami"),
        http(b"{}", "500 Oops"),
        http(b"{}", "999 Oops"),
    ],
    ids=lambda answer: answer[:60].decode("ascii", "backslashreplace"),
)
async def test_an_answer_that_is_not_rabbitmqs_is_a_problem_of_its_virtual_host(answer: bytes) -> None:
    async with answering(answer) as heads:
        assert (await problem_of(heads[0])).reason == "Unreachable"


async def test_a_packed_answer_is_not_asked_for_and_not_unpacked() -> None:
    bomb = gzip.compress(b" " * (200 * _MIB))
    async with answering(http(bomb, "200 OK", "Content-Encoding: gzip")) as heads:
        tracemalloc.start()
        try:
            await problem_of(heads[0])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert "Accept-Encoding: identity" in heads[1]
    assert peak < 20 * _MIB


async def test_an_endless_answer_is_cut_off() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    async with answering(head, endless=chunk) as heads:
        assert "more than 1 MiB" in (await problem_of(heads[0])).message


async def test_an_answer_that_trickles_ends_with_the_time_for_a_call() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n", endless=b"X: y\r\n", pause=0.05) as heads:
        assert "no answer within 0.5 s" in (await problem_of(heads[0])).message


async def test_small_values_that_would_fill_memory_are_not_parsed() -> None:
    tracemalloc.start()
    try:
        async with answering(http(b"[" + b"{}," * 300_000 + b"{}]")) as heads:
            await problem_of(heads[0])
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * _MIB


@pytest.mark.parametrize("status", ["400 A", "401 A", "403 A", "404 A", "405 A", "500 A", "503 A"])
async def test_a_server_that_is_not_known_to_be_rabbitmq_is_not_quoted(status: str) -> None:
    body = json.dumps({"error": _INSIDE, "reason": _INSIDE}).encode()
    async with answering(http(body, status, f"X-Inside: {_INSIDE}")) as heads:
        assert _INSIDE not in (await problem_of(heads[0])).message


async def test_what_is_not_http_is_not_quoted() -> None:
    async with answering(f"+OK {_INSIDE}\r\n\r\n".encode()) as heads:
        assert _INSIDE not in (await problem_of(heads[0])).message


async def test_a_redirect_takes_the_password_nowhere() -> None:
    async with answering(http(b"{}")) as there:
        async with answering(http(b"{}", "307 There", f"Location: {there[0]}/api/whoami")) as heads:
            await problem_of(heads[0])
        assert len(there) == 1


# Calls of a leader whose time is up.


async def test_nothing_is_written_once_another_replica_may_lead() -> None:
    parts: list[str] = []
    async with answering(http(b"{}")) as heads, opened(heads[0], parts, write_seconds=0.0) as vhost:
        problem = await vhost.perform([MakeExchange(Exchange("late", "topic"))])
        assert problem is not None
        assert problem.message == "this replica of the operator does not lead any more"
        assert len(heads) == 1


async def test_a_write_under_way_ends_when_another_replica_may_lead() -> None:
    parts: list[str] = []
    async with answering(b"") as heads, opened(heads[0], parts, write_seconds=0.1) as vhost:
        problem = await vhost.perform([MakeExchange(Exchange("late", "topic"))])
        assert problem is not None
        assert "no answer within" in problem.message
        assert len(heads) == 2
