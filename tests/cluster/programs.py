"""The programs of a whole cluster, and those that people use it with; what is missing is built, once."""

import hashlib
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Literal

from tests.operator.control_plane.building import cache, filling, one_at_a_time, run_go
from tests.operator.control_plane.go import find_go
from tests.operator.control_plane.programs import find_etcd, kubernetes_programs, version

Progress = Callable[[str], None]

_KUBERNETES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
)
_COREDNS = "v1.12.4"
HELM = {3: "v3.22.0", 4: "v4.3.1"}
"""The version of each major one that is built where the machine has none."""
_ASK_SECONDS = 60
_PAUSE = Path(__file__).parent / "pause.go"


@dataclass(frozen=True)
class Programs:
    """Where the programs of a cluster are."""

    etcd: Path
    kubernetes: Path
    """The folder of the commands that Kubernetes itself consists of."""
    coredns: Path
    pause: Path
    """What a pod's sandbox, and the node, consist of at first."""


def find_programs(environment: Mapping[str, str], progress: Progress) -> Programs:
    """The programs of our cache; those it lacks are built, which takes some ten minutes the first time."""
    steps = len(_KUBERNETES) + 1
    for number, name in enumerate(_KUBERNETES, start=1):
        kubernetes_programs((name,), environment, _step(progress, number, steps))
    kubernetes = kubernetes_programs(_KUBERNETES, environment, progress)
    coredns = _installed(f"github.com/coredns/coredns@{_COREDNS}", environment, _step(progress, steps, steps))
    return Programs(find_etcd(), kubernetes, coredns, go_program(_PAUSE, environment, progress))


def find_kubectl(environment: Mapping[str, str], progress: Progress) -> Path:
    """The kubectl on PATH where it is as new as ours, else ours."""
    found = which("kubectl", path=environment.get("PATH"))
    if found and _version([found, "version", "--client"]) >= _numbers(version()):
        return Path(found)
    return kubernetes_programs(("kubectl",), environment, progress) / "kubectl"


def find_helm(environment: Mapping[str, str], progress: Progress, major: Literal[3, 4] = 3) -> Path:
    """The Helm on PATH where it is of this major version, else ours."""
    found = which("helm", path=environment.get("PATH"))
    if found and _version([found, "version"])[:1] == (major,):
        return Path(found)
    package = f"helm.sh/helm/v{major}"
    flag = f"-X {package}/internal/version.version={HELM[major]}"
    return _installed(f"{package}/cmd/helm@{HELM[major]}", environment, progress, flag)


def go_program(source: Path, environment: Mapping[str, str], progress: Progress) -> Path:
    """The static program of one Go file that needs nothing but the standard library, or of a folder with a
    module, whose go.sum says what else it needs."""
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
    folder = cache(environment) / source.stem / digest
    program = folder / source.stem
    with one_at_a_time(folder):
        if not program.exists():
            go = find_go(cache(environment), progress, environment.get("PATH"))
            options = ("-v", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w")
            place, what = (source, ".") if source.is_dir() else (source.parent, source.name)
            with filling(folder) as temporary:
                result = f"{temporary}/{source.stem}"
                run_go([go, "build", *options, "-o", result, what], place, environment, progress)
    return program


def _installed(package: str, environment: Mapping[str, str], progress: Progress, flag: str = "") -> Path:
    name, version = package.rpartition("/")[2].split("@")
    folder = cache(environment) / name / version
    with one_at_a_time(folder):
        if not (folder / name).exists():
            go = find_go(cache(environment), progress, environment.get("PATH"))
            progress(f"building {name} {version} from Go modules (some minutes, once) …")
            with filling(folder) as temporary:
                options = ("-v", "-trimpath", "-ldflags", f"-s -w {flag}")
                variables = {**environment, "GOBIN": str(temporary)}
                run_go([go, "install", *options, package], folder.parent, variables, progress)
    return folder / name


def _step(progress: Progress, number: int, steps: int) -> Progress:
    return lambda line: progress(f"[{number}/{steps}] {line}")


def _version(command: Sequence[str]) -> tuple[int, ...]:
    """The version that a program says it has, as far as it matters; nothing where it does not say."""
    said = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
    return _numbers(said.stdout)


def _numbers(text: str) -> tuple[int, ...]:
    found = re.search(r"v(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else ()
