"""Whether an object is as it was applied, in spite of what the API server makes of it.

The server fills in defaults, leaves out what is empty, spells quantities its own way, and keeps what others
added. What was removed cannot be seen like this: that is what `outbox.dev/inputs` is for.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from outbox_operator.children import quantities

_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "protocol"),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "ownerReferences": ("uid",),
}
"""Lists to which others may add items of their own, with what tells the items apart. Others are one value."""
_AMOUNTS = ("requests", "limits")
_AMOUNT = ("sizeLimit", "divisor")


def is_so(wanted: Any, live: Any, field: str = "", within: str = "") -> bool:
    """Whether everything in `wanted`, the value of a field within another, is so in `live`."""
    if live is None:
        return _is_empty(wanted)
    match wanted:
        case Mapping():
            return isinstance(live, Mapping) and all(
                is_so(value, live.get(key), key, field) for key, value in wanted.items()
            )
        case list() | tuple():
            return isinstance(live, list | tuple) and _are_so(wanted, live, field)
        case str() | int() | float() if field in _AMOUNT or within in _AMOUNTS:
            return isinstance(live, str | int | float) and quantities.equal(wanted, live)
        case None:
            return True
        case _:
            return bool(wanted == live)


def _are_so(wanted: Sequence[Any], live: Sequence[Any], field: str) -> bool:
    keys = _KEYS.get(field)
    if keys and all(isinstance(item, Mapping) and item.keys() >= set(keys) for item in (*wanted, *live)):
        by_key = {tuple(item[key] for key in keys): item for item in live}
        return all(is_so(item, by_key.get(tuple(item[key] for key in keys))) for item in wanted)
    return len(wanted) == len(live) and all(map(is_so, wanted, live))


def _is_empty(value: Any) -> bool:
    """Whether the server would leave it out: a False, a 0 or an empty text is, where it is no default."""
    if isinstance(value, Mapping):
        return all(map(_is_empty, value.values()))
    return not value
