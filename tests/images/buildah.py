"""Buildah with a store of its own below the user's cache, so that nobody else's images are touched."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import which
from typing import Any

from outbox_cli.local import apt
from tests.images.catalogue import Image

_PACKAGES = {"buildah": "buildah", "debootstrap": "debootstrap", "runc": "runc"}
"""The programs, and the Debian package that each is in."""
# What is mounted must not outlive the machine's boot, of which a cache knows nothing.
_RUN_ROOT = Path("/run/outbox-operator-images")
_INDEX_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")
_CERTIFICATES_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
_BUILD_SECONDS = 1800
_LAST_LINES = 30


class ImageError(Exception):
    """An image could not be built or written."""


def check_machine(progress: Callable[[str], None]) -> None:
    """Install what is missing here to build images, or say what cannot be had."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise ImageError("images are built with buildah, as root on Linux: run this there, with sudo")
    missing = sorted({package for program, package in _PACKAGES.items() if not which(program)})
    if not missing:
        return
    if not which("apt-get"):
        raise ImageError(f"images are built with {', '.join(missing)}, which is not here; install it")
    progress(f"installing {', '.join(missing)} with apt-get (about a minute) …")
    apt.install(missing)


class Buildah:
    """The program, with its store in a folder."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._options = (f"--root={folder}", f"--runroot={_RUN_ROOT}")
        self._environment = environment

    def build(self, image: Image, base: str) -> None:
        """Build an image; steps whose inputs are the same as before are taken from the store."""
        arguments = {name: value.format(base=base) for name, value in image.arguments.items()}
        target = [f"--target={image.target}"] if image.target else []
        options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        self.run(
            "build",
            "--layers",
            "--force-rm",
            # Ours are in the store; another base is pulled there once.
            "--pull-always=false",
            "--network=host",
            *target,
            *options,
            *self._index(),
            f"--tag={image.reference}",
            str(image.context),
        )

    def _index(self) -> list[str]:
        """Where pip finds packages, as this machine does: its index, and the CA that signed for that."""
        options = [
            f"--build-arg={name}={value}"
            for name in _INDEX_VARIABLES
            if (value := self._environment.get(name))
        ]
        given = (self._environment.get(name) for name in _CERTIFICATES_VARIABLES)
        if certificates := next(filter(None, given), None):
            options += [f"--build-arg=PIP_CERT={certificates}", f"--volume={certificates}:{certificates}:ro"]
        return options

    def image_id(self, reference: str) -> str | None:
        """Which image has this name in the store; None where none has."""
        found = self.run("images", "--quiet", "--no-trunc", "--filter", f"reference={reference}")
        return found.strip() or None

    def configuration(self, reference: str) -> dict[str, Any]:
        """What the image says of itself, as the OCI's format has it."""
        inspected = json.loads(self.run("inspect", "--type=image", reference))
        configuration: dict[str, Any] = inspected["OCIv1"]
        return configuration

    def run(self, *arguments: str) -> str:
        """Run a command and give what it printed; raise with its last lines where it fails."""
        command = ["buildah", *self._options, *arguments]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_BUILD_SECONDS,
            check=False,
        )
        if done.returncode:
            last_lines = "\n".join((done.stdout + done.stderr).splitlines()[-_LAST_LINES:])
            raise ImageError(f"buildah {arguments[0]} failed with status {done.returncode}:\n{last_lines}")
        return done.stdout
