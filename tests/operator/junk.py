"""What a hostile API server might answer instead of what it was asked for."""

import json
from copy import deepcopy
from typing import Any

ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "²",
    "\0\ud800",
    "9999-99-99T99:99:99Z",
    [],
    [None, 7, "x", [], {}],
    {},
    {"": None, "name": 7},
)
"""Values that no field of an object has."""

BODIES = (
    b"",
    b"\xff\xfe\0",
    b"null",
    b"7",
    b'"x"',
    b"[]",
    b"{}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"9" * 10_000,
    b"<html>Please log in</html>",
    b'{"metadata": null}',
    b'{"metadata": {}}',
    b'{"metadata": {"name": 7, "namespace": []}}',
    b'{"items": 7, "metadata": 7}',
    b'{"items": {"a": 1}, "groups": {"a": 1}, "metadata": {}}',
    b'{"items": [null, 7, {}, {"metadata": 7}, {"metadata": {}}], "groups": [null, {}], "metadata": {}}',
)
"""Answers that are no object, or none that has a name."""

EVENTS = (
    *BODIES,
    b'{"type": "NEWS", "object": {"metadata": {"name": "a", "namespace": "b"}}}',
    b'{"type": 7, "object": {}}',
    b'{"type": "ADDED"}',
    b'{"type": "ADDED", "object": null}',
    b'{"type": "MODIFIED", "object": []}',
    b'{"type": "DELETED", "object": {"metadata": null}}',
    b'{"type": "ERROR", "object": 7}',
    b'{"type": "ERROR", "object": {"code": {}}}',
    b'{"type": "BOOKMARK", "object": 7}',
)
"""Lines of a watch that are no event."""


def paths(value: object, before: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The ways to all that is in an object."""
    match value:
        case dict():
            below = [*value.items()]
        case list():
            below = [*enumerate(value)]
        case _:
            below = []
    return [found for key, each in below for found in ((*before, key), *paths(each, (*before, key)))]


def with_odd(manifest: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """A copy that has a value in one place."""
    copy: Any = deepcopy(manifest)
    there = copy
    for step in path[:-1]:
        there = there[step]
    there[path[-1]] = value
    return json.loads(json.dumps(copy))  # type: ignore[no-any-return]
