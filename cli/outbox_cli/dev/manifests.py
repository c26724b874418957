"""From the texts of files to the resources in them, or to what is wrong with these. Pure."""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from outbox_cli.dev.containers import References, texts_of
from outbox_cli.dev.validation import Manifest, Problem, parsed, problems
from outbox_operator.children.names import Owner, kind_of
from outbox_operator.resources import API_GROUP, OutboxListener, OutboxRelay


class _Loader(yaml.SafeLoader):
    """YAML as kubectl reads it, which makes JSON of it: a date is a text, and so is every key."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the base class has it
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        found = super().construct_mapping(node, deep)
        return {
            key if isinstance(key, str) else json.dumps(key, default=str): each for key, each in found.items()
        }


@dataclass(frozen=True, slots=True)
class Manifests:
    """All that a project's files say."""

    relays: tuple[OutboxRelay, ...] = ()
    """The relays, in the order of the files."""
    listeners: tuple[OutboxListener, ...] = ()
    """The listeners."""
    others: tuple[Manifest, ...] = field(default=(), repr=False)
    """The Secrets and ConfigMaps."""
    complaints: tuple[str, ...] = ()
    """What is wrong, one line each; then the rest is not to be used."""

    @property
    def owners(self) -> tuple[Owner, ...]:
        """Relays and listeners."""
        return (*self.relays, *self.listeners)

    @property
    def references(self) -> References:
        """What containers may refer to."""

        def of(kind: str) -> dict[str, dict[str, str]]:
            return {_name_of(each): texts_of(each) for each in self.others if each["kind"] == kind}

        return References(of("Secret"), of("ConfigMap"))


@dataclass(frozen=True, slots=True)
class _Document:
    """A document of a file."""

    manifest: Manifest
    node: yaml.Node
    """Its place in the file."""

    def line(self, problem: Problem) -> int:
        """The line of the field that a problem is about, or of the nearest one around it."""
        node = self.node
        line: int = node.start_mark.line
        for part in problem.path:
            match node:
                case yaml.MappingNode():
                    found = next(((key, item) for key, item in node.value if key.value == part), None)
                    if found is None:
                        break
                    line, node = found[0].start_mark.line, found[1]
                case yaml.SequenceNode() if isinstance(part, int) and part < len(node.value):
                    node = node.value[part]
                    line = node.start_mark.line
        return line + 1


def read(texts: Mapping[Path, str], namespace: str, before: Manifests | None = None) -> Manifests:
    """What the files say; all of it is in `namespace`.

    With `before`, what may not be changed must be as it was then.
    """
    known = {(kind_of(owner), owner.metadata.name): owner for owner in before.owners} if before else {}
    found: dict[tuple[str, str], Owner] = {}
    others, complaints = list[Manifest](), list[str]()
    for path, text in texts.items():
        documents, unreadable = _documents(text)
        complaints += [f"{path}{unreadable}"] if unreadable else []
        for document in documents:
            manifest = document.manifest
            if manifest.get("kind") in ("Secret", "ConfigMap"):
                others.append(manifest)
            if not _is_ours(manifest):
                continue
            placed = _placed(manifest, namespace)
            key = str(placed.get("kind")), _name_of(placed)
            wrong = [*_misplaced(placed, namespace), *problems(placed, known.get(key))]
            if key in found:
                wrong.append(Problem(("metadata", "name"), "another manifest has this name; remove one"))
            lines = sorted((document.line(problem), str(problem)) for problem in wrong)
            kind = manifest.get("kind") or "resource"
            complaints += (f'{path.name}:{line}: {kind} "{key[1]}": {words}' for line, words in lines)
            if not wrong:
                found[key] = parsed(placed)
    relays = tuple(owner for owner in found.values() if isinstance(owner, OutboxRelay))
    listeners = tuple(owner for owner in found.values() if isinstance(owner, OutboxListener))
    return Manifests(relays, listeners, tuple(others), (*complaints, *_shared_tables(relays)))


def _documents(text: str) -> tuple[list[_Document], str | None]:
    """The documents of a file, and why it cannot be read."""
    loader = _Loader(text)
    documents = list[_Document]()
    try:
        while loader.check_node():
            node = loader.get_node()
            documents += _flat(loader.construct_document(node), node)
    except yaml.YAMLError as error:
        if f"{API_GROUP}/" not in text:
            # Such as the template of a chart: nobody expects that it can be read.
            return [], None
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
            return [], f":{error.problem_mark.line + 1}: not YAML: {error.problem}"
        return [], ": not YAML"
    finally:
        loader.dispose()
    return documents, None


def _flat(value: Any, node: yaml.Node | None) -> Iterator[_Document]:
    match value:
        case {"kind": "List", "items": list(items)} if isinstance(node, yaml.MappingNode):
            [nodes] = (item.value for key, item in node.value if key.value == "items")
            for each, below in zip(items, nodes, strict=True):
                yield from _flat(each, below)
        case dict() if node is not None:
            yield _Document(value, node)


def _is_ours(manifest: Manifest) -> bool:
    return str(manifest.get("apiVersion", "")).startswith(f"{API_GROUP}/")


def _placed(manifest: Manifest, namespace: str) -> Manifest:
    metadata = manifest.get("metadata") or {}
    return (
        {**manifest, "metadata": {**metadata, "namespace": metadata.get("namespace") or namespace}}
        if isinstance(metadata, dict)
        else manifest
    )


def _misplaced(manifest: Manifest, namespace: str) -> Iterator[Problem]:
    metadata = manifest["metadata"]
    if isinstance(metadata, dict) and (other := metadata.get("namespace")) != namespace:
        text = f'is "{other}", and this command is for "{namespace}"; pass --namespace={other}, or change it'
        yield Problem(("metadata", "namespace"), text)


def _name_of(manifest: Manifest) -> str:
    metadata = manifest.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def _shared_tables(relays: Iterable[OutboxRelay]) -> Iterator[str]:
    """Relays with a database each in a cluster, which would take each other's messages here."""
    first: dict[str, OutboxRelay] = {}
    for relay in relays:
        table = relay.spec.database.table
        other = first.setdefault(table, relay)
        if other is not relay:
            yield (
                f'OutboxRelay "{other.metadata.name}" and "{relay.metadata.name}" both have table {table}, '
                "and there is one database for all here; give one of them another spec.database.table"
            )
