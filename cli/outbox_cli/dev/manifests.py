"""From the texts of files to the resources in them, or to what is wrong with these. Pure."""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from outbox_cli.dev.admission import MODELS, refusals, without_nulls
from outbox_cli.dev.containers import References, texts_of
from outbox_operator.children.names import Owner, kind_of
from outbox_operator.resources import API_GROUP, OutboxListener, OutboxRelay

Manifest: TypeAlias = dict[str, Any]
_Key: TypeAlias = tuple[str, str]


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


def read(texts: Mapping[Path, str], namespace: str, before: Manifests | None = None) -> Manifests:
    """What the files say; all of it is in `namespace`.

    With `before`, what may not be changed must be as it was then.
    """
    known = {(kind_of(owner), owner.metadata.name): owner for owner in before.owners} if before else {}
    found: dict[_Key, Owner] = {}
    others, complaints = list[Manifest](), list[str]()
    for path, text in texts.items():
        documents, problem = _documents(text)
        complaints += [f"{path}: {problem}"] if problem else []
        others += (each for each in documents if each.get("kind") in ("Secret", "ConfigMap"))
        for manifest in (each for each in documents if _is_ours(each)):
            placed = _placed(manifest, namespace)
            key = str(placed.get("kind")), _name_of(placed)
            problems = [*_misplaced(placed, namespace), *refusals(placed, known.get(key))]
            if key in found:
                problems.append(f'{key[0]} "{key[1]}" is there twice; remove one')
            is_named = ("The ", f'{key[0]} "')
            complaints += (each if each.startswith(is_named) else f"{path}: {each}" for each in problems)
            if not problems:
                found[key] = MODELS[key[0]].model_validate(_gist(placed))
    relays = tuple(owner for owner in found.values() if isinstance(owner, OutboxRelay))
    listeners = tuple(owner for owner in found.values() if isinstance(owner, OutboxListener))
    return Manifests(relays, listeners, tuple(others), (*complaints, *_shared_tables(relays)))


def _documents(text: str) -> tuple[list[Manifest], str | None]:
    """The documents of a file, and what is wrong with it."""
    try:
        return list(_flat(yaml.load_all(text, _Loader))), None
    except yaml.YAMLError as error:
        if f"{API_GROUP}/" not in text:
            # Such as the template of a chart: nobody expects that it can be read.
            return [], None
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
            return [], f"line {error.problem_mark.line + 1} is not YAML: {error.problem}"
        return [], "it is not YAML"


def _flat(documents: Iterable[Any]) -> Iterator[Manifest]:
    for document in documents:
        match document:
            case {"kind": "List", "items": list(items)}:
                yield from _flat(items)
            case dict():
                yield document


def _is_ours(manifest: Manifest) -> bool:
    return str(manifest.get("apiVersion", "")).startswith(f"{API_GROUP}/")


def _placed(manifest: Manifest, namespace: str) -> Manifest:
    metadata = manifest.get("metadata") or {}
    return (
        {**manifest, "metadata": {**metadata, "namespace": metadata.get("namespace") or namespace}}
        if isinstance(metadata, dict)
        else manifest
    )


def _gist(manifest: Manifest) -> Manifest:
    """What a resource begins with; the rest of the metadata is what a cluster writes down about it."""
    metadata = {key: manifest["metadata"].get(key) for key in ("name", "namespace", "labels", "annotations")}
    gist: Manifest = without_nulls({"metadata": metadata, "spec": manifest["spec"]})
    return gist


def _misplaced(manifest: Manifest, namespace: str) -> Iterator[str]:
    """What kubectl says of a manifest for another namespace."""
    metadata = manifest["metadata"]
    if isinstance(metadata, dict) and (other := metadata.get("namespace")) != namespace:
        yield (
            f'the namespace from the provided object "{other}" does not match the namespace "{namespace}". '
            f"You must pass '--namespace={other}' to perform this operation."
        )


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
