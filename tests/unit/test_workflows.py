"""The workflows of continuous integration call what there is, in the versions that the repository has."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from images.lock import IMAGES
from tests.cluster import kind
from tests.cluster.programs import HELM
from tests.e2e import evidence
from tests.images.catalogue import OPERATOR, RELAY, REPOSITORY, WORKER
from tests.operator.control_plane.programs import MODULE, version

FOLDER = REPOSITORY / ".github" / "workflows"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yml"))}
JOBS = [
    pytest.param(job, id=f"{name}-{title}")
    for name, workflow in WORKFLOWS.items()
    for title, job in workflow["jobs"].items()
]
_MAKE = re.compile(r"\bmake ((?:[\w=.@/-]+ ?)+)")


def _commands(job: dict[str, Any]) -> Iterator[str]:
    for step in job["steps"]:
        yield from step.get("run", "").splitlines()


def _action(job: dict[str, Any], name: str) -> dict[str, Any]:
    """What an action is given."""
    [found] = [step["with"] for step in job["steps"] if step.get("uses", "").startswith(f"{name}@")]
    assert isinstance(found, dict)
    return found


def _made(job: dict[str, Any]) -> list[list[str]]:
    return [said[1].split() for line in _commands(job) if (said := _MAKE.search(line))]


def test_lint_tests_and_the_cluster_are_there() -> None:
    called = [
        words for workflow in WORKFLOWS.values() for job in workflow["jobs"].values() for words in _made(job)
    ]
    newest = ["test", "ENGINES=newest", "ARGS=@tests/engines/newest.txt"]
    assert called == [["lint"], ["test"], newest, ["images"], ["e2e", "CLUSTER=kind"]]


@pytest.mark.parametrize("job", JOBS)
def test_every_target_of_make_exists(job: dict[str, Any]) -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9]+):.*## ", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+) \?=", makefile, re.MULTILINE))
    for words in _made(job):
        assert {word for word in words if "=" not in word} <= targets
        assert {word.partition("=")[0] for word in words if "=" in word} <= variables


@pytest.mark.parametrize("job", JOBS)
def test_every_job_ends_and_every_action_is_pinned_by_its_digest(job: dict[str, Any]) -> None:
    # A tag can be moved to other code.
    assert job["timeout-minutes"] <= 90
    for step in job["steps"]:
        assert "run" in step or re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step


def test_the_base_image_is_pinned_by_its_digest() -> None:
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    assert re.search(
        r"^ARG BASE_IMAGE=docker\.io/library/python:\S+@sha256:[0-9a-f]{64}$", dockerfile, re.MULTILINE
    )


@pytest.mark.parametrize("workflow", WORKFLOWS.values(), ids=WORKFLOWS.keys())
def test_a_workflow_may_read_and_no_more(workflow: dict[Any, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    assert not [job for job in workflow["jobs"].values() if "permissions" in job]
    # The key `on`, as YAML reads it.
    assert workflow[True].keys() == {"push", "pull_request"}


@pytest.mark.parametrize("job", JOBS)
def test_what_decides_over_a_cache_is_there(job: dict[str, Any]) -> None:
    for step in job["steps"]:
        if step.get("uses", "").startswith("actions/cache@"):
            [files] = re.findall(r"hashFiles\((.*?)\)", step["with"]["key"])
            for file in files.split(", "):
                assert (REPOSITORY / file.strip("'")).is_file()


def test_tests_run_on_every_python_that_is_promised() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    promised = [name.rpartition(" ")[2] for name in project["classifiers"] if re.search(r":: 3\.\d+$", name)]
    jobs = WORKFLOWS["ci"]["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == promised
    assert jobs["lint"]["container"] == f"python:{promised[0]}-bookworm"
    assert project["requires-python"] == f">={promised[0]}"


def test_docker_builds_every_image() -> None:
    targets = WORKFLOWS["e2e"]["jobs"]["docker"]["strategy"]["matrix"]["target"]
    assert tuple(targets) == IMAGES == tuple(image.target for image in (OPERATOR, RELAY, WORKER))


def test_the_node_the_clients_and_the_servers_of_tests_are_one_kubernetes() -> None:
    minor = re.compile(r"v\d+\.\d+")
    [node] = yaml.safe_load(kind.CONFIGURATION.read_text())["nodes"]
    job = WORKFLOWS["e2e"]["jobs"]["kind"]
    built = minor.match(version())
    assert built is not None, f"{MODULE} has no version"
    assert node["image"].partition(":")[2].startswith(f"{built[0]}.")
    assert _action(job, "helm/kind-action")["kubectl_version"] == version()


def test_helm_is_the_one_that_is_built_elsewhere() -> None:
    assert _action(WORKFLOWS["e2e"]["jobs"]["kind"], "azure/setup-helm")["version"] == HELM[3]


def test_kind_is_installed_and_its_cluster_left_to_the_suite() -> None:
    assert _action(WORKFLOWS["e2e"]["jobs"]["kind"], "helm/kind-action")["install_only"] is True


def test_what_a_failed_test_leaves_is_kept() -> None:
    kept = _action(WORKFLOWS["e2e"]["jobs"]["kind"], "actions/upload-artifact")["path"]
    assert REPOSITORY / kept == evidence.FOLDER
