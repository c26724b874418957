"""What an administrator does to a RabbitMQ, for tests: users, permissions, connections, alarms."""

import asyncio
import json
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from outbox_cli.local import Services
from outbox_cli.local.rabbitmq import RabbitMQServer

_HTTP_SECONDS = 30
_LISTING_PAUSES = (0.1, 0.3, 1.0)
_COMMAND_SECONDS = 120


def broker_version(services: Services) -> tuple[int, int]:
    """The series of RabbitMQ that runs, such as (4, 3)."""
    major, minor, *_ = management(services, "GET", "overview")["rabbitmq_version"].split(".")
    return int(major), int(minor)


def management(services: Services, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
    """Call the management API; return what it says, if anything."""
    url = urlsplit(services.rabbitmq.management_url)
    address = urlunsplit(url._replace(netloc=url.netloc.rpartition("@")[2]))
    credentials = b64encode(f"{url.username}:{url.password}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310 - the address is the broker's, from our own fixture
        f"{address}/api/{path}",
        method=method,
        data=None if method == "GET" else json.dumps(dict(body or {})).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Basic {credentials}"},
    )
    said = _answer(request)
    return json.loads(said) if said else None


def _answer(request: urllib.request.Request) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for pause in _LISTING_PAUSES:
        try:
            with opener.open(request, timeout=_HTTP_SECONDS) as response:
                return bytes(response.read())
        except urllib.error.HTTPError as error:
            # RabbitMQ fails to list users of which one goes meanwhile: another test's, for example.
            if request.method != "GET" or error.code != HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            error.close()
            time.sleep(pause)
    with opener.open(request, timeout=_HTTP_SECONDS) as response:
        return bytes(response.read())


def connection_names(services: Services) -> dict[str, str]:
    """The names that clients gave to their connections, and what the broker calls each."""
    found = management(services, "GET", "connections")
    return {one.get("client_properties", {}).get("connection_name", ""): one["name"] for one in found}


@contextmanager
def user_without_rights(services: Services) -> Iterator[str]:
    """A user whose name is its password, and who may do nothing yet."""
    name = f"user_{uuid.uuid4().hex}"
    management(services, "PUT", f"users/{name}", {"password": name, "tags": ""})
    try:
        yield name
    finally:
        management(services, "DELETE", f"users/{name}")


@asynccontextmanager
async def suspended_queue(services: Services, rabbitmq_url: str, queue: str) -> AsyncIterator[None]:
    """Stop the process of a queue for the block: it neither takes nor refuses messages, and confirms none.

    Afterwards it handles all that was sent to it meanwhile. `rabbitmq_url` has the queue's vhost.
    """
    server = services.rabbitmq
    if not isinstance(server, RabbitMQServer):
        pytest.skip("needs RabbitMQ from the programs on this machine")
    vhost = urlsplit(rabbitmq_url).path.removeprefix("/") or "/"
    found = f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>))'
    pid = "P = case amqqueue:get_pid(Q) of {Name, _} -> whereis(Name); Pid -> Pid end"
    await asyncio.to_thread(rabbitmqctl, server, "eval", f"{found}, {pid}, sys:suspend(P).")
    try:
        yield
    finally:
        await asyncio.to_thread(rabbitmqctl, server, "eval", f"{found}, {pid}, sys:resume(P).")


def rabbitmqctl(server: RabbitMQServer, *arguments: str) -> None:
    """Run the command beside the server: Debian's wrapper of it on PATH drops the environment."""
    account = server._run.account
    subprocess.run(
        [server._program.with_name("rabbitmqctl"), *arguments],
        check=True,
        capture_output=True,
        timeout=_COMMAND_SECONDS,
        cwd=server._folder,
        env=server._environment(),
        **(account.popen_arguments() if account else {}),
    )
