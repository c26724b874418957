"""`values.schema.json`: what Helm checks values against, so that a typo is an error and not a default."""

import json
from typing import Any

from outbox_operator.chart.values import Values

_PASSED_ON = {"global": {"type": "object"}, "enabled": {"type": "boolean"}}
"""What comes from a chart that depends on this one, and means nothing here."""


def text() -> str:
    """The file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def schema() -> dict[str, Any]:
    """The schema. Everything may be left out: Helm has put the defaults in before it asks."""
    found = Values.model_json_schema()
    plain = _plain(found, found.pop("$defs"))
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **plain,
        "properties": {**plain["properties"], **_PASSED_ON},
    }


def _plain(schema: Any, definitions: dict[str, Any]) -> Any:
    """Without references, beside which a description would not count, and without titles."""
    match schema:
        case {"$ref": str(reference)}:
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            return _plain({**definitions[reference.rpartition("/")[2]], **beside}, definitions)
        case {"properties": properties}:
            # The values called `title`, if there ever are, are not titles.
            inner = {name: _plain(each, definitions) for name, each in properties.items()}
            rest = {key: value for key, value in schema.items() if key not in ("properties", "default")}
            return {**_plain(rest, definitions), "properties": inner}
        case dict():
            found = {key: _plain(value, definitions) for key, value in schema.items() if key != "title"}
            if "description" in found:
                found["description"] = " ".join(found["description"].split())
            return found
        case _:
            return schema
