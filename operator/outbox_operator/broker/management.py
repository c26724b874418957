"""RabbitMQ's management API: looking at a virtual host, and carrying out an action in it."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

from outbox_operator.allowed_hosts import AllowedHosts
from outbox_operator.broker import answers, calls, listings
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import Action, MakeBinding, RemoveQueue
from outbox_operator.broker.calls import Call
from outbox_operator.broker.connection import (
    MOST_BYTES,
    MOST_LISTED_BYTES,
    Answer,
    Connection,
    ManagementError,
)
from outbox_operator.broker.identity import ClusterIdentity, parse_cluster
from outbox_operator.broker.snapshot import Mark, Reason, Snapshot

__all__ = ["Management", "ManagementError", "Timeouts"]

_ADMINISTRATOR = "administrator"
_LISTING_PAUSES = (0.1, 0.3, 1.0)
"""Before a listing is asked for again that RabbitMQ failed to make, since something in it went meanwhile."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait for the broker."""

    connect_seconds: float = 3.0
    """For a connection; short, so that a broker that comes back is noticed."""
    call_seconds: float = 10.0
    """For the answer to a call."""
    listing_seconds: float = 30.0
    """For a listing, which may be long."""


class Management:
    """The management API of one virtual host's broker, entered by one user."""

    def __init__(
        self,
        access: BrokerAccess,
        *,
        on_call: Callable[[str, str], None],
        timeouts: Timeouts | None = None,
        write_seconds: Callable[[], float] = lambda: math.inf,
        allowed: AllowedHosts | None = None,
    ) -> None:
        """`on_call` is told the method of each call, and the status it was answered with or `unreachable`.

        `write_seconds` is asked before each call that writes how long it may take, 0 if it must not be made.
        """
        self._access = access
        self._timeouts = timeouts or Timeouts()
        self._connection = Connection(
            access, connect_seconds=self._timeouts.connect_seconds, on_call=on_call, allowed=allowed
        )
        self._write_seconds = write_seconds
        self._is_administrator = False
        self._is_rabbitmq = False
        """Whether the server has told who we are, as only RabbitMQ does: until then it is not quoted."""
        self._cluster: ClusterIdentity | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def snapshot(self) -> Snapshot:
        """The virtual host as it is now: seven calls, and some more while it is not known who answers."""
        try:
            # An administrator is taken for one until the broker says no; others may become one at any time.
            self._is_administrator = self._is_administrator or await self._asked_whether_administrator()
            if self._cluster is None or (self._is_administrator and self._cluster.id is None):
                self._cluster = await self._asked_for_cluster()
            return await self._listed()
        except ManagementError:
            # Another broker may answer next.
            self._is_administrator, self._is_rabbitmq, self._cluster = False, False, None
            raise

    async def perform(self, action: Action) -> str | None:
        """Carry out one action; what is there or gone already is no error.

        Tells the properties key of a binding that it made.
        """
        if isinstance(action, RemoveQueue) and action.owner is not None:
            await self._check_marks(action.name, Mark(action.owner, action.installation))
        if isinstance(action, RemoveQueue) and action.if_empty:
            await self._remove_if_empty(action.name)
            return None
        location = ""
        for call in calls.calls_of(action, self._access.vhost):
            location = (await self._done(call)).location
        # The last part of a relative URL in which the key, itself encoded, is encoded once more.
        return unquote(location.rpartition("/")[2]) if isinstance(action, MakeBinding) else None

    async def _asked_whether_administrator(self) -> bool:
        match (await self._done(calls.WHOAMI)).said:
            case {"name": str(), "tags": list() | str() as tags}:
                self._is_rabbitmq = True
                return _ADMINISTRATOR in (tags.split(",") if isinstance(tags, str) else tags)
            case _:
                raise ManagementError(answers.something_else(self._access, "it does not tell who we are"))

    async def _asked_for_cluster(self) -> ClusterIdentity | None:
        """What the cluster calls itself; a user who is no administrator sees its name only."""
        name = await self._answer(calls.CLUSTER_NAME)
        if not self._is_administrator:
            return parse_cluster(name.said, None)
        parameters = await self._answer(calls.GLOBAL_PARAMETERS)
        return parse_cluster(name.said, parameters.said)

    async def _listed(self) -> Snapshot:
        vhost = self._access.vhost
        wanted = [*calls.listings(vhost), *(calls.user_listings(vhost) if self._is_administrator else ())]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._listing(call)) for call in wanted]
                policies = [
                    group.create_task(self._permitted_listing(call)) for call in calls.policy_listings(vhost)
                ]
        except ExceptionGroup as errors:
            raise _first(errors) from None
        exchanges, queues, bindings, *users = (task.result() for task in tasks)
        users_policies, operator_policies = (task.result() for task in policies)
        try:
            seen, bound = listings.parse_queues(queues), listings.parse_bindings(bindings)
            return Snapshot(
                listings.parse_exchanges(exchanges),
                seen,
                bound,
                listings.parse_users(*users) if users else None,
                cluster=self._cluster,
                installations=listings.installations_of(bound),
                policies=listings.parse_policies(users_policies),
                operator_policies=listings.parse_policies(operator_policies, is_operators=True),
                hidden_queues=listings.parse_bound_queues(bindings) - seen.keys(),
            )
        except (KeyError, TypeError, AttributeError):
            problem = answers.something_else(self._access, "its listings are not those of RabbitMQ")
            raise ManagementError(problem) from None

    async def _listing(self, call: Call) -> Any:
        seconds = self._timeouts.listing_seconds
        answer = await self._answer(call, seconds, MOST_LISTED_BYTES)
        for pause in _LISTING_PAUSES:
            if answer.status != HTTPStatus.INTERNAL_SERVER_ERROR:
                break
            await asyncio.sleep(pause)
            answer = await self._answer(call, seconds, MOST_LISTED_BYTES)
        self._check(call, answer)
        if not isinstance(answer.said, list):
            raise ManagementError(answers.something_else(self._access, f"it does not {call.what}"))
        return answer.said

    async def _permitted_listing(self, call: Call) -> Any:
        """A listing, or None if these credentials may not have it, or the broker has none of the kind."""
        try:
            return await self._listing(call)
        except ManagementError as error:
            if error.problem.reason in (Reason.PERMISSION_DENIED, Reason.VHOST_MISSING):
                # Without a right to the virtual host, or without that, the other listings fail too.
                return None
            raise

    async def _check_marks(self, name: str, own: Mark) -> None:
        """Refuse to go on if a listener other than `own` has marked a queue, however old the snapshot is."""
        look = calls.queue_bindings_call(self._access.vhost, name)
        found = await self._answer(look)
        if found.status == HTTPStatus.NOT_FOUND:
            return
        self._check(look, found)
        try:
            bindings = listings.parse_bindings(found.said).get(name, ())
        except (KeyError, TypeError, AttributeError):
            problem = answers.something_else(self._access, "its listings are not those of RabbitMQ")
            raise ManagementError(problem) from None
        for each in bindings:
            if each.mark is not None and not each.is_of(own.owner, own.installation):
                raise ManagementError(answers.marked(self._access, name, each.mark, own.owner))

    async def _remove_if_empty(self, name: str) -> None:
        """Look, and then delete: RabbitMQ does both in one step for classic queues only."""
        access, look = self._access, calls.queue_call(self._access.vhost, name)
        found = await self._answer(look)
        if found.status == HTTPStatus.NOT_FOUND:
            return
        self._check(look, found)
        is_quorum = isinstance(found.said, dict) and found.said.get("type") == "quorum"
        if is_quorum:
            # The number counts those that a consumer has, but is up to 10 s old: whoever asks for this has
            # seen the queue empty for longer. To look into the queue is exact, but finds only those that
            # wait, counts as a delivery of the first, and is refused for a single active consumer.
            messages = await self._count(name)
            if messages is None:
                # RabbitMQ would delete it all the same, with what it holds on the nodes that are away.
                raise ManagementError(answers.not_counted(access, name))
            if messages:
                raise ManagementError(answers.not_empty(access, name, messages))
            arguments = found.said.get("arguments")
            is_shown = not (isinstance(arguments, dict) and arguments.get("x-single-active-consumer"))
            if is_shown and (await self._done(calls.peek_call(access.vhost, name))).said:
                raise ManagementError(answers.not_empty(access, name, 0))
        for call in calls.calls_of(RemoveQueue(name, if_empty=not is_quorum), access.vhost):
            await self._done(call)

    async def _count(self, name: str) -> int | None:
        """How many messages a queue has; None if the broker does not tell, as its leader is away."""
        match (await self._done(calls.count_call(self._access.vhost, name))).said:
            case {"items": [{"name": str() as found, "messages": int() as messages}]} if found == name:
                return messages
            case _:
                return None

    async def _done(self, call: Call) -> Answer:
        answer = await self._answer(call)
        self._check(call, answer)
        return answer

    async def _answer(self, call: Call, seconds: float | None = None, most_bytes: int = MOST_BYTES) -> Answer:
        wait = self._timeouts.call_seconds if seconds is None else seconds
        if call.method == "GET":
            return await self._connection.call(call, wait, most_bytes=most_bytes)
        return await self._connection.call(call, wait, may_take=self._write_seconds)

    def _check(self, call: Call, answer: Answer) -> None:
        problem = answers.problem_of(
            call, answer.status, answer.said, self._access, is_rabbitmq=self._is_rabbitmq
        )
        if problem:
            raise ManagementError(problem)


def _first(errors: ExceptionGroup[Exception]) -> Exception:
    """The first thing that went wrong; a fault of ours before the broker's."""
    ours = errors.split(ManagementError)[1]
    return (ours or errors).exceptions[0]
