"""Rules that a manifest must keep, each said once: for the API server in CEL, for Python as a function."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that must hold of a field (as an annotation of its type) or of a part (in its `rules`)."""

    cel: str
    """The rule to the API server; `self` is the value, `oldSelf` the one before an update."""
    message: str
    """What a person reads where it does not hold: what is wrong, and what to write instead."""
    holds: Callable[[Any], bool] | None = None
    """The rule to Python; None for one about a change."""
    allows: Callable[[Any, Any], bool] | None = None
    """A rule about a change to Python: whether the value may become that one. None for any other."""

    def check(self, value: Any) -> None:
        """Raise a ValueError unless the rule holds."""
        if self.holds is not None and not self.holds(value):
            raise ValueError(self.message)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def checked(value: Any) -> Any:
            self.check(value)
            return value

        return core_schema.no_info_after_validator_function(checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        found = handler(schema)
        found["x-kubernetes-validations"] = with_rules(found, (self,))
        return found


def bytes_at_most(most: int) -> Rule:
    """For a text that others measure in bytes: the `maxLength` of a schema counts characters."""
    return Rule(
        f"size(bytes(self)) <= {most}",
        f"must have at most {most} bytes of UTF-8; shorten it",
        lambda text: len(text.encode()) <= most,
    )


@dataclass(frozen=True, slots=True)
class ListType:
    """Annotates a list with how the API server merges what several writers apply to it."""

    kind: Literal["atomic", "set", "map"]
    """As one value, as a set of values, or by the keys of its items."""
    keys: tuple[str, ...] = ()
    """The keys that tell the items of a map apart."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        found = handler(schema)
        found["x-kubernetes-list-type"] = self.kind
        if self.keys:
            found["x-kubernetes-list-map-keys"] = list(self.keys)
        return found


def with_rules(schema: JsonSchemaValue, rules: Sequence[Rule]) -> list[dict[str, str]]:
    """The validations of a schema, with those of `rules` behind what it has."""
    added = [{"rule": rule.cel, "message": rule.message} for rule in rules]
    return [*schema.get("x-kubernetes-validations", []), *added]
