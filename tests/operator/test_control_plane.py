"""The control plane that the other tests here stand on."""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from outbox_cli.local import processes, runfolder
from outbox_cli.local.errors import LocalServiceError
from tests.operator.control_plane.api import Api
from tests.operator.control_plane.building import ProgramError
from tests.operator.control_plane.programs import MODULE, Programs, find_programs, version
from tests.operator.control_plane.server import ControlPlane, control_plane
from tests.operator.control_plane.sharing import shared

_DEADLINE_SECONDS = 30

_PRETENDED_GO = """#!/bin/sh
case "$1" in
version) echo "go version go1.26.0 linux/amd64" ;;
build)
    echo built >>"$BUILDS"
    while [ "$1" != -o ]; do shift; done
    for package in kube-apiserver kubectl; do : >"$2$package"; done
    ;;
esac
"""


def _nothing(line: str) -> None:
    """Progress that nobody has to see."""


def _program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_server_is_the_version_that_the_module_pins(api: Api) -> None:
    assert version().startswith("v1.")
    if "KUBEBUILDER_ASSETS" not in os.environ:
        assert api.request("GET", "/version")["gitVersion"] == version()


def test_the_administrator_is_known_by_certificate_and_others_have_no_rights(
    control_plane: ControlPlane,
) -> None:
    api = Api(control_plane)
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    user = api.request("POST", path, review)["status"]["userInfo"]
    assert user["username"] == "administrator"
    assert "system:masters" in user["groups"]
    done = api.kubectl("get", "namespaces", "--as=somebody")
    assert done.returncode == 1
    assert 'namespaces is forbidden: User "somebody" cannot list' in done.stderr


def test_a_control_plane_leaves_nothing_behind() -> None:
    with control_plane(_nothing) as started:
        run = started.folder.parent
        record = runfolder.read(run)
        assert record is not None
        assert len([child for child in record.children if processes.is_alive(child.process)]) == 2
    assert not [child for child in record.children if processes.is_alive(child.process)]
    assert not run.exists()


def test_a_start_that_fails_says_why_and_leaves_nothing_behind(tmp_path: Path) -> None:
    real = find_programs(os.environ, _nothing)
    (tmp_path / "etcd").symlink_to(real.etcd)
    (tmp_path / "kubectl").symlink_to(real.kubectl)
    _program(tmp_path / "kube-apiserver", "#!/bin/sh\npwd\nsleep 60 &\necho $PPID is not amused\nexit 3\n")
    environment = {**os.environ, "KUBEBUILDER_ASSETS": str(tmp_path)}
    with (
        pytest.raises(
            LocalServiceError, match=r"kube-apiserver ended while starting; (.|\n)*not amused"
        ) as raised,
        control_plane(_nothing, environment),
    ):
        pass
    folder = Path(str(raised.value).splitlines()[1])
    assert folder.name.startswith("kube-apiserver-")
    assert not folder.parent.exists()
    assert not processes.inside(folder.parent)


def test_assets_without_a_program_are_refused_with_its_name(tmp_path: Path) -> None:
    _program(tmp_path / "etcd", "")
    with pytest.raises(ProgramError, match="there is no program kube-apiserver; run setup-envtest, or unset"):
        find_programs({"KUBEBUILDER_ASSETS": str(tmp_path)}, _nothing)


@pytest.fixture
def pretended(tmp_path: Path) -> dict[str, str]:
    """An empty cache, and a `go` that writes down each build."""
    (tmp_path / "bin").mkdir()
    _program(tmp_path / "bin" / "go", _PRETENDED_GO)
    return {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "BUILDS": str(tmp_path / "builds"),
    }


def test_programs_are_built_once_however_many_ask_for_them(pretended: Mapping[str, str]) -> None:
    lines: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: find_programs(pretended, lines.append), range(4)))
    [programs] = found
    assert programs.apiserver.parent == Path(
        pretended["XDG_CACHE_HOME"], "outbox-operator/kubernetes", version()
    )
    assert programs.kubectl.exists()
    assert Path(pretended["BUILDS"]).read_text() == "built\n"
    [line] = lines
    assert line.startswith("building kube-apiserver and kubectl v1.")


def test_a_build_that_fails_says_why_and_leaves_nothing_in_the_cache(
    pretended: Mapping[str, str], tmp_path: Path
) -> None:
    failing = _PRETENDED_GO.replace("echo built", "echo no such module; exit 1; echo built")
    _program(tmp_path / "bin" / "go", failing)
    with pytest.raises(ProgramError, match=r"can Go modules be downloaded here\?\nno such module"):
        find_programs(pretended, _nothing)
    cache = Path(pretended["XDG_CACHE_HOME"], "outbox-operator/kubernetes")
    assert [path.name for path in cache.iterdir()] == [f"{version()}.lock"]


def test_the_module_pins_every_program_that_is_built() -> None:
    tools = (MODULE / "tools.go").read_text()
    for name in ("kube-apiserver", "kubectl"):
        assert f'_ "k8s.io/kubernetes/cmd/{name}"' in tools


class _Plane:
    """Stands for a control plane, and tells whether it still runs."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.is_running = False

    @contextmanager
    def __call__(self) -> Iterator[ControlPlane]:
        self.folder.mkdir()
        self.is_running = True
        python = Path(sys.executable)
        yield ControlPlane(f"https://{self.folder.name}", self.folder, Programs(python, python, python))
        self.is_running = False


def test_whoever_started_a_shared_control_plane_stops_it_when_the_last_has_left(tmp_path: Path) -> None:
    first, second = _Plane(tmp_path, "first"), _Plane(tmp_path, "second")
    is_used, leave, has_left = threading.Event(), threading.Event(), threading.Event()

    def start_and_leave() -> None:
        with shared(tmp_path, first):
            is_used.set()
            assert leave.wait(_DEADLINE_SECONDS), "the starter was to be told to leave"
        has_left.set()

    starter = threading.Thread(target=start_and_leave)
    starter.start()
    assert is_used.wait(_DEADLINE_SECONDS), "the first control plane was to start"
    with shared(tmp_path, second) as found:
        assert found.url == "https://first"
        leave.set()
        _until_no_notice(tmp_path)
        assert first.is_running
        assert not has_left.is_set()
        with shared(tmp_path, second) as another:
            # The first is about to go: whoever comes now has one of its own.
            assert another.url == "https://second"
        assert first.is_running
    starter.join(_DEADLINE_SECONDS)
    assert has_left.is_set()
    assert not first.is_running
    assert not second.is_running


def _until_no_notice(folder: Path) -> None:
    ended = threading.Event()
    for _ in range(_DEADLINE_SECONDS * 100):
        if not (folder / "control-plane.json").exists():
            return
        ended.wait(0.01)
    pytest.fail("the starter was to take its notice away")
