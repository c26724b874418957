"""What the operator asks of the API server, and what it writes there.

A call that fails is not repeated here: whoever called knows whether it still matters.
"""

import asyncio
import builtins
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias

from aiohttp import StreamReader

from outbox_core.logs import event as log_event
from outbox_operator.cluster.connection import JSON, Answer, Connection, Request
from outbox_operator.cluster.errors import (
    BusyError,
    ClusterError,
    ConflictError,
    GoneError,
    MalformedError,
    NotFoundError,
    RefusedError,
    refusal,
)
from outbox_operator.cluster.fence import Fence
from outbox_operator.cluster.kinds import POD, Kind, Manifest, kind_of, path
from outbox_operator.resources.metadata import Metadata

MANAGER = "outbox-operator"
"""Whose fields they are that the operator writes."""

_CALL_SECONDS = 10.0
# The API server sends a bookmark about each minute to whoever has nothing else to hear.
_SILENCE_SECONDS = 150.0
_LOG_LINES = 20
_LOG_BYTES = 16 * 1024
_LINE_CHARACTERS = 500
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"

_log = logging.getLogger("outbox.operator.cluster")

OnCall: TypeAlias = Callable[[str, str], None]
"""Told of each call: its verb, and how it ended."""

WatchEvent: TypeAlias = tuple[str, Manifest]
"""ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""


@dataclass(frozen=True, slots=True)
class _Target:
    """What a call is about."""

    kind: Kind
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @classmethod
    def of(cls, manifest: Manifest) -> "_Target":
        metadata = manifest["metadata"]
        return cls(kind_of(manifest), metadata.get("namespace"), metadata.get("name", ""))

    @property
    def path(self) -> str:
        return path(self.kind, self.namespace, self.name, self.subresource)

    @property
    def collection(self) -> str:
        return path(self.kind, self.namespace)

    def __str__(self) -> str:
        if self.name:
            return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}"
        return f"{self.kind}s in {self.namespace or 'all namespaces'}"


class Cluster:
    """The API server behind a connection. With a fence, a write first has to pass it."""

    def __init__(
        self,
        connection: Connection,
        *,
        fence: Fence | None = None,
        on_call: OnCall = lambda verb, outcome: None,  # noqa: ARG005 - nobody counts
        concurrency: int = 32,
    ) -> None:
        self._connection = connection
        self._fence = fence
        self._on_call = on_call
        self._turns = asyncio.Semaphore(concurrency)

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """The object, or None."""
        target = _Target(kind, namespace, name)
        try:
            return await self._send("get", target, Request("GET", target.path))
        except NotFoundError:
            return None

    async def list(
        self, kind: Kind, namespace: str | None, label_selector: str = "", *, metadata_only: bool = False
    ) -> list[Manifest]:
        """All objects of a kind, in one namespace or everywhere."""
        target = _Target(kind, namespace)
        query = {"labelSelector": label_selector} if label_selector else {}
        accept = _METADATA_ONLY if metadata_only else JSON
        found = await self._answered("list", target, Request("GET", target.path, query, accept=accept))
        # A list of metadata that is empty has null for it.
        items = found.get("items") or []
        if not isinstance(items, builtins.list):
            raise _malformed(str(target), "no list")
        return [item for item in items if _is_listed(item, target)]

    async def create(self, manifest: Manifest) -> Manifest:
        """Make it; a `ConflictError` where there is one of that name."""
        target = _Target.of(manifest)
        request = Request("POST", target.collection, {"fieldManager": MANAGER}, manifest)
        return await self._send("create", target, request, self._fence)

    async def replace(self, manifest: Manifest) -> Manifest:
        """Write all of it; a `ConflictError` where it has another resourceVersion by now."""
        target = _Target.of(manifest)
        request = Request("PUT", target.path, {"fieldManager": MANAGER}, manifest)
        return await self._send("update", target, request, self._fence)

    async def apply(self, manifest: Manifest, *, force: bool, manager: str = MANAGER) -> Manifest:
        """Make it so, as far as the manifest says, by server-side apply.

        Without `force`, a field that another manager has with another value makes a `ConflictError`. A field
        that the kind does not have makes a `RefusedError`.
        """
        target = _Target.of(manifest)
        query = {
            "fieldManager": manager,
            "force": "true" if force else "false",
            "fieldValidation": "Strict",
        }
        request = Request("PATCH", target.path, query, manifest, _APPLY)
        return await self._send("apply", target, request, self._fence)

    async def patch(
        self, kind: Kind, namespace: str, name: str, merge_patch: Manifest, subresource: str = ""
    ) -> Manifest:
        """Change some fields by a JSON merge patch, for example those of `status`."""
        target = _Target(kind, namespace, name, subresource)
        request = Request("PATCH", target.path, {"fieldManager": MANAGER}, merge_patch, _MERGE)
        return await self._send("patch", target, request, self._fence)

    async def patch_status(
        self, kind: Kind, metadata: Metadata, operations: Sequence[Mapping[str, Any]]
    ) -> Manifest:
        """Change the status of one object by the operations of a JSON patch.

        A `NotFoundError` if another object has its name by now: that one's status stays. In a merge patch of
        a status, the API server ignores a uid.
        """
        target = _Target(kind, metadata.namespace, metadata.name, "status")
        body = [{"op": "test", "path": "/metadata/uid", "value": metadata.uid}, *operations]
        request = Request("PATCH", target.path, {"fieldManager": MANAGER}, body, _JSON_PATCH)
        try:
            return await self._send("patch", target, request, self._fence)
        except RefusedError:
            # The answer does not tell which operation it refuses.
            there = await self.get(kind, metadata.namespace, metadata.name)
            if there is None or there["metadata"].get("uid") != metadata.uid:
                raise NotFoundError(f"{target}: it is gone, or another object has its name by now") from None
            raise

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str | None) -> None:
        """Delete it, where it is there. With a uid, another object of that name stays."""
        target = _Target(kind, namespace, name)
        options: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            request = Request("DELETE", target.path, body=options)
            await self._call("delete", str(target), kind, request, self._fence)
        except NotFoundError:
            return
        except ConflictError:
            there = await self.get(kind, namespace, name)
            if uid is None or (there is not None and there["metadata"].get("uid") == uid):
                raise

    async def api_groups(self) -> frozenset[str]:
        """The API groups that are served, by which one knows what is installed: `keda.sh`."""
        what = "the API groups"
        match _parsed((await self._call("get", what, None, Request("GET", "/apis"))).body, what):
            case {"groups": [*groups]}:
                return frozenset(name for group in groups if isinstance(name := _field(group, "name"), str))
        raise _malformed(what, "no list")

    async def pods_of(self, namespace: str, selector: str) -> builtins.list[Manifest]:
        """The pods with these labels."""
        return await self.list(POD, namespace, selector)

    async def last_log_line(self, namespace: str, pod: str, container: str) -> str | None:
        """The last thing that a container said before it ended, else what it says now, or None."""
        target = _Target(POD, namespace, pod, "log")
        query = {"container": container, "tailLines": str(_LOG_LINES), "limitBytes": str(_LOG_BYTES)}
        for previous in ("true", "false"):
            request = Request("GET", target.path, {**query, "previous": previous}, accept="*/*")
            try:
                answer = await self._call("log", str(target), POD, request)
            except (NotFoundError, RefusedError, BusyError):
                # It did not end before, has not begun, or its node does not answer.
                continue
            lines = answer.body.decode(errors="replace").splitlines()
            if said := next((line.strip() for line in reversed(lines) if line.strip()), None):
                return said[:_LINE_CHARACTERS]
        return None

    @asynccontextmanager
    async def watch(self, kind: Kind, namespace: str, name: str) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """What becomes of one object, beginning with an ADDED where it is there.

        It ends when the API server ends it, about twice an hour, or with a `ClusterError`. Once inside, no
        change is missed: what is read of the object then is at most as new as the last event to come. The
        first events may be older than that: before Kubernetes 1.34 they are from a cache.
        """
        target = _Target(kind, namespace, name)
        query = {"watch": "true", "allowWatchBookmarks": "true", "fieldSelector": f"metadata.name={name}"}
        request = Request("GET", target.collection, query)
        async with self._connection.stream(request, str(target), _SILENCE_SECONDS) as response:
            if response.status != HTTPStatus.OK:
                error = refusal(response.status, await response.read(), str(target), kind)
                self._on_call("watch", error.outcome)
                raise error
            self._on_call("watch", "ok")
            yield _events(response.content, str(target))

    async def _send(
        self, verb: str, target: _Target, request: Request, fence: Fence | None = None
    ) -> Manifest:
        """The object that is answered; its metadata name it, and may lack anything else."""
        found = await self._answered(verb, target, request, fence)
        if not _is_object(found):
            raise _malformed(str(target), "no object")
        return found

    async def _answered(
        self, verb: str, target: _Target, request: Request, fence: Fence | None = None
    ) -> Manifest:
        answer = await self._call(verb, str(target), target.kind, request, fence)
        found = _parsed(answer.body, str(target))
        if not isinstance(found, dict):
            raise _malformed(str(target), "no object")
        return found

    async def _call(
        self, verb: str, what: str, kind: Kind | None, request: Request, fence: Fence | None = None
    ) -> Answer:
        async with self._turns:
            try:
                # After the wait for a turn: it is now that a write leaves.
                left = fence.check() if fence else _CALL_SECONDS
                answer = await self._connection.request(request, what, min(left, _CALL_SECONDS))
                if answer.status >= HTTPStatus.BAD_REQUEST:
                    raise refusal(answer.status, answer.body, what, kind)
            except ClusterError as error:
                self._on_call(verb, error.outcome)
                raise
        self._on_call(verb, "ok")
        return answer


async def _events(lines: StreamReader, what: str) -> AsyncIterator[WatchEvent]:
    async for line in lines:
        match _parsed(line, what):
            case {"type": "ERROR", **rest}:
                code = _field(rest.get("object"), "code")
                status = code if isinstance(code, int) else HTTPStatus.GONE.value
                raise GoneError(f"{what}: the API server ended the watch with {status}")
            case {"type": "BOOKMARK", "object": dict() as bookmark}:
                yield "BOOKMARK", bookmark
            case {"type": "ADDED" | "MODIFIED" | "DELETED" as type_, "object": dict() as found} if _is_object(
                found
            ):
                yield type_, found
            case _:
                raise _malformed(what, "no event")


def _parsed(body: bytes, what: str) -> object:
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError):
        raise _malformed(what, "no JSON") from None
    return found


def _malformed(what: str, instead: str) -> MalformedError:
    return MalformedError(
        f"{what}: what the API server answers is {instead}; see what is between, a proxy maybe"
    )


def _field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _is_object(value: object) -> bool:
    """Whether it has what every object has."""
    match value:
        case {"metadata": {"name": str(), "namespace": str()}}:
            return True
    return False


def _is_listed(item: object, target: _Target) -> bool:
    if _is_object(item):
        return True
    log_event(_log, logging.WARNING, "listed item not read", list=str(target))
    return False
