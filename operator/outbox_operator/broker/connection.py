"""The HTTP connection to a management API: a call goes out, and an answer or why there is none comes in."""

import asyncio
import base64
import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import aiohttp
from yarl import URL

from outbox_core.url_hosts import split_hosts
from outbox_operator.allowed_hosts import AllowedHosts, AllowedResolver
from outbox_operator.broker import answers, bounded_json
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.calls import Call
from outbox_operator.broker.snapshot import BrokerProblem, Reason

_CALLS_AT_ONCE = 16
_LONGEST_WORDS = 300

_MIB = 1024 * 1024
MOST_BYTES = _MIB
"""How long an answer may be."""
MOST_LISTED_BYTES = 16 * _MIB
"""How long a listing may be: that of the bindings of about 18,000 listeners."""


_NOT_OURS = BrokerProblem(Reason.REFUSED, "this replica of the operator does not lead any more")


class ManagementError(Exception):
    """A call that came to nothing."""

    def __init__(self, problem: BrokerProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem
        """Why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whether yes or no."""

    status: int
    """The HTTP status."""
    said: Any
    """The body, None where there is none or it is not JSON."""
    location: str
    """Where the broker says that the new thing is, relative to the call; empty where it does not."""


class Connection:
    """The way to one broker for one user; its sockets open with the first call."""

    def __init__(
        self,
        access: BrokerAccess,
        *,
        connect_seconds: float,
        on_call: Callable[[str, str], None],
        allowed: AllowedHosts | None = None,
    ) -> None:
        """`on_call` is told the method of each call, and the status it was answered with or `unreachable`."""
        self._access = access
        self._urls = split_hosts(access.management_url)
        self._current = 0
        self._allowed = allowed or AllowedHosts()
        self._connect_seconds = connect_seconds
        self._on_call = on_call
        self._session: aiohttp.ClientSession | None = None
        # Not the session's own limit, for which a call would wait while its time runs.
        self._slots = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def close(self) -> None:
        """Close the sockets."""
        if self._session is not None:
            await self._session.close()

    async def call(
        self,
        call: Call,
        seconds: float,
        *,
        most_bytes: int = MOST_BYTES,
        may_take: Callable[[], float] = lambda: math.inf,
    ) -> Answer:
        """Call, and wait for an answer for so long; a `ManagementError` where there is none.

        The next host is called if no connection to one can be made. A call that was sent may have been
        carried out, and is not repeated; after a host that failed at it, further calls go to the next one.
        `may_take` is asked when the call leaves how long it may take at most; 0 if it must not leave.
        """
        failures: dict[str, BaseException] = {}
        async with self._slots:
            for url in (*self._urls[self._current :], *self._urls[: self._current]):
                left = min(seconds, may_take())
                if left <= 0:
                    raise ManagementError(_NOT_OURS)
                try:
                    answer = await self._answer(url, call, left, most_bytes)
                except (aiohttp.ClientError, OSError, ValueError) as error:
                    self._on_call(call.method, "unreachable")
                    failures[url] = error
                    self._move_on(url)
                    if not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
                        break
                else:
                    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                        self._move_on(url)
                    return answer
        raise ManagementError(_unreachable(failures, seconds, self._access))

    def _move_on(self, url: str) -> None:
        self._current = (self._urls.index(url) + 1) % len(self._urls)

    async def _answer(self, management_url: str, call: Call, seconds: float, most_bytes: int) -> Answer:
        url = _url(management_url, call)
        async with (
            asyncio.timeout(seconds),
            self._opened().request(call.method, url, json=call.body, allow_redirects=False) as response,
        ):
            body = await self._body(response, management_url, most_bytes)
        self._on_call(call.method, str(response.status))
        return Answer(response.status, bounded_json.parsed(body), response.headers.get("Location", ""))

    async def _body(self, response: aiohttp.ClientResponse, management_url: str, most_bytes: int) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > most_bytes:
                # Not read to its end, and not to be: the connection goes.
                response.close()
                access = replace(self._access, management_url=management_url)
                words = f"it answers with more than {most_bytes // _MIB} MiB"
                raise ManagementError(answers.something_else(access, words))
        return bytes(body)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            access = self._access
            login = base64.b64encode(f"{access.username}:{access.password}".encode()).decode()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, ssl=_trust(access), resolver=AllowedResolver(self._allowed)
                ),
                # A few bytes of gzip can be a gigabyte: nothing is asked for packed, and nothing is unpacked.
                headers={"Authorization": f"Basic {login}", "Accept-Encoding": "identity"},
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(sock_connect=self._connect_seconds),
            )
        return self._session


def _url(management_url: str, call: Call) -> URL:
    try:
        url = URL(f"{management_url}/api/{call.path}", encoded=True)
        # A URL that is encoded already is only taken apart when it is read.
        host, _ = url.host, url.port
    except ValueError:
        host = None
    if not host:
        raise aiohttp.InvalidURL(management_url, "it is no URL")
    return url


def _trust(access: BrokerAccess) -> ssl.SSLContext | bool:
    if access.ca is None:
        return True
    # Bundles have names in comments between the certificates, and OpenSSL takes ASCII only.
    return ssl.create_default_context(cadata=access.ca.encode("ascii", "ignore").decode())


def _unreachable(
    failures: Mapping[str, BaseException], seconds: float, access: BrokerAccess
) -> BrokerProblem:
    """Why no management API answers; `failures` is by URL, and the last one tells what to do."""
    last_url, error = list(failures.items())[-1]
    match error:
        case aiohttp.ClientResponseError():
            return answers.something_else(
                replace(access, management_url=last_url), "what it speaks is not HTTP"
            )
        case aiohttp.ClientConnectorCertificateError():
            cure = "correct its certificate, or set spec.broker.caSecretRef to who signed it"
        case aiohttp.ClientSSLError():
            cure = "see whether it speaks TLS there, and set spec.broker.managementUrl"
        case ssl.SSLError():
            cure = "put a PEM certificate into the Secret of spec.broker.caSecretRef"
        case ValueError():
            # aiohttp's own error of the kind is one too, and so is what is no name to the DNS.
            cure = "set spec.broker.managementUrl to an address such as http://rabbitmq:15672"
        case aiohttp.ClientConnectorDNSError():
            cure = "correct the host in the Secret, or set spec.broker.managementUrl"
        case TimeoutError() if not isinstance(error, aiohttp.ConnectionTimeoutError):
            cure = "see that it is not overloaded, and that most nodes of its cluster run"
        case _:
            cure = "see that it runs with its management plugin enabled, or set spec.broker.managementUrl"
    reasons = ", ".join(f"{url} cannot be reached: {_words(each, seconds)}" for url, each in failures.items())
    message = f"{reasons}; {cure}"
    return BrokerProblem(Reason.UNREACHABLE, message)


def _words(error: BaseException, seconds: float) -> str:
    """What the error says in one line."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            words = "no connection in time"
        case TimeoutError():
            words = f"no answer within {seconds:g} s"
        case aiohttp.ClientConnectorCertificateError():
            words = str(error.certificate_error)
        case aiohttp.ClientConnectorError():
            words = error.os_error.strerror or str(error.os_error)
        case aiohttp.ServerDisconnectedError():
            words = "it closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            words = "its answer is cut, or is not HTTP"
        case aiohttp.InvalidURL():
            words = "it is no URL"
        case OSError():
            words = error.strerror or type(error).__name__
        case _:
            # Its text may quote what the server said, who may be anybody.
            words = type(error).__name__
    return words[:_LONGEST_WORDS]
