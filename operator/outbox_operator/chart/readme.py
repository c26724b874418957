"""The table of values in the chart's README."""

import json
from collections.abc import Iterator
from typing import Any

from outbox_operator.chart.values import Group, Values

BEGIN = "<!-- values: made by `make chart` -->"
END = "<!-- /values -->"


class MarkerError(Exception):
    """The README has no place for the table."""


def with_table(readme: str) -> str:
    """The README with the table between its markers as it should be."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise MarkerError(f"the chart's README.md needs the lines {BEGIN} and {END}; put them back")
    return f"{before}{BEGIN}\n{table()}{END}{after}"


def table() -> str:
    """A row for each value."""
    rows = [f"| `{name}` | {_code(default)} | {meaning} |" for name, default, meaning in _rows(Values(), "")]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows]) + "\n"


def _rows(group: Group, prefix: str) -> Iterator[tuple[str, Any, str]]:
    for name, field in type(group).model_fields.items():
        value, path = getattr(group, name), f"{prefix}{field.alias}"
        if isinstance(value, Group):
            yield from _rows(value, f"{path}.")
        else:
            yield path, value, " ".join((field.description or "").split())


def _code(default: Any) -> str:
    return f"`{json.dumps(default)}`" if default != "" else ""
