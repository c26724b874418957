"""The images, run as a restricted pod runs them."""

import socket
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Sequence

import pytest

from outbox_cli.local.ports import free_ports
from tests.images.build import Built, already_built, build
from tests.images.catalogue import (
    FIXED_SHOP,
    OPERATOR,
    POSTGRES,
    RABBITMQ,
    RELAY,
    REPOSITORY,
    SHOP,
    WORKER,
    Image,
)
from tests.images.container import Ended, container, run

OWN = (OPERATOR, RELAY, WORKER)
DEADLINE_SECONDS = 60
MOST_ABOVE_BASE = 80_000_000
NOBODY = "127.0.0.1:1"
"""Where no server is."""
BROKER = {"OUTBOX_BROKER_URL": f"amqp://shop:secret@{NOBODY}/"}
DATABASE = {"OUTBOX_DATABASE_URL": f"postgresql://shop:secret@{NOBODY}/shop"}


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest) -> Built:
    """The images, which need no cluster; with xdist, those that the controller has built."""
    stage = getattr(request.config, "workerinput", {}).get("stage")
    return already_built(stage["base"]) if stage else build(print)


def python(built: Built, image: Image, program: str) -> Ended:
    return run(built.buildah, image, command=["python", "-c", program])


def serves(port: int, path: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.HTTPError, OSError):
        return False


def terminated_while_it_waits(
    built: Built, image: Image, variables: dict[str, str], arguments: Sequence[str] = ()
) -> Ended:
    """SIGTERM to a container that lives, and waits for a server that is not there."""
    [port] = free_ports(1)
    environment = {**variables, "OUTBOX_PROBE_PORT": str(port)}
    with container(built.buildah, image, arguments=arguments, environment=environment) as started:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not serves(port, "/livez"):
            assert time.monotonic() < deadline, f"{image.name} does not answer /livez"
            time.sleep(0.1)
        started.terminate()
        return started.ended(DEADLINE_SECONDS)


@pytest.mark.parametrize("image", OWN, ids=lambda image: image.name)
def test_help_and_version_are_there_on_a_read_only_root_without_root(built: Built, image: Image) -> None:
    helped = run(built.buildah, image, "--help")
    assert (helped.status, helped.errors) == (0, "")
    assert "OUTBOX_PROBE_PORT" in helped.output
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    said = run(built.buildah, image, "--version")
    assert (said.status, said.output.strip()) == (0, version)


@pytest.mark.parametrize("image", OWN, ids=lambda image: image.name)
def test_an_image_says_what_it_is_and_has_a_user_that_is_not_root(built: Built, image: Image) -> None:
    says = built.buildah.configuration(image.reference)["config"]
    assert says["User"] == "65532:65532"
    assert says["Labels"]["org.opencontainers.image.title"] == image.name.partition(":")[0]
    assert {"org.opencontainers.image.description", "org.opencontainers.image.licenses"} <= set(
        says["Labels"]
    )


@pytest.mark.parametrize("image", [RELAY, WORKER], ids=lambda image: image.name)
def test_an_image_adds_little_to_its_base(built: Built, image: Image) -> None:
    assert built.size_above_base(image) < MOST_ABOVE_BASE


@pytest.mark.parametrize("image", OWN, ids=lambda image: image.name)
def test_everything_is_compiled_and_neither_pip_nor_tests_are_there(built: Built, image: Image) -> None:
    found = python(
        built,
        image,
        "from importlib.util import cache_from_source, find_spec; from pathlib import Path;"
        "files = list(Path('/opt/outbox').rglob('*.py'));"
        "print(len(files) > 100, [str(f) for f in files if not Path(cache_from_source(f)).exists()],"
        " find_spec('pip'), list(Path('/opt/outbox/lib').rglob('tests')))",
    )
    assert (found.output, found.errors) == ("True [] None []\n", "")


@pytest.mark.parametrize("image", OWN, ids=lambda image: image.name)
def test_nothing_can_be_written_but_below_tmp(built: Built, image: Image) -> None:
    found = python(
        built,
        image,
        "import os, pwd, tempfile; tempfile.TemporaryFile().close();"
        "print(os.getuid(), pwd.getpwuid(os.getuid()).pw_name, os.path.expanduser('~'));"
        "open('/app/x', 'w')",
    )
    assert found.output == "65532 outbox /tmp\n"
    assert "Read-only file system" in found.errors


def test_a_relay_that_waits_for_its_database_ends_in_order(built: Built) -> None:
    ended = terminated_while_it_waits(built, RELAY, {**BROKER, **DATABASE})
    assert ended.status == 0, ended.errors
    assert "secret" not in ended.errors


def test_a_worker_that_waits_for_its_broker_ends_in_order(built: Built) -> None:
    ended = terminated_while_it_waits(built, SHOP, BROKER, ["shop.listeners:send_mail"])
    assert ended.status == 0, ended.errors
    assert "secret" not in ended.errors


def test_an_operator_without_a_cluster_says_so_in_one_line(built: Built) -> None:
    ended = run(built.buildah, OPERATOR)
    assert ended.status == 1
    [complaint] = [line for line in ended.errors.splitlines() if " ERROR " in line]
    assert "set KUBECONFIG" in complaint
    assert "Traceback" not in ended.errors


@pytest.mark.parametrize(("image", "fixed"), [(SHOP, "false"), (FIXED_SHOP, "true")], ids=["1.0", "1.1"])
def test_an_applications_image_has_its_module_and_all_of_the_worker(
    built: Built, image: Image, fixed: str
) -> None:
    found = python(built, image, "import os, shop.listeners, outbox_worker; print(os.environ['FIXED'])")
    assert (found.status, found.output, found.errors) == (0, f"{fixed}\n", "")
    helped = run(built.buildah, image, command=["python", "-m", "shop.app", "--help"])
    assert (helped.status, helped.errors) == (0, "")


def answers_on(port: int) -> bool:
    with socket.socket() as asking:
        asking.settimeout(5)
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("image", "data", "signal_ends_it"),
    [(POSTGRES, "/var/lib/postgresql", "INT"), (RABBITMQ, "/var/lib/rabbitmq", "TERM")],
    ids=["postgres", "rabbitmq"],
)
def test_a_service_starts_with_the_variables_of_the_official_image_and_stops_in_order(
    built: Built, image: Image, data: str, signal_ends_it: str
) -> None:
    port, second, third, fourth = free_ports(4)
    environment = {
        "POSTGRES_USER": "shop",
        "POSTGRES_PASSWORD": "secret",
        "POSTGRES_DB": "shop",
        "PGDATA": "/var/lib/postgresql/cluster",
        "PGPORT": str(port),
        "RABBITMQ_DEFAULT_USER": "shop",
        "RABBITMQ_DEFAULT_PASS": "secret",
        "RABBITMQ_NODE_PORT": str(port),
        # The network is the machine's, where others may have a RabbitMQ.
        "RABBITMQ_DIST_PORT": str(second),
        "ERL_EPMD_PORT": str(third),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-rabbitmq_management tcp_config [{{port,{fourth}}}]",
    }
    with container(built.buildah, image, environment=environment, data=data) as started:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not answers_on(port):
            assert time.monotonic() < deadline, f"{image.name} does not listen"
            time.sleep(0.1)
        started.terminate(signal_ends_it)
        ended = started.ended(DEADLINE_SECONDS)
    assert ended.status == 0, ended.errors
