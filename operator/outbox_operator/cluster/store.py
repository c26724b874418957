"""What the watches know: the custom resources as types, and the Deployments that the operator made. Pure."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic import ValidationError

from outbox_operator.children.applying import without_bulk
from outbox_operator.cluster.kinds import DEPLOYMENT, LISTENER, RELAY, Kind, Manifest
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.metadata import Metadata
from outbox_operator.subscriptions import queues_of

T = TypeVar("T")

WATCHED = (RELAY, LISTENER, DEPLOYMENT)
"""The kinds in a store."""

MANAGED = "app.kubernetes.io/managed-by=outbox-operator"
"""The Deployments in it, by their label."""

Place: TypeAlias = tuple[str, str]
"""A namespace and a name."""

OnEvent: TypeAlias = Callable[[Kind, str, str], None]
"""Told of an object that came, went or changed: its kind, namespace and name."""


_NUMBER = re.compile("[0-9]{1,64}")

# An answer is late by seconds at most: those that went before the last so many are past it.
_MOST_GRAVES = 1000


@dataclass(frozen=True, slots=True)
class Invalid:
    """A custom resource that its type refuses: made before a rule was, or by a newer version."""

    metadata: Metadata
    """Its metadata."""
    manifest: Manifest
    """All of it."""
    message: str
    """What is wrong with it, without the values in it."""


@dataclass(frozen=True, slots=True)
class Version:
    """Which object, and which state of it."""

    uid: str
    """Tells it from others of its name."""
    resource_version: str
    """Changes with each write."""

    def is_newer_than(self, other: "Version") -> bool:
        """Whether it may be; versions are numbers that grow over all objects of a kind."""
        mine, others = self.resource_version, other.resource_version
        if _NUMBER.fullmatch(mine) and _NUMBER.fullmatch(others):
            return int(mine) > int(others)
        return self != other


@dataclass(frozen=True, slots=True)
class _Entry:
    version: Version
    value: OutboxRelay | OutboxListener | Invalid | Manifest
    gist: object
    """What of it matters: where this stays the same nobody is told."""


class _Index(Generic[T]):
    """Listeners by what several of them may have in common."""

    def __init__(self, keys_of: Callable[[OutboxListener], Iterable[T]]) -> None:
        self._keys_of = keys_of
        self._found: dict[T, dict[Place, OutboxListener]] = {}

    def get(self, key: T) -> list[OutboxListener]:
        return list(self._found.get(key, {}).values())

    def add(self, place: Place, listener: OutboxListener) -> None:
        for key in self._keys_of(listener):
            self._found.setdefault(key, {})[place] = listener

    def remove(self, place: Place, listener: OutboxListener) -> None:
        for key in self._keys_of(listener):
            del self._found[key][place]
            if not self._found[key]:
                del self._found[key]


class Store:
    """The last known state of every watched object. Belongs to one event loop."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        """Set once everything that was there at the start is known."""
        self._entries: dict[Kind, dict[Place, _Entry]] = {kind: {} for kind in WATCHED}
        self._relays: dict[Place, OutboxRelay] = {}
        self._listeners: dict[Place, OutboxListener] = {}
        self._deployments: dict[Place, Manifest] = {}
        self._invalid: dict[tuple[Kind, str, str], Invalid] = {}
        self._by_relay: _Index[Place] = _Index(lambda listener: (_relay_of(listener),))
        self._by_queue: _Index[str] = _Index(queues_of)
        self._gone: dict[str, Version] = {}
        self._passed_over: dict[Kind, dict[Place, Version]] = {kind: {} for kind in WATCHED}
        self._subscribers: list[OnEvent] = []

    @property
    def relays(self) -> Mapping[Place, OutboxRelay]:
        """The relays, by namespace and name."""
        return MappingProxyType(self._relays)

    @property
    def listeners(self) -> Mapping[Place, OutboxListener]:
        """The listeners, by namespace and name."""
        return MappingProxyType(self._listeners)

    @property
    def deployments(self) -> Mapping[Place, Manifest]:
        """The Deployments that the operator made, of whose managedFields only the replicas' are kept."""
        return MappingProxyType(self._deployments)

    @property
    def invalid(self) -> Mapping[tuple[Kind, str, str], Invalid]:
        """The custom resources that cannot be read; they are in none of the others."""
        return MappingProxyType(self._invalid)

    def listeners_of(self, namespace: str, relay: str) -> list[OutboxListener]:
        """The listeners that refer to a relay, whether that is there or not."""
        return self._by_relay.get((namespace, relay))

    def claimants(self, queue: str) -> list[OutboxListener]:
        """The listeners that ask for a queue of this name, if only for dead letters, on whatever broker."""
        return self._by_queue.get(queue)

    def versions(self, kind: Kind) -> dict[Place, Version]:
        """Which state of each object is known."""
        known = {place: entry.version for place, entry in self._entries[kind].items()}
        return self._passed_over[kind] | known

    def subscribe(self, on_event: OnEvent) -> None:
        """Be told from now on."""
        self._subscribers.append(on_event)

    def put(self, kind: Kind, manifest: Manifest) -> bool:
        """An object is so now: a watch says it, or the answer to a write. Whether what matters changed.

        These cross on the way: what is older than the known state, or than the object's end, is passed over.
        """
        place, version = _place(manifest), version_of(manifest)
        before = self._entries[kind].get(place)
        gone = self._gone.get(version.uid)
        if any(known and not version.is_newer_than(known) for known in (before and before.version, gone)):
            return False
        entry = _entry(kind, manifest)
        self._forget(kind, place)
        self._entries[kind][place] = entry
        self._index(kind, place, entry.value)
        return self._tell(kind, place, before is None or before.gist != entry.gist)

    def pass_over(self, kind: Kind, manifest: object) -> None:
        """An object cannot be read: nobody need wait for it."""
        match manifest:
            case {"metadata": {"namespace": str() as namespace, "name": str() as name} as metadata}:
                self._passed_over[kind][namespace, name] = _version(metadata)

    def renew(self, kind: Kind, manifest: Manifest) -> bool:
        """As `put`, for an object that exists: where it went meanwhile it stays away."""
        known = self._entries[kind].get(_place(manifest))
        is_known = known is not None and known.version.uid == version_of(manifest).uid
        return is_known and self.put(kind, manifest)

    def remove(self, kind: Kind, manifest: Manifest) -> bool:
        """An object went; whether it was known. Another of its name that is there already stays."""
        place, version = _place(manifest), version_of(manifest)
        self._bury(version)
        self._passed_over[kind].pop(place, None)
        known = self._entries[kind].get(place)
        if known is None or known.version.uid != version.uid:
            return False
        self._forget(kind, place)
        return self._tell(kind, place, True)

    def discard(self, kind: Kind, place: Place, version: Version) -> bool:
        """An object in this state is not there any more, and nobody was told when it went."""
        self._passed_over[kind].pop(place, None)
        known = self._entries[kind].get(place)
        if known is None or known.version != version:
            return False
        self._bury(version)
        self._forget(kind, place)
        return self._tell(kind, place, True)

    def _bury(self, version: Version) -> None:
        self._gone[version.uid] = version
        if len(self._gone) > _MOST_GRAVES:
            del self._gone[next(iter(self._gone))]

    def _tell(self, kind: Kind, place: Place, matters: bool) -> bool:
        if matters:
            for on_event in self._subscribers:
                on_event(kind, *place)
        return matters

    def _index(self, kind: Kind, place: Place, value: object) -> None:
        match value:
            case OutboxRelay():
                self._relays[place] = value
            case OutboxListener():
                self._listeners[place] = value
                self._by_relay.add(place, value)
                self._by_queue.add(place, value)
            case Invalid():
                self._invalid[kind, *place] = value
            case dict():
                self._deployments[place] = value

    def _forget(self, kind: Kind, place: Place) -> None:
        self._entries[kind].pop(place, None)
        self._passed_over[kind].pop(place, None)
        self._invalid.pop((kind, *place), None)
        if kind is RELAY:
            self._relays.pop(place, None)
        elif kind is DEPLOYMENT:
            self._deployments.pop(place, None)
        elif listener := self._listeners.pop(place, None):
            self._by_relay.remove(place, listener)
            self._by_queue.remove(place, listener)


def version_of(manifest: Manifest) -> Version:
    """Which object and state a manifest is."""
    return _version(manifest["metadata"])


def _version(metadata: Mapping[str, Any]) -> Version:
    return Version(str(metadata.get("uid", "")), str(metadata.get("resourceVersion", "")))


def _entry(kind: Kind, manifest: Manifest) -> _Entry:
    version = version_of(manifest)
    if kind is DEPLOYMENT:
        kept = without_bulk(manifest)
        return _Entry(version, kept, {**kept, "metadata": _without(kept["metadata"], "resourceVersion")})
    metadata = Metadata.model_validate(manifest["metadata"])
    # Nobody but the operator writes the status: its own words are no news to it.
    about = metadata.model_copy(update={"resource_version": ""})
    try:
        model = OutboxRelay if kind is RELAY else OutboxListener
        resource = model.model_validate(manifest)
    except ValidationError as error:
        message = _faults(error)
        return _Entry(version, Invalid(metadata, manifest, message), (about, message, manifest.get("spec")))
    return _Entry(version, resource, (about, resource.spec))


def _faults(error: ValidationError) -> str:
    # Without the input: a pod's environment may be in it.
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'it'}: {fault['msg']}" for fault in found)


def _place(manifest: Manifest) -> Place:
    metadata = manifest["metadata"]
    return str(metadata["namespace"]), str(metadata["name"])


def _relay_of(listener: OutboxListener) -> Place:
    return listener.metadata.namespace, listener.spec.relay_ref.name


def _without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}
