"""The manifests of the examples are taken by a real API server as they are."""

from pathlib import Path

import pytest

from tests.operator.control_plane.api import Api

EXAMPLES = Path(__file__).parents[2] / "examples"
MANIFESTS = sorted(EXAMPLES.rglob("*.yaml"))


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_a_manifest_of_an_example_is_taken_as_it_is(api: Api, namespace: str, manifest: Path) -> None:
    done = api.kubectl("apply", "--namespace", namespace, "--dry-run=server", "-f", str(manifest))
    assert (done.returncode, done.stderr) == (0, "")
    assert "created (server dry run)" in done.stdout
