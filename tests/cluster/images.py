"""Images as files (the format of `docker save`), and the images that a node has."""

import hashlib
import io
import json
import platform
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

from outbox_cli.local.errors import LocalServiceError
from tests.cluster.configuration import CONTAINERD
from tests.cluster.machine import Namespaces

_CTR = ("ctr", f"--address={CONTAINERD}", "--namespace=k8s.io", "images")
_NOTICED = 'labels."io.cri-containerd.image"==managed'
_NOTICE_SECONDS = 30
_POLL_SECONDS = 0.1
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def scratch_image(name: str, program: Path, archive: Path, arguments: Sequence[str] = ()) -> Path:
    """Write an image that holds one static program, which a container of it runs."""
    layer = _tar({program.name: program.read_bytes()}, mode=0o755)
    machine = platform.machine()
    config = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "Cmd": list(arguments), "User": "65532:65532"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {"config.json": config, "manifest.json": manifest}
    archive.write_bytes(
        _tar({"layer.tar": layer, **{path: json.dumps(file).encode() for path, file in files.items()}})
    )
    return archive


def load(node: Namespaces, archive: Path) -> None:
    """Give the images of an archive to a node, and wait until it knows that it has them."""
    try:
        with archive.open("rb") as file:
            node.run(*_CTR, "import", "-", text=file)
    except FileNotFoundError:
        raise LocalServiceError(f"{archive}: there is no such image archive") from None
    deadline = time.monotonic() + _NOTICE_SECONDS
    while unnoticed := _names(node) - _names(node, _NOTICED):
        if time.monotonic() > deadline:
            raise LocalServiceError(f"containerd has {', '.join(sorted(unnoticed))}, and pods still have not")
        time.sleep(_POLL_SECONDS)


def _names(node: Namespaces, *filters: str) -> set[str]:
    return set(node.run(*_CTR, "list", "--quiet", *filters).split())


def _tar(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()
