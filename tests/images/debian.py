"""A base image without a registry: Debian with Python, from its packages."""

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

from tests.images.buildah import Buildah, ImageError
from tests.images.catalogue import REPOSITORY

SUITE = "trixie"
"""The Debian, and with it the Python, of the official image that the Dockerfile has as its default."""
_INCLUDED = "python3,python3-venv,ca-certificates"
_DOCKERFILE = REPOSITORY / "tests" / "e2e" / "images" / "debian" / "Dockerfile"
# What slim images are without, too.
_UNWANTED = (
    "var/cache/apt/archives/*.deb",
    "var/cache/apt/*.bin",
    "var/lib/apt/lists/*",
    "usr/share/doc/*",
    "usr/share/man/*",
    "usr/share/locale/*",
)
_TIMEOUT_SECONDS = 1800
_LAST_LINES = 20


def debian_image(buildah: Buildah, workplace: Path, progress: Callable[[str], None]) -> str:
    """The name of the base image, which is made where the store has none."""
    reference = f"localhost/outbox-test-base:{SUITE}"
    if not buildah.image_id(reference):
        progress(f"making a Debian {SUITE} with debootstrap (some minutes, once) …")
        with tempfile.TemporaryDirectory(dir=workplace, prefix="debian-") as folder:
            root = Path(folder) / "root"
            _bootstrap(root)
            buildah.run("build", f"--file={_DOCKERFILE}", f"--tag={reference}", str(root))
    return reference


def _bootstrap(root: Path) -> None:
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={_INCLUDED}", SUITE, str(root)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode:
        last_lines = "\n".join(done.stdout.splitlines()[-_LAST_LINES:])
        raise ImageError(
            f"debootstrap {SUITE} failed; can Debian's packages be downloaded here? "
            f"Otherwise name a base image with --base:\n{last_lines}"
        )
    for pattern in _UNWANTED:
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                rmtree(path)
            else:
                path.unlink()
