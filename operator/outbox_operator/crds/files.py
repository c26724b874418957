"""The definitions as files: their text, and which of a folder's are stale."""

from pathlib import Path
from typing import Any

import yaml

from outbox_operator.crds.definition import DEFINITIONS, Definition

COMMAND = "python -m outbox_operator.crds"
_HEADING = f"# Made by `{COMMAND}` from operator/outbox_operator/resources; change it there.\n"


def texts() -> dict[str, str]:
    """The text of each file, by its name."""
    return {f"{definition.plural}.yaml": _text(definition) for definition in DEFINITIONS}


def stale(folder: Path) -> list[Path]:
    """The files in `folder` that are missing or differ from the types, and those that nothing stands for."""
    wanted = texts()
    differing = [folder / name for name, text in wanted.items() if _read(folder / name) != text]
    left_over = [path for path in sorted(folder.glob("*.yaml")) if path.name not in wanted]
    return [*differing, *left_over]


def write(folder: Path) -> list[Path]:
    """Write all files, and give those that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = stale(folder)
    wanted = texts()
    for path in changed:
        if path.name in wanted:
            path.write_text(wanted[path.name], encoding="utf-8")
        else:
            path.unlink()
    return changed


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _text(definition: Definition) -> str:
    return _HEADING + yaml.dump(
        definition.manifest(), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True
    )


class _Dumper(yaml.SafeDumper):
    """Without anchors, which some tools that read a CRD do not know."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True
