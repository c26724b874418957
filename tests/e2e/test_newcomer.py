"""The README's first command, on a clean machine where whoever types it is not root."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.images.build import Built, build
from tests.images.catalogue import NEWCOMER, REPOSITORY
from tests.images.container import container

_HOME = "/home/newcomer"
_USER = 1000
_SECONDS = 600
_NETWORK = ("/etc/resolv.conf", "/etc/hosts")
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """The files of this repository, and no other, as the newcomer's own."""
    folder = tmp_path / "outbox"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, _USER, _USER)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def machine() -> Built:
    return build(print, [NEWCOMER])


def index() -> Mapping[str, str]:
    """Where pip finds packages, as this machine does."""
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_INDEX")}


def test_make_demo_works_on_a_clean_machine_for_somebody_who_is_not_root(
    machine: Built, checkout: Path
) -> None:
    shared = {path: Path(path) for path in (*_NETWORK, _CERTIFICATES) if Path(path).exists()}
    environment = {**index(), "PIP_CERT": _CERTIFICATES}
    with container(
        machine.buildah,
        NEWCOMER,
        command=["make", "demo"],
        environment=environment,
        data=_HOME,
        mounts={**shared, f"{_HOME}/outbox": checkout},
    ) as started:
        ended = started.ended(_SECONDS)
    assert ended.status == 0, ended.output + ended.errors
    assert "40 orders begun: 20 placed, 20 rolled back" in ended.output
    assert "It adds up" in ended.output
