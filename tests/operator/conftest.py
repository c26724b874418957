"""One control plane for the tests of the operator, and a namespace for each of them."""

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from outbox_cli.local import Services
from outbox_cli.local.services import to_stderr
from outbox_operator.crds import DEFINITIONS
from tests.operator.control_plane.api import Api
from tests.operator.control_plane.server import ControlPlane, control_plane
from tests.operator.control_plane.sharing import shared
from tests.operator.neighbours import install as install_neighbours
from tests.operator.site import Site, operator_identity

_DEADLINE_SECONDS = 30
_POLL_SECONDS = 0.05


@pytest.fixture(scope="session", name="control_plane")
def _control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, private to this run."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def progress(line: str) -> None:
        with capture.global_and_fixture_disabled():
            to_stderr(line)

    with ExitStack() as stack:
        if hasattr(request.config, "workerinput"):
            # What is above a worker's folder is the run's.
            run = tmp_path_factory.getbasetemp().parent
            yield stack.enter_context(shared(run, lambda: control_plane(progress)))
        else:
            yield stack.enter_context(control_plane(progress))


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Api:
    """Its API, with our resources defined."""
    api = Api(control_plane)
    for definition in DEFINITIONS:
        api.define(definition)
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not all(api.is_served(definition) for definition in DEFINITIONS):
        assert time.monotonic() < deadline, "the custom resources were defined, and are not served"
        time.sleep(_POLL_SECONDS)
    return api


@pytest.fixture(scope="session")
def neighbours(api: Api) -> None:
    """The kinds of KEDA and of Prometheus' operator, as far as anything may be in them.

    They stay: other tests may be at them. An operator of a test does not see them unless it is told to.
    """
    install_neighbours(api)


@pytest.fixture
def namespace(api: Api) -> str:
    """A namespace for one test; it goes with the control plane."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    api.make_namespace(name)
    return name


@pytest.fixture
def site(
    *, api: Api, namespace: str, services: Services, rabbitmq_url: str, postgres_url: str, tmp_path: Path
) -> Site:
    """A namespace, a database, a virtual host, and the operator's rights in all of them."""
    who = operator_identity(api, namespace, tmp_path)
    return Site(api, namespace, who, services, rabbitmq_url, postgres_url)
