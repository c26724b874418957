"""`values.yaml`: the defaults, with what each means above it."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from outbox_operator.chart.values import Group, Values

_INDENT = "  "
_WIDTH = 110


def text() -> str:
    """The file without its heading."""
    return "\n".join(_lines(Values(), "")).lstrip("\n") + "\n"


def _lines(group: Group, indent: str) -> Iterator[str]:
    for name, field in type(group).model_fields.items():
        value = getattr(group, name)
        if not indent:
            yield ""
        yield from _comment(field.description or "", indent)
        key = f"{indent}{field.alias}:"
        if isinstance(value, Group):
            yield key
            yield from _lines(value, indent + _INDENT)
        elif isinstance(value, dict) and value:
            yield key
            yield from _mapping(value, indent + _INDENT)
        else:
            yield f"{key} {json.dumps(value)}"


def _mapping(value: dict[str, Any], indent: str) -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, dict) and item:
            yield f"{indent}{key}:"
            yield from _mapping(item, indent + _INDENT)
        else:
            yield f"{indent}{key}: {json.dumps(item)}"


def _comment(description: str, indent: str) -> list[str]:
    return textwrap.wrap(
        " ".join(description.split()),
        _WIDTH,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}# ",
        break_on_hyphens=False,
    )
