"""Both Helms that people have."""

import os

import pytest

from outbox_cli.local.services import to_stderr
from tests.chart.helm import Helm
from tests.cluster.programs import find_helm
from tests.operator.conftest import _control_plane, api, namespace, neighbours, site

__all__ = ["_control_plane", "api", "namespace", "neighbours", "site"]


@pytest.fixture(scope="session", params=[3, 4], ids=lambda major: f"helm{major}")
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm 3, and Helm 4; built from Go modules where they are not there."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def progress(line: str) -> None:
        with capture.global_and_fixture_disabled():
            to_stderr(line)

    return Helm(find_helm(os.environ, progress, request.param), tmp_path_factory.mktemp("helm"))
