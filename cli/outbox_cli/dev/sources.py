"""The files of a project: where its manifests and its code are, and which of them have changed."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from outbox_cli.failures import CommandError

_MANIFESTS = (".yaml", ".yml", ".json")
_CODE = (".py",)
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})

State: TypeAlias = Mapping[Path, tuple[int, int]]
"""When each file was last written, and its size."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where to look."""

    manifests: tuple[Path, ...]
    """Files, and folders with everything below them."""
    code: tuple[Path, ...]
    """Folders from which listeners are imported, in this order."""

    @classmethod
    def of(cls, given: Sequence[Path], code: Sequence[Path]) -> "Sources":
        """From what a person names: code is looked for where the manifests are, too."""
        for path in (*given, *code):
            if not path.exists():
                raise CommandError(f"{path} does not exist; name a folder or a file that does")
        folders = [path if path.is_dir() else path.parent for path in given]
        return cls(
            tuple(path.resolve() for path in given),
            tuple(dict.fromkeys(path.resolve() for path in (*code, *folders))),
        )

    def texts(self) -> dict[Path, str]:
        """All files that may be manifests, with what they say."""
        found = {}
        for path in _below(self.manifests, _MANIFESTS):
            try:
                found[path] = path.read_text()
            except FileNotFoundError:
                # It went between the listing and the look.
                continue
            except (OSError, UnicodeDecodeError) as error:
                raise CommandError(f"{path} cannot be read: {error}; correct it or move it away") from None
        return found

    def state(self) -> State:
        """All files that matter, as they are now."""
        found = {}
        for path in (*_below(self.manifests, _MANIFESTS), *_below(self.code, _CODE)):
            try:
                stat = path.stat()
            except OSError:
                continue
            found[path] = stat.st_mtime_ns, stat.st_size
        return found


@dataclass(frozen=True, slots=True)
class Change:
    """What was edited."""

    manifests: bool = False
    """Whether a file was that may be a manifest."""
    code: bool = False
    """Whether a Python file was."""


class Watch:
    """Tells of edits once they are complete: when two looks in a row find the same."""

    def __init__(self, state: State) -> None:
        self._taken = self._seen = state

    def look(self, state: State) -> Change:
        """What has been edited since it was last told."""
        is_quiet, self._seen = state == self._seen, state
        if not is_quiet or state == self._taken:
            return Change()
        paths = {path for path, _ in set(self._taken.items()) ^ set(state.items())}
        self._taken = state
        return Change(
            any(path.suffix in _MANIFESTS for path in paths), any(path.suffix in _CODE for path in paths)
        )


def _below(places: Sequence[Path], suffixes: tuple[str, ...]) -> Iterator[Path]:
    for place in places:
        if place.is_file():
            if place.suffix in suffixes:
                yield place
            continue
        for folder, folders, files in os.walk(place):
            folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and name[0] != ".")
            yield from (Path(folder, name) for name in sorted(files) if name.endswith(suffixes))
