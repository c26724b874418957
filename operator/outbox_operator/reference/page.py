"""The page of the reference."""

from collections.abc import Iterator

from outbox_operator.crds import DEFINITIONS, Definition
from outbox_operator.reference.fields import Object, objects
from outbox_operator.resources import API_GROUP, API_VERSION

COMMAND = "python -m outbox_operator.reference"

_HEADING = f"""\
<!-- Made by `{COMMAND}` from operator/outbox_operator/resources; change it there. -->

# The resources

Two custom resources of `{API_GROUP}/{API_VERSION}`, field by field. `kubectl explain` says the same.

A duration is a text of whole numbers with `h`, `m`, `s` or `ms`, such as `300ms`, `10s` or `1h30m`. The API
server itself refuses a manifest with a mistake, in the words of this page: there is no webhook.
"""
_TABLE = ("| field | type | default | meaning |", "|---|---|---|---|")
_REFUSED = ("", "What breaks a rule is refused:", "")


def text() -> str:
    """All of it."""
    return _HEADING + "".join(line + "\n" for definition in DEFINITIONS for line in _kind(definition))


def _kind(definition: Definition) -> Iterator[str]:
    [version] = definition.manifest()["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    yield from ("", f"## {definition.kind}", "", schema["description"])
    yield from ("", f"`kubectl get {definition.short_name}` shows:", "", "| column | meaning |", "|---|---|")
    for column in definition.columns:
        wide = ", with `-o wide`" if column.priority else ""
        yield f"| {column.name.upper()} | {column.description}{wide} |"
    if rules := schema.get("x-kubernetes-validations", []):
        yield from _REFUSED
        yield from (f"- {_cell(rule['message'])}." for rule in rules)
    for part in ("spec", "status"):
        for each in objects(part, schema["properties"][part]):
            yield from _object(definition.kind, each)


def _object(kind: str, each: Object) -> Iterator[str]:
    yield from ("", f"### {kind} {each.path}", "", *_TABLE)
    for field in each.fields:
        yield f"| `{field.name}` | {field.type} | {field.default} | {_cell(field.description)} |"
    if each.rules:
        yield from _REFUSED
        yield from (f"- `{path}`: {_cell(message)}." for path, message in each.rules)


def _cell(text: str) -> str:
    """The text as it shows in Markdown: a star or a bar would be taken for something else."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")
