"""OutboxRelays, OutboxListeners and the Secrets they name, read through the kubeconfig."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import list_kube_config_contexts
from pydantic import ValidationError
from yaml import YAMLError

from outbox_cli.cluster.place import Place
from outbox_cli.cluster.urls import broker_url, service_of, with_login
from outbox_cli.failures import CommandError
from outbox_core.database import Database
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import ClusterError, NotFoundError
from outbox_operator.cluster.kinds import LISTENER, RELAY, SECRET, Kind, Manifest
from outbox_operator.conditions import Finding
from outbox_operator.credentials import broker_access, database_url
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.service_hosts import seen_from_elsewhere

R = TypeVar("R", OutboxRelay, OutboxListener)
T = TypeVar("T")

_LOOKUP_SECONDS = 5.0


class Resources:
    """What a cluster has of ours."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace
        """Where names are looked up."""
        self.unreadable: list[str] = []
        """What was left out of a list, and why."""

    async def relays(self, *, everywhere: bool = False) -> list[OutboxRelay]:
        """The OutboxRelays of the namespace, or of all."""
        return await self._all(RELAY, OutboxRelay, everywhere=everywhere)

    async def listeners(self, *, everywhere: bool = False) -> list[OutboxListener]:
        """The OutboxListeners of the namespace, or of all."""
        return await self._all(LISTENER, OutboxListener, everywhere=everywhere)

    async def relay(self, name: str | None) -> OutboxRelay:
        """The one of this name; without a name, the only one."""
        if name is not None:
            return await self._one(RELAY, OutboxRelay, name)
        found = await self.relays()
        if len(found) == 1:
            return found[0]
        where = f"namespace {self.namespace}"
        if not found:
            raise CommandError(f"{where} has no OutboxRelay; name another namespace with -n")
        raise CommandError(f"{where} has several OutboxRelays; name one with --relay: {_names(found)}")

    async def listener(self, name: str) -> OutboxListener:
        """The one of this name."""
        return await self._one(LISTENER, OutboxListener, name)

    async def database(self, relay: OutboxRelay, given: str | None = None) -> Database:
        """The database of a relay as it is entered from here; a URL that a person gave wins.

        The Secret's may lead anywhere: none of this person's own credentials are for it.
        """
        if given is not None and "@" in given:
            return Database(given)
        namespace, database = relay.metadata.namespace, relay.spec.database
        secret = await self._secret(namespace, database.secret_ref.name)
        known = _usable(database_url(database, secret, namespace=namespace), relay)
        url = seen_from_elsewhere(known, namespace) if given is None else with_login(given, known)
        await _check_known(url, f"the database of OutboxRelay {relay.metadata.path}", "--database-url")
        return Database(url, ambient=False)

    async def broker_url(self, relay: OutboxRelay, given: str | None = None) -> str:
        """How the broker of a relay is entered from here; a URL that a person gave wins."""
        if given is not None and "@" in given:
            return given
        namespace, broker = relay.metadata.namespace, relay.spec.broker
        if broker.secret_ref is None:
            raise CommandError(
                f"OutboxRelay {relay.metadata.path} has no credentials for its broker but the operator's; "
                "add --broker-url with a user and password of your own"
            )
        secret = await self._secret(namespace, broker.secret_ref.name)
        ca = await self._secret(namespace, broker.ca_secret_ref.name) if broker.ca_secret_ref else None
        known = broker_url(_usable(broker_access(broker, secret, ca, namespace=namespace), relay), namespace)
        url = known if given is None else with_login(given, known)
        await _check_known(url, f"the broker of OutboxRelay {relay.metadata.path}", "--broker-url")
        return url

    async def _all(self, kind: Kind, model: type[R], *, everywhere: bool) -> list[R]:
        try:
            manifests = await self._cluster.list(kind, None if everywhere else self.namespace)
        except NotFoundError:
            raise CommandError(
                f"the cluster knows no {kind}; install the operator there, or name another cluster "
                "with --context"
            ) from None
        found = []
        for manifest in manifests:
            try:
                found.append(_parsed(manifest, model))
            except CommandError as error:
                self.unreadable.append(str(error))
        return sorted(found, key=lambda each: each.metadata.path)

    async def _one(self, kind: Kind, model: type[R], name: str) -> R:
        if manifest := await self._cluster.get(kind, self.namespace, name):
            return _parsed(manifest, model)
        there = _names(await self._all(kind, model, everywhere=False))
        raise CommandError(f"namespace {self.namespace} has no {kind} {name}; it has: {there or 'none'}")

    async def _secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        manifest = await self._cluster.get(SECRET, namespace, name)
        if manifest is None:
            return None
        return {key: base64.b64decode(value) for key, value in (manifest.get("data") or {}).items()}


@asynccontextmanager
async def reached(place: Place) -> AsyncIterator[Resources]:
    """The resources of a cluster, until the block ends."""
    environment = {**os.environ, **({"KUBECONFIG": place.kubeconfig} if place.kubeconfig else {})}
    _check_context(place.context, environment.get("KUBECONFIG"))
    try:
        connection = await Connection.open(environment, context=place.context)
        try:
            yield Resources(Cluster(connection), place.namespace or connection.namespace)
        finally:
            await connection.close()
    except ClusterError as error:
        raise CommandError(str(error)) from None


def _check_context(context: str | None, kubeconfig: str | None) -> None:
    if context is None:
        return
    listing: Any = list_kube_config_contexts
    try:
        names = [each["name"] for each in listing(kubeconfig)[0]]
    except (ConfigException, OSError, YAMLError):
        # The connection tells what is wrong with the file.
        return
    if context not in names:
        raise CommandError(f"the kubeconfig has no context {context}; it has: {', '.join(names)}")


async def _check_known(url: str, what: str, option: str) -> None:
    """Refuse a Service of the cluster that has no address here, instead of a riddle about names."""
    service = service_of(url)
    if service is None:
        return
    try:
        async with asyncio.timeout(_LOOKUP_SECONDS):
            await asyncio.get_running_loop().getaddrinfo(service.host, service.port)
    except OSError:
        raise CommandError(service.unreachable(what, option)) from None


def _usable(found: T | Finding, relay: OutboxRelay) -> T:
    if isinstance(found, Finding):
        raise CommandError(f"OutboxRelay {relay.metadata.path}: {found.message}")
    return found


def _parsed(manifest: Manifest, model: type[R]) -> R:
    try:
        return model.model_validate(manifest)
    except ValidationError as error:
        metadata = manifest["metadata"]
        path = f"{metadata.get('namespace')}/{metadata.get('name')}"
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CommandError(
            f"{model.__name__} {path}: {where}: {first['msg']}; was it made for a newer version?"
        ) from None


def _names(found: Sequence[OutboxRelay] | Sequence[OutboxListener]) -> str:
    return ", ".join(each.metadata.name for each in found)
