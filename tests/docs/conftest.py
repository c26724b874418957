"""What the tests of the operator have, for the manifests and commands of the pages; and what pip installs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY
from tests.operator.conftest import _control_plane, api, namespace

__all__ = ["_control_plane", "api", "namespace"]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    return folder
