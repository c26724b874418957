"""Installing Debian packages without starting the services they contain."""

import fcntl
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from outbox_cli.local.errors import LocalServiceError

_POLICY = Path("/usr/sbin/policy-rc.d")
_TURN = Path("/run/outbox-apt.lock")
_TIMEOUT_SECONDS = 900


def install(packages: Sequence[str]) -> None:
    """Install the packages; raise with apt-get's last lines where that fails."""
    with _one_at_a_time(), _services_stay_stopped():
        _apt_get("update")
        _apt_get("install", "--yes", "--no-install-recommends", *packages)


def _apt_get(*arguments: str) -> None:
    # Waits for another apt-get instead of failing at once: unattended upgrades run when machines boot.
    command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "-q", *arguments]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_TIMEOUT_SECONDS,
        check=False,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
    )
    if done.returncode:
        last_lines = "\n".join(done.stdout.splitlines()[-15:])
        raise LocalServiceError(
            f"{' '.join(command)} failed with status {done.returncode}; "
            f"run it by hand, or install the packages yourself:\n{last_lines}"
        )


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Two of us at once would meet in apt's lists, for whose lock it does not wait, and in the policy."""
    with _TURN.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


@contextmanager
def _services_stay_stopped() -> Iterator[None]:
    """Debian asks policy-rc.d before a package starts its service; 101 means no."""
    kept = _POLICY.with_name("policy-rc.d.before-outbox")
    if _POLICY.exists():
        _POLICY.rename(kept)
    try:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
        yield
    finally:
        _POLICY.unlink(missing_ok=True)
        if kept.exists():
            kept.rename(_POLICY)
