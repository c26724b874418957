"""The part of a RabbitMQ installation that a private broker needs.

Erlang looks for each of some thousand modules in one folder after the other, and RabbitMQ comes with 70 of
them. With the 26 that the broker and its management plugin need, it boots in about half the time.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

WANTED = ("rabbit", "rabbitmq_prelaunch", "rabbitmq_management")


def slim(sbin: Path, target: Path) -> Path | None:
    """Make an installation of links at `target` with the needed plugins, and return its `sbin`.

    None where this installation keeps its plugins in another way; it then has to be used as it is.
    """
    folders = {_name(folder): folder for folder in (sbin.parent / "plugins").glob("*/")}
    needed = closure(WANTED, {name: _applications(folder) for name, folder in folders.items()})
    if not needed.issuperset(WANTED):
        return None
    (target / "plugins").mkdir(parents=True, mode=0o755)
    for name in needed:
        (target / "plugins" / folders[name].name).symlink_to(folders[name])
    (target / "sbin").symlink_to(sbin)
    return target / "sbin"


def closure(wanted: Iterable[str], applications: Mapping[str, Iterable[str]]) -> set[str]:
    """The wanted plugins and all that they build on, as far as they are plugins and not part of Erlang."""
    needed: set[str] = set()
    waiting = [name for name in wanted if name in applications]
    while waiting:
        name = waiting.pop()
        needed.add(name)
        waiting += [other for other in applications[name] if other in applications and other not in needed]
    return needed


def _name(folder: Path) -> str:
    return folder.name.rpartition("-")[0] or folder.name


def _applications(folder: Path) -> list[str]:
    """What an Erlang application says it builds on, in its resource file; see app(4)."""
    try:
        resource = (folder / "ebin" / f"{_name(folder)}.app").read_text(errors="replace")
    except OSError:
        return []
    listed = re.search(r"\{applications,\s*\[(.*?)\]", resource, re.DOTALL)
    return re.findall(r"\w+", listed[1]) if listed else []
