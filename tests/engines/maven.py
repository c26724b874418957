"""Postgres from Maven Central: an artifact with an archive of programs that run from any folder."""

import io
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from shutil import which

from tests.engines.catalogue import Maven
from tests.engines.debian import EngineError

_TIMEOUT_SECONDS = 600
_LAST_LINES = 20


def unpack(source: Maven, work: Path, root: Path, progress: Callable[[str], None]) -> None:
    """Put the programs of an artifact into `root`; `work` is a folder for what is downloaded."""
    if which("mvn") is None:
        raise EngineError(f"{source.artifact} is fetched by Maven (Debian, as root: apt-get install maven)")
    progress(f"fetching {source.artifact.partition(':')[2]} with Maven (some seconds, once) …")
    command = ["mvn", "--batch-mode", "dependency:copy", f"-Dartifact={source.artifact}"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={work}"],
        # Outside of any project.
        cwd=work,
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
        raise EngineError(f"Maven could not fetch {source.artifact}:\n{last_lines}")
    [jar] = work.glob("*.jar")
    with zipfile.ZipFile(jar) as outer:
        [name] = [name for name in outer.namelist() if name.endswith(".txz")]
        packed = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=packed) as inner:
        inner.extractall(root, filter="tar")
