"""Images as files that a cluster's node loads: the format of `docker save`."""

import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.images.buildah import Buildah
from tests.images.catalogue import Image


@dataclass(frozen=True)
class Archive:
    """An image in a file."""

    image: Image
    """What it is."""
    path: Path
    """The file."""
    layers: Sequence[tuple[str, int]]
    """The content hash and size in bytes of each layer, from the base up."""

    @property
    def size(self) -> int:
        """What a node has to store, in bytes."""
        return sum(size for _, size in self.layers)

    def size_above(self, base: Sequence[str]) -> int:
        """What it adds to the layers of its base, in bytes."""
        return sum(size for content, size in self.layers if content not in base)


def write(buildah: Buildah, image: Image, folder: Path) -> Archive:
    """Write an image that was built, unless the file has it already."""
    path = folder / f"{image.name.replace(':', '-')}.tar"
    note = path.with_suffix(".id")
    built = buildah.image_id(image.reference)
    if not (path.exists() and note.exists() and note.read_text() == built):
        note.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        buildah.run("push", "--quiet", image.reference, f"docker-archive:{path}:{image.reference}")
        note.write_text(built or "")
    return Archive(image, path, _layers(path))


def _layers(path: Path) -> list[tuple[str, int]]:
    with tarfile.open(path) as archive:

        def document(name: str) -> Any:
            member = archive.extractfile(name)
            assert member is not None, f"{path} has no file {name}"
            return json.load(member)

        [manifest] = document("manifest.json")
        contents = document(manifest["Config"])["rootfs"]["diff_ids"]
        sizes = [_followed(archive, name).size for name in manifest["Layers"]]
    return list(zip(contents, sizes, strict=True))


def _followed(archive: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    """A layer that occurs twice is a link the second time."""
    member = archive.getmember(name)
    return _followed(archive, str(Path(name).parent / member.linkname)) if member.issym() else member
