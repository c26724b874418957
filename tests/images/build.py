"""Building images and writing them to files, from the project's Dockerfile as it is."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.images import archive
from tests.images.archive import Archive
from tests.images.buildah import Buildah, check_machine
from tests.images.catalogue import IMAGES, Image
from tests.images.debian import debian_image
from tests.operator.control_plane.building import cache, one_at_a_time

_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Built:
    """Images that were built, and how to have containers of them."""

    buildah: Buildah
    """The store that has them."""
    base: str
    """The base image of the project's own."""
    archives: Mapping[str, Archive]
    """The images as files, by name."""

    def sizes(self) -> str:
        """A table of the images, for people."""
        below = self.buildah.configuration(self.base)["rootfs"]["diff_ids"]
        lines = [f"{'image':<24}{'size':>10}{'above base':>12}  file"]
        for name, found in self.archives.items():
            size, above = found.size / _MEGABYTE, found.size_above(below) / _MEGABYTE
            lines.append(f"{name:<24}{size:>7.1f} MB{above:>9.1f} MB  {found.path}")
        return "\n".join(lines)

    def size_above_base(self, image: Image) -> int:
        """What an image adds to the base, in bytes."""
        below = self.buildah.configuration(self.base)["rootfs"]["diff_ids"]
        return self.archives[image.name].size_above(below)


def build(
    progress: Callable[[str], None],
    images: Sequence[Image] = IMAGES,
    base: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Built:
    """Build images, with those that they are built from; `base` is pulled, and made from Debian's packages
    where none is named."""
    check_machine(progress)
    folder = cache(environment) / "images"
    with one_at_a_time(folder):
        folder.mkdir(exist_ok=True)
        buildah = Buildah(folder / "store", environment)
        below = base or debian_image(buildah, folder, progress)
        archives = {}
        for image in _with_their_bases(images):
            progress(f"building {image.name} …")
            buildah.build(image, below)
            if image in images:
                archives[image.name] = archive.write(buildah, image, folder)
    return Built(buildah, below, archives)


def already_built(base: str, environment: Mapping[str, str] = os.environ) -> Built:
    """The images that another process has just built, on this base."""
    folder = cache(environment) / "images"
    buildah = Buildah(folder / "store", environment)
    with one_at_a_time(folder):
        return Built(buildah, base, {image.name: archive.write(buildah, image, folder) for image in IMAGES})


def _with_their_bases(images: Sequence[Image]) -> list[Image]:
    """These, and those that an argument of theirs names."""
    named = {value for image in images for value in image.arguments.values()}
    ours = [image for image in IMAGES if image in images or image.reference in named]
    return [*ours, *(image for image in images if image not in ours)]
