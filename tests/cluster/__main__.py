"""A Kubernetes cluster for a person or a script: python -m tests.cluster up|down|load|kubeconfig."""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which

from outbox_cli.local import docker
from outbox_cli.local.errors import LocalServiceError
from outbox_cli.local.services import to_stderr
from tests.cluster import kept, kind
from tests.cluster.choice import Given, Kind, Local, choose
from tests.cluster.cluster import Cluster
from tests.cluster.programs import find_helm, find_kubectl
from tests.operator.control_plane.building import ProgramError
from tests.operator.control_plane.go import GoError

_SAVE_SECONDS = 600


def main() -> int:
    arguments = _arguments()
    try:
        match arguments.command:
            case kept.KEEP:
                kept.keep(to_stderr)
            case "up":
                _up(arguments.cluster)
            case "down":
                _down()
            case "load":
                _load(_running(), arguments.image)
            case "kubeconfig":
                print(_running().kubeconfig)  # noqa: T201 - what was asked for
    except (LocalServiceError, ProgramError, GoError) as error:
        to_stderr(str(error))
        return 1
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="up|down|load|kubeconfig")
    up = commands.add_parser("up", help="start a cluster that stays until `down`")
    up.add_argument("--cluster", default="auto", metavar="auto|local|kind", help="where (default: auto)")
    commands.add_parser("down", help="end it, and clean up after runs that were killed")
    load = commands.add_parser("load", help="give it an image")
    load.add_argument("image", help="an archive of `docker save`, or a name that buildah or Docker knows")
    commands.add_parser("kubeconfig", help="print the path of its kubeconfig")
    commands.add_parser(kept.KEEP)
    return parser.parse_args()


def _up(asked: str) -> None:
    started: Cluster
    match choose(asked, kind.works):
        case Given(path):
            raise LocalServiceError(f"--cluster={path}: a cluster that has a kubeconfig is up already")
        case Kind():
            started = kind.create(to_stderr)
        case Local():
            started = kept.up(to_stderr)
    tools = [find_kubectl(os.environ, to_stderr), find_helm(os.environ, to_stderr)]
    folders = os.pathsep.join(dict.fromkeys(str(tool.parent) for tool in tools))
    print(f"export KUBECONFIG={shlex.quote(str(started.kubeconfig))}")  # noqa: T201 - for eval
    print(f"export PATH={shlex.quote(folders)}:$PATH")  # noqa: T201


def _down() -> None:
    was_kept = kept.down(to_stderr)
    in_docker = kind.find()
    if in_docker:
        in_docker.down()
    to_stderr("the cluster is down" if was_kept or in_docker else "no cluster was up")


def _running() -> Cluster:
    if found := kept.find() or kind.find():
        return found
    raise LocalServiceError("no cluster is up; start one: python -m tests.cluster up")


def _load(target: Cluster, image: str) -> None:
    if Path(image).is_file():
        target.load(Path(image))
        return
    with tempfile.TemporaryDirectory(prefix="outbox-image-") as folder:
        archive = Path(folder) / "image.tar"
        command = _save(image, archive)
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SAVE_SECONDS, check=False)
        if done.returncode:
            raise LocalServiceError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")
        target.load(archive)


def _save(image: str, archive: Path) -> list[str]:
    if which("buildah"):
        name = image if ":" in image.rpartition("/")[2] else f"{image}:latest"
        return ["buildah", "push", "--quiet", name, f"docker-archive:{archive}:{name}"]
    if docker.answers():
        return ["docker", "save", f"--output={archive}", image]
    raise LocalServiceError(f"{image} is no file, and there is neither buildah nor Docker to have it from")


if __name__ == "__main__":
    sys.exit(main())
