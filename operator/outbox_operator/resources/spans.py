"""Durations as fields: a text in the manifest, a `timedelta` in Python, bounds in both."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from outbox_operator import durations

FOREVER: Literal["Forever"] = "Forever"
"""Instead of a duration, where a field says how long something is kept."""

Kept: TypeAlias = timedelta | Literal["Forever"]


@dataclass(frozen=True, slots=True)
class Span:
    """Annotates a `timedelta`, or a `Kept`, with what it may be."""

    least: str
    """The shortest duration, as in a manifest."""
    most: str
    """The longest."""
    or_forever: bool = False
    """Whether it may also be `Forever`."""

    @property
    def message(self) -> str:
        """What a person reads where it is something else."""
        forever = f", or {FOREVER}" if self.or_forever else ""
        return (
            f"must be a duration from {self.least} to {self.most}{forever}; "
            "write whole numbers with h, m, s or ms, such as 300ms, 10s or 1h30m"
        )

    @property
    def cel(self) -> str:
        """The bounds to the API server."""
        fits = (
            f"self.matches('{durations.PATTERN}') && "
            f"duration(self) >= duration('{self.least}') && duration(self) <= duration('{self.most}')"
        )
        return f"self == '{FOREVER}' || ({fits})" if self.or_forever else fits

    def parse(self, value: object) -> Kept:
        """The value that `value`, a text or already a value, means; a ValueError where it must not be."""
        if self.or_forever and value == FOREVER:
            return FOREVER
        found = self._duration(value)
        if found is None or not durations.parse(self.least) <= found <= durations.parse(self.most):
            raise ValueError(self.message)
        return found

    @staticmethod
    def _duration(value: object) -> timedelta | None:
        match value:
            case timedelta():
                return value
            case str():
                try:
                    return durations.parse(value)
                except ValueError:
                    return None
            case _:
                return None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.plain_serializer_function_ser_schema(spell, when_used="json")
        return core_schema.no_info_plain_validator_function(self.parse, serialization=text)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "type": "string",
            "maxLength": durations.LONGEST_TEXT,
            "x-kubernetes-validations": [{"rule": self.cel, "message": self.message}],
        }


def spell(value: Kept) -> str:
    """As it is in a manifest."""
    return durations.format(value) if isinstance(value, timedelta) else value
