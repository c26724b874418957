"""What the management API is called with: from an action to HTTP. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never
from urllib.parse import quote, urlencode

from outbox.topology import Binding
from outbox_operator.broker.actions import (
    Action,
    MakeBinding,
    MakeExchange,
    MakeQueue,
    MakeUser,
    RemoveBinding,
    RemoveExchange,
    RemoveQueue,
    RemoveUser,
    RevokePermissions,
)
from outbox_operator.broker.snapshot import INSTALLATION, OWNER, Reason


@dataclass(frozen=True, slots=True)
class Call:
    """One call."""

    method: Literal["GET", "PUT", "POST", "DELETE"]
    """The HTTP method."""
    path: str
    """The path below `/api/`, percent-encoded, with its query."""
    what: str
    """What it does to what, for a person: `make queue "mails"`."""
    body: Mapping[str, Any] | None = field(default=None, repr=False)
    """What is sent, if anything."""
    refusal: Reason = Reason.REFUSED
    """What it means when the broker takes the request for a bad one."""


WHOAMI = Call("GET", "whoami", "ask who we are")
CLUSTER_NAME = Call("GET", "cluster-name", "ask for the cluster's name")
GLOBAL_PARAMETERS = Call("GET", "global-parameters", "list the global parameters")


def listings(vhost: str) -> tuple[Call, Call, Call]:
    """Those of the exchanges, the queues and the bindings."""
    return (
        Call("GET", _path("exchanges", vhost), "list the exchanges"),
        # Without statistics a listing takes a tenth of the time, and does not depend on their collector.
        Call(
            "GET",
            _path("queues", vhost) + "?disable_stats=true&enable_queue_totals=true",
            "list the queues",
        ),
        Call("GET", _path("bindings", vhost), "list the bindings"),
    )


def policy_listings(vhost: str) -> tuple[Call, Call]:
    """Those of the users' policies and of the operator policies.

    The listing of queues without statistics tells the name of the former only, and not what it sets.
    """
    return (
        Call("GET", _path("policies", vhost), "list the policies"),
        Call("GET", _path("operator-policies", vhost), "list the operator policies"),
    )


def user_listings(vhost: str) -> tuple[Call, Call]:
    """Those of the users and of their permissions."""
    return (
        Call("GET", "users", "list the users"),
        Call("GET", _path("vhosts", vhost, "permissions"), "list the permissions"),
    )


def calls_of(action: Action, vhost: str) -> tuple[Call, ...]:
    """The calls that carry out `action`, in this order."""
    match action:
        case MakeUser(name):
            what = f'make user "{name}"'
            login = {"password": action.password, "tags": ""}
            allowed = action.permissions
            permissions = {"configure": allowed.configure, "write": allowed.write, "read": allowed.read}
            return (
                Call("PUT", _path("users", name), what, login),
                Call("PUT", _path("permissions", vhost, name), what, permissions),
            )
        case RemoveUser(name):
            return (Call("DELETE", _path("users", name), f'delete user "{name}"'),)
        case RevokePermissions(name):
            what = f'revoke the permissions of user "{name}"'
            return (Call("DELETE", _path("permissions", vhost, name), what),)
        case MakeExchange() | MakeQueue() | MakeBinding():
            return (_making(action, vhost),)
        case RemoveBinding() | RemoveQueue() | RemoveExchange():
            return (_removing(action, vhost),)
        case _:
            assert_never(action)


def queue_call(vhost: str, name: str) -> Call:
    """What is known of one queue."""
    return Call("GET", _path("queues", vhost, name), f'look at queue "{name}"')


def count_call(vhost: str, name: str) -> Call:
    """The listing of one queue with its count, which does not need the collector of statistics."""
    query = urlencode(
        {
            "page": 1,
            "page_size": 2,
            "name": f"^{re.escape(name)}$",
            "use_regex": "true",
            "disable_stats": "true",
            "enable_queue_totals": "true",
        },
        quote_via=quote,
    )
    return Call("GET", f"{_path('queues', vhost)}?{query}", f'count the messages in queue "{name}"')


def queue_bindings_call(vhost: str, name: str) -> Call:
    """The bindings of one queue."""
    return Call("GET", _path("queues", vhost, name, "bindings"), f'list the bindings of queue "{name}"')


def peek_call(vhost: str, name: str) -> Call:
    """The first message that waits in a queue, which stays there."""
    body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "base64", "truncate": 1}
    return Call("POST", _path("queues", vhost, name, "get"), f'look into queue "{name}"', body)


def _making(action: MakeExchange | MakeQueue | MakeBinding, vhost: str) -> Call:
    body: dict[str, Any]
    match action:
        case MakeExchange(exchange):
            body = {"type": exchange.kind, "durable": True, "auto_delete": False, "arguments": {}}
            path = _path("exchanges", vhost, exchange.name)
            return Call("PUT", path, f'make exchange "{exchange.name}"', body)
        case MakeQueue(queue):
            body = {"durable": True, "auto_delete": False, "arguments": queue.arguments}
            return Call("PUT", _path("queues", vhost, queue.name), f'make queue "{queue.name}"', body)
        case MakeBinding(binding, owner, installation):
            mark = {OWNER: owner, **({INSTALLATION: installation} if installation else {})}
            body = {"routing_key": binding.routing_key, "arguments": mark}
            return Call("POST", _bindings_path(binding, vhost), f"make {_described(binding)}", body)
        case _:
            assert_never(action)


def _removing(action: RemoveBinding | RemoveQueue | RemoveExchange, vhost: str) -> Call:
    match action:
        case RemoveBinding(binding, key):
            path = f"{_bindings_path(binding, vhost)}/{_path(key)}"
            return Call("DELETE", path, f"delete {_described(binding)}")
        case RemoveQueue(name, if_empty):
            path = _path("queues", vhost, name) + ("?if-empty=true" if if_empty else "")
            refusal = Reason.NOT_EMPTY if if_empty else Reason.REFUSED
            return Call("DELETE", path, f'delete queue "{name}"', refusal=refusal)
        case RemoveExchange(name, if_unused):
            path = _path("exchanges", vhost, name) + ("?if-unused=true" if if_unused else "")
            refusal = Reason.IN_USE if if_unused else Reason.REFUSED
            return Call("DELETE", path, f'delete exchange "{name}"', refusal=refusal)
        case _:
            assert_never(action)


def _bindings_path(binding: Binding, vhost: str) -> str:
    return _path("bindings", vhost, "e", binding.exchange, "q", binding.queue)


def _described(binding: Binding) -> str:
    return f'binding "{binding.routing_key}" of queue "{binding.queue}" to exchange "{binding.exchange}"'


def _path(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)
