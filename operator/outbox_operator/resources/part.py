"""What all parts of a resource have in common."""

from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from outbox_operator.resources.rules import Rule, with_rules


class Part(BaseModel):
    """A value in a manifest. Fields are camelCase there, and unknown ones belong to a newer version."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    """What must hold between its fields."""

    @model_validator(mode="after")
    def _check_rules(self) -> "Part":
        for rule in self.rules:
            rule.check(self)
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.rules:
            schema["x-kubernetes-validations"] = with_rules(schema, cls.rules)
        return schema

    @model_serializer(mode="wrap")
    def _without_what_was_left_out(
        self, write: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        """Leave away what is empty by default; an empty list instead of a default one is an answer."""
        written: dict[str, Any] = write(self)
        for name, field in type(self).model_fields.items():
            key = field.alias if info.by_alias and field.alias else name
            if written.get(key) in (None, {}, [], ()) and getattr(self, name) == field.get_default(
                call_default_factory=True
            ):
                written.pop(key, None)
        return written

    def manifest(self) -> dict[str, Any]:
        """As it is written in a manifest, with the defaults that the API server fills in."""
        return self.model_dump(mode="json", by_alias=True)
