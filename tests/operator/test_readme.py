"""The manifests of the README are taken by a real API server as they are."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.operator.control_plane.api import Api

README = Path(__file__).parents[2] / "README.md"


def manifests() -> list[dict[str, Any]]:
    """Every YAML block's documents."""
    blocks = README.read_text().split("```yaml\n")[1:]
    return [document for block in blocks for document in yaml.safe_load_all(block.split("```")[0])]


@pytest.mark.parametrize("manifest", manifests(), ids=lambda manifest: manifest["kind"])
def test_a_manifest_of_the_readme_is_taken_as_it_is(api: Api, namespace: str, manifest: Any) -> None:
    done = api.kubectl(
        "apply", "--namespace", namespace, "--dry-run=server", "-f", "-", text=yaml.safe_dump(manifest)
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "created (server dry run)" in done.stdout
