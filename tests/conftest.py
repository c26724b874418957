"""One Postgres and one RabbitMQ for a whole test run, and a fresh database and vhost for each test.

With xdist the controller starts the services and tells the workers their URLs; without it the first test
that asks for them does. A run of nothing but `tests/unit` or `tests/e2e` starts nothing.
"""

import shutil
import signal
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

import hypothesis
import psycopg
import pytest
from psycopg import sql

from outbox_cli.local import Services, start, use
from tests.integration.administrator import management
from tests.own_users import own_users

_WITHOUT = tuple(Path(__file__).parent / folder for folder in ("unit", "e2e"))
_ROOMY_BYTES = 4 << 30
# How long an example takes says something of the machine, and nothing of the code.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
_running = pytest.StashKey[ExitStack]()
_services = pytest.StashKey[Services]()


class _Node(Protocol):
    """An xdist worker, as its controller sees it."""

    config: pytest.Config
    workerinput: dict[str, Any]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: _Node) -> None:
    """In the xdist controller, before each worker starts."""
    config = node.config
    if _needs_services(config.args, config.invocation_params.dir) and not config.option.collectonly:
        services = _shared(config)
        node.workerinput["services"] = {
            "OUTBOX_POSTGRES_URL": services.postgres.url,
            "OUTBOX_RABBITMQ_URL": services.rabbitmq.url,
            "OUTBOX_RABBITMQ_MANAGEMENT_URL": services.rabbitmq.management_url,
        }


def pytest_configure() -> None:
    """Have Ctrl-C end programs that tests start also where a shell has put this run into the background.

    A signal that is ignored stays so in all that is started; one with a handler becomes the default there.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what this process started."""
    if running := config.stash.get(_running, None):
        running.close()


def _needs_services(arguments: Sequence[str], folder: Path) -> bool:
    paths = [folder / argument.split("::")[0] for argument in arguments]
    return not all(any(path.resolve().is_relative_to(without) for without in _WITHOUT) for path in paths)


def _shared(config: pytest.Config) -> Services:
    """The services of this process, started on first use."""
    if _services not in config.stash:
        running = config.stash[_running] = ExitStack()
        capture = config.pluginmanager.getplugin("capturemanager")
        # Without xdist this happens inside the first test, whose output is captured: show the progress.
        with capture.global_and_fixture_disabled():
            started = running.enter_context(start(temporary=_memory()))
            config.stash[_services] = running.enter_context(own_users(started))
    return config.stash[_services]


def _memory() -> Path | None:
    """A file system in memory, where it is roomy: a database for each test is a lot of small files."""
    shared = Path("/dev/shm")  # noqa: S108 - the run folder inside is private
    return shared if shared.is_dir() and shutil.disk_usage(shared).free > _ROOMY_BYTES else None


@pytest.fixture(scope="session")
def services(request: pytest.FixtureRequest) -> Services:
    """The Postgres and RabbitMQ that all tests share; a test of an outage calls `start()` for its own."""
    workerinput = getattr(request.config, "workerinput", {})
    if urls := workerinput.get("services"):
        return use(urls)
    return _shared(request.config)


@pytest.fixture
def postgres_url(services: Services) -> Iterator[str]:
    """An empty database for one test."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(services.postgres.url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield _with_path(services.postgres.url, name)
    with psycopg.connect(services.postgres.url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def rabbitmq_url(services: Services) -> Iterator[str]:
    """An empty vhost for one test, which its administrator may do everything in."""
    name = f"test_{uuid.uuid4().hex}"
    user = quote(urlsplit(services.rabbitmq.url).username or "guest", safe="")
    management(services, "PUT", f"vhosts/{name}")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    management(services, "PUT", f"permissions/{name}/{user}", everything)
    yield _with_path(services.rabbitmq.url, name)
    management(services, "DELETE", f"vhosts/{name}")


def _with_path(url: str, path: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{path}"))
