"""The CustomResourceDefinitions through the life of a release, on an API server that has none at first."""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outbox_cli.local.services import to_stderr
from outbox_operator.crds import DEFINITIONS
from outbox_operator.resources import API_GROUP
from tests.chart.helm import CHART, RELEASE, Helm, HelmError, Manifest
from tests.operator.control_plane.api import Api, RefusedError
from tests.operator.control_plane.server import ControlPlane
from tests.operator.control_plane.server import control_plane as start_control_plane
from tests.operator.manifests import RELAY, changed

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAMES = tuple(f"{definition.plural}.{API_GROUP}" for definition in DEFINITIONS)
_DEADLINE_SECONDS = 30
_POLL_SECONDS = 0.05


@pytest.fixture(scope="module")
def bare(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane of this module's own."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def progress(line: str) -> None:
        with capture.global_and_fixture_disabled():
            to_stderr(line)

    with start_control_plane(progress, os.environ) as started:
        yield started


@pytest.fixture
def cluster(bare: ControlPlane) -> Iterator[Api]:
    """Its API, without the definitions before and after each test."""
    api = Api(bare)
    yield api
    for name in _NAMES:
        if _find(api, name):
            api.request("DELETE", f"{_DEFINITIONS}/{name}")
    _until(lambda: not any(_find(api, name) for name in _NAMES), "the definitions to be gone")


@pytest.fixture
def place(cluster: Api) -> str:
    """A namespace to install into."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    cluster.make_namespace(name)
    return name


@pytest.fixture
def installer(helm: Helm, bare: ControlPlane) -> Helm:
    """Each Helm, as the control plane's administrator."""
    return replace(helm, kubeconfig=bare.kubeconfig)


def test_an_upgrade_upgrades_the_definitions_and_an_uninstallation_keeps_them_with_all_resources(
    cluster: Api, installer: Helm, place: str, tmp_path: Path
) -> None:
    where = ("--namespace", place)
    installer.run("install", RELEASE, str(CHART), *where)
    _until_served(cluster)
    relay = cluster.create(changed(RELAY, {".metadata.namespace": place}))

    newer = _with_another_description(tmp_path / "outbox-operator")
    installer.run("upgrade", RELEASE, str(newer), *where)
    assert _description(cluster).startswith("Carries messages")
    assert cluster.get(relay) == relay

    installer.run("uninstall", RELEASE, *where)
    assert _description(cluster).startswith("Carries messages")
    assert cluster.get(relay) == relay

    installer.run("install", RELEASE, str(CHART), *where)
    assert _description(cluster).startswith("Moves messages")
    assert cluster.get(relay) == relay


def test_definitions_that_are_not_kept_go_with_the_release(cluster: Api, installer: Helm, place: str) -> None:
    where = ("--namespace", place)
    installer.run("install", RELEASE, str(CHART), *where, values={"crds": {"keep": False}})
    _until_served(cluster)
    installer.run("uninstall", RELEASE, *where)
    _until(lambda: not any(_find(cluster, name) for name in _NAMES), "the definitions to be gone")


def test_definitions_that_were_applied_by_hand_are_taken_over_where_that_is_asked_for(
    cluster: Api, installer: Helm, place: str
) -> None:
    applied = cluster.kubectl("apply", "--filename", str(CHART.parents[1] / "crds"))
    assert applied.returncode == 0, applied.stderr
    install = ("install", RELEASE, str(CHART), "--namespace", place)
    with pytest.raises(HelmError, match="invalid ownership metadata"):
        installer.run(*install)
    installer.run(*install, "--take-ownership")
    for name in _NAMES:
        definition = _find(cluster, name)
        assert definition is not None
        assert definition["metadata"]["annotations"]["meta.helm.sh/release-name"] == RELEASE


def _with_another_description(chart: Path) -> Path:
    """A copy of the chart in which relays are described in other words."""
    shutil.copytree(CHART, chart)
    template = chart / "templates" / "crd-outboxrelays.yaml"
    text = template.read_text()
    assert "description: Moves messages" in text
    template.write_text(text.replace("description: Moves messages", "description: Carries messages"))
    return chart


def _description(api: Api) -> str:
    definition = _find(api, f"outboxrelays.{API_GROUP}")
    assert definition is not None
    [version] = definition["spec"]["versions"]
    return str(version["schema"]["openAPIV3Schema"]["description"])


def _find(api: Api, name: str) -> Manifest | None:
    try:
        return api.request("GET", f"{_DEFINITIONS}/{name}")
    except RefusedError:
        return None


def _until_served(api: Api) -> None:
    _until(lambda: all(api.is_served(definition) for definition in DEFINITIONS), "our resources to be served")


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(_POLL_SECONDS)
