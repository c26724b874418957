"""The way to the API server: who asks, and requests and streams as that one.

Configuration, TLS and tokens are those of `kubernetes.aio`. What it makes of answers is left aside: an
object is plain JSON here.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from aiohttp import ClientError, ClientResponse, ClientTimeout
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_kube_config
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, InClusterConfigLoader
from yaml import YAMLError

from outbox_core.masking import mask
from outbox_operator.cluster.errors import ClusterError, TimedOutError, UnreachableError

JSON = "application/json"

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_AUTH = "BearerToken"
_NAMESPACE = "default"
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked."""

    method: str
    """The HTTP method."""
    path: str
    """Where, without the query."""
    query: Mapping[str, str] = field(default_factory=dict)
    """The query."""
    body: Any = field(default=None, repr=False)
    """What is written, as JSON; there may be a Secret in it."""
    content_type: str = JSON
    """What the body is."""
    accept: str = JSON
    """What the answer may be."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server said."""

    status: int
    """The HTTP status."""
    body: bytes = field(repr=False)
    """The rest of it; there may be a Secret in it."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who asks, and how the API server is known: for another client than this one."""

    server: str
    """Its address."""
    ca_file: str | None
    """The certificates by which its own is checked."""
    certificate_file: str | None
    """The client's certificate."""
    key_file: str | None
    """The key of that."""
    authorization: str | None = field(repr=False)
    """The HTTP header with the token, as it is now."""
    verify: bool
    """Whether the server's certificate is checked at all."""
    proxy: str | None = field(repr=False)
    """The proxy on the way."""


class Connection:
    """Connections to one API server, as one user."""

    def __init__(self, configuration: Configuration, namespace: str = _NAMESPACE) -> None:
        self.namespace = namespace
        """Where whoever asks is at home: what the kubeconfig's context says, or the pod's own."""
        # Each Secret that is watched holds one: it is the callers who limit how much they do at once.
        configuration.connection_pool_maxsize = 0
        # Asked once: aiohttp would look into the environment and into ~/.netrc at each call, in a thread.
        configuration.proxy = configuration.proxy or _proxy_to(configuration.host)
        configuration.client_session_kwargs = {"trust_env": False}
        self._configuration = configuration
        # Most of it has no types.
        self._api: Any = ApiClient(configuration)
        self._api.user_agent = "outbox-operator"

    @classmethod
    async def open(
        cls,
        environment: Mapping[str, str] = os.environ,
        service_account: Path = _SERVICE_ACCOUNT,
        context: str | None = None,
    ) -> Self:
        """As KUBECONFIG says, else as the pod's service account, else as `~/.kube/config` says.

        A context is one of a kubeconfig, and not the one that is current there.
        """
        configuration = Configuration()
        kubeconfig = environment.get("KUBECONFIG")
        try:
            if kubeconfig or context or not environment.get(SERVICE_HOST_ENV_NAME):
                namespace = await _load_kubeconfig(kubeconfig, context, configuration)
            else:
                namespace = _load_service_account(service_account, environment, configuration)
        except (ConfigException, OSError, YAMLError) as error:
            where = f"KUBECONFIG={kubeconfig}" if kubeconfig else "no KUBECONFIG"
            raise ClusterError(
                f"there is no way to a cluster ({where}): {error}; run in a pod with a service account, "
                f"or set KUBECONFIG to a file that kubectl works with"
            ) from error
        return cls(configuration, namespace)

    async def close(self) -> None:
        await self._api.close()

    async def credentials(self) -> Credentials:
        """As they are now: a service account's token changes about once an hour."""
        configuration = self._configuration
        headers: dict[str, str] = {}
        await self._authorise(headers)
        return Credentials(
            server=configuration.host,
            ca_file=configuration.ssl_ca_cert,
            certificate_file=configuration.cert_file,
            key_file=configuration.key_file,
            authorization=headers.get("authorization"),
            verify=configuration.verify_ssl,
            proxy=configuration.proxy,
        )

    async def request(self, request: Request, what: str, timeout_seconds: float) -> Answer:
        """The answer, whatever it says, or an `UnreachableError` that names `what`."""
        limits = ClientTimeout(total=timeout_seconds, sock_connect=_CONNECT_SECONDS)
        with _told(what):
            response = await self._send(request, limits)
            async with response:
                return Answer(response.status, await response.read())

    @asynccontextmanager
    async def stream(
        self, request: Request, what: str, silence_seconds: float
    ) -> AsyncIterator[ClientResponse]:
        """An answer that goes on, and counts as broken where nothing comes for that long."""
        limits = ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence_seconds)
        with _told(what):
            response = await self._send(request, limits)
            async with response:
                try:
                    yield response
                finally:
                    _abort(response)

    async def _send(self, request: Request, limits: ClientTimeout) -> ClientResponse:
        headers = {
            "User-Agent": self._api.user_agent,
            "Accept": request.accept,
            "Content-Type": request.content_type,
        }
        await self._authorise(headers)
        query = f"?{urlencode(request.query)}" if request.query else ""
        url = f"{self._configuration.host}{request.path}{query}"
        answer = await self._api.call_api(request.method, url, headers, request.body, _request_timeout=limits)
        response: ClientResponse = answer.response
        return response

    async def _authorise(self, headers: dict[str, str]) -> None:
        await self._api.update_params_for_auth(headers, [], [_AUTH], "", "", None)


def _proxy_to(server: str) -> str | None:
    """The proxy that the environment has for it."""
    parts = urlsplit(server)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)


def _abort(response: ClientResponse) -> None:
    """End a stream at once: aiohttp would say goodbye in the background, and forget about it."""
    transport = response.connection.transport if response.connection else None
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Network errors as ours, with the object that was asked for."""
    try:
        yield
    except TimeoutError as error:
        raise TimedOutError(f"{what}: the API server does not answer in time") from error
    except (ClientError, OSError) as error:
        cause = mask(str(error)) or type(error).__name__
        raise UnreachableError(f"{what}: the API server cannot be reached: {cause}") from error


async def _load_kubeconfig(file: str | None, context: str | None, configuration: Configuration) -> str:
    """Tells the context's namespace."""
    load: Any = load_kube_config
    try:
        loader = await load(file, context, client_configuration=configuration, persist_config=False)
    except TypeError as error:
        # How the library fails over a server with TLS and nobody to enter as.
        raise ConfigException("its context names no user") from error

    async def refresh(_: Configuration) -> None:
        # It asks the program only where the last token has expired.
        await loader.load_from_exec_plugin()
        configuration.api_key[_AUTH] = loader.token

    if hasattr(loader, "exec_plugin_expiry"):
        configuration.refresh_api_key_hook = refresh  # type: ignore[assignment]  # declared by its default
    return str(loader.current_context["context"].get("namespace") or _NAMESPACE)


def _load_service_account(folder: Path, environment: Mapping[str, str], configuration: Configuration) -> str:
    """Tells the pod's namespace."""
    load: Any = InClusterConfigLoader
    # It reads the token again each minute.
    load(str(folder / "token"), str(folder / "ca.crt"), environ=environment).load_and_set(configuration)
    file = folder / "namespace"
    return file.read_text().strip() if file.exists() else _NAMESPACE
