"""The account that the servers run under."""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_UNPRIVILEGED = ("postgres", "nobody")


@dataclass(frozen=True)
class Account:
    """An unprivileged account for servers started by root.

    Postgres refuses to run as root, and RabbitMQ has no need to: one rule serves both.
    """

    uid: int
    gid: int

    def owns(self, folder: Path) -> None:
        """Hand the folder over."""
        os.chown(folder, self.uid, self.gid)

    def popen_arguments(self) -> dict[str, Any]:
        """What makes `subprocess` start a program under this account, without root's other groups."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def for_servers() -> Account | None:
    """The account to switch to, or None to stay who we are, because we are not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = next(known[name] for name in _UNPRIVILEGED if name in known)
    return Account(entry.pw_uid, entry.pw_gid)
