"""From a pydantic model to a structural schema, the part of OpenAPI 3 that a CustomResourceDefinition takes.

There are no references in it and no null: a field that may be None is one that may be left out.
"""

from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from outbox_operator.resources.part import Part
from outbox_operator.resources.spans import spell

_VALIDATIONS = "x-kubernetes-validations"


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The structural schema of a model."""
    schema = model.model_json_schema(schema_generator=_Structural)
    found: dict[str, Any] = _inlined(schema, schema.pop("$defs", {}))
    return found


class _Structural(GenerateJsonSchema):
    """JSON schema as pydantic makes it, but for what Kubernetes spells otherwise."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        match schema.get("default"):
            case None | () | {}:
                return inner
            case Part() as part if not part.manifest():
                return inner
            case default:
                return {**inner, "default": self.encode_default(default)}

    def encode_default(self, dft: Any) -> Any:
        match dft:
            case Part():
                # Written out: the API server checks the rules on a default as it is here.
                return dft.manifest()
            case timedelta():
                return spell(dft)
            case tuple():
                return [self.encode_default(item) for item in dft]
            case _:
                return super().encode_default(dft)

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema with each reference replaced by what it refers to."""
    match schema:
        case {"$ref": str(reference)}:
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            return _inlined(_over(definitions[reference.rpartition("/")[2]], beside), definitions)
        case dict():
            found = {key: _inlined(value, definitions) for key, value in schema.items()}
            # Only the title of a schema is a text: one of a property called so is a schema itself.
            if isinstance(found.get("title"), str):
                del found["title"]
            if isinstance(text := found.get("description"), str):
                found["description"] = " ".join(text.split())
            return found
        case list():
            return [_inlined(item, definitions) for item in schema]
        case _:
            return schema


def _over(definition: dict[str, Any], beside: dict[str, Any]) -> dict[str, Any]:
    """A definition with what stands beside the reference to it; the rules of both hold."""
    both = {**definition, **beside}
    if rules := [*definition.get(_VALIDATIONS, []), *beside.get(_VALIDATIONS, [])]:
        both[_VALIDATIONS] = rules
    return both
