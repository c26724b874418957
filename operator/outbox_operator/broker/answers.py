"""What the answers of the management API mean where they are not a yes. Pure.

Its 401 is three things: a wrong password (`not_authorized`), a user who may not use the API, and one who may
not do this (both `not_authorised`). Its 404 is two: a virtual host that does not exist, and from 4.3 on one
that the user may not enter (`not_found`).
"""

from enum import StrEnum
from http import HTTPStatus

from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.calls import WHOAMI, Call
from outbox_operator.broker.snapshot import BrokerProblem, Mark, Reason
from outbox_operator.neighbours import described

_MAY_NOT = "not_authorised"
_HIDDEN = ("not_found", "Not Found")
_NO_VHOST = frozenset({"Not Found", "vhost_not_found"})
_LONGEST_WORDS = 300


class _Words(StrEnum):
    """What RabbitMQ says word by word, by which one denial is told from another."""

    NO_MANAGEMENT = "Not management user"
    LOCALHOST_ONLY = "User can only log in via localhost"
    NO_ADMINISTRATOR = "Not administrator user"
    NO_ACCESS = "User not authorised to access virtual host"


_KNOWN_WORDS = _NO_VHOST | set(_Words)


def problem_of(
    call: Call, status: int, said: object, access: BrokerAccess, *, is_rabbitmq: bool = True
) -> BrokerProblem | None:
    """What is wrong after `call` was answered so; `said` is the body, None where it was not JSON.

    Unless the server `is_rabbitmq` for certain, its own words are not quoted: the address may lead to any
    server that the operator can reach, and whoever wrote the address must not read there.
    """
    is_gone = status == HTTPStatus.NOT_FOUND and call.method == "DELETE"
    if status < HTTPStatus.MULTIPLE_CHOICES or is_gone:
        return None
    error, words = _words(said, is_rabbitmq=is_rabbitmq)
    if status == HTTPStatus.UNAUTHORIZED and error != _MAY_NOT:
        return BrokerProblem(Reason.AUTHENTICATION_FAILED, _not_known(words, access))
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return BrokerProblem(Reason.PERMISSION_DENIED, _denied(call, words, access))
    if words in _NO_VHOST and call != WHOAMI:
        if (error, words) == _HIDDEN:
            return BrokerProblem(Reason.PERMISSION_DENIED, _not_entered(access))
        return BrokerProblem(Reason.VHOST_MISSING, _no_vhost(access))
    return _failed(call, status, words, access)


def something_else(access: BrokerAccess, what: str) -> BrokerProblem:
    """The problem that somebody answers who is not RabbitMQ's management API."""
    message = f"{access.management_url}: {what}; is it the management API? Set spec.broker.managementUrl"
    return BrokerProblem(Reason.UNREACHABLE, message)


def not_empty(access: BrokerAccess, queue: str, messages: int) -> BrokerProblem:
    """The problem that a queue has messages."""
    count = f"{messages} message{'' if messages == 1 else 's'}" if messages else "messages"
    message = f'{access.vhost_id}: queue "{queue}" has {count}; consume or move them, or purge it'
    return BrokerProblem(Reason.NOT_EMPTY, message)


def not_counted(access: BrokerAccess, queue: str) -> BrokerProblem:
    """The problem that nobody knows whether a queue has messages."""
    message = (
        f'{access.vhost_id}: the broker does not tell how many messages queue "{queue}" has; start its nodes'
    )
    return BrokerProblem(Reason.NOT_EMPTY, message)


def marked(access: BrokerAccess, queue: str, mark: Mark, owner: str) -> BrokerProblem:
    """The problem that another listener than `owner` has marked a queue."""
    of = f" of installation {mark.installation}" if mark.installation else ""
    other = described("OutboxListener", mark.owner, owner.partition("/")[0])
    message = (
        f'{access.vhost_id}: queue "{queue}" is bound by {other}{of} too; '
        "delete that one first, or remove its bindings"
    )
    return BrokerProblem(Reason.IN_USE, message)


def _words(said: object, *, is_rabbitmq: bool) -> tuple[str, str]:
    """The kind of error and the broker's own words."""
    if not isinstance(said, dict):
        return "", ""
    error, words = (each if isinstance(each := said.get(key), str) else "" for key in ("error", "reason"))
    return error, words[:_LONGEST_WORDS] if is_rabbitmq or words in _KNOWN_WORDS else ""


def _failed(call: Call, status: int, words: str, access: BrokerAccess) -> BrokerProblem:
    if call.method != "GET":
        # A server error too: it may concern this object only, and the next snapshot tells more.
        why = words or f"it answers {status}; look at the broker's log"
        return BrokerProblem(call.refusal, f"{access.vhost_id}: could not {call.what}: {why}")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        message = f"{access.management_url} fails with {status} {words}".rstrip()
        return BrokerProblem(Reason.UNREACHABLE, f"{message}; look at the broker's log")
    return something_else(access, f"it answers {status}")


def _not_known(words: str, access: BrokerAccess) -> str:
    return (
        f'user "{access.username}" is refused by {access.management_url} ({words or "unauthorized"}): '
        "the name or the password is wrong; correct the Secret"
    )


def _no_vhost(access: BrokerAccess) -> str:
    return (
        f'vhost "{access.vhost}" does not exist on {access.management_url}; make it '
        "(rabbitmqctl add_vhost), or correct spec.broker.vhost or the Secret"
    )


def _not_entered(access: BrokerAccess) -> str:
    return (
        f'user "{access.username}" may not enter vhost "{access.vhost}": give it permissions there '
        "(rabbitmqctl set_permissions)"
    )


def _denied(call: Call, words: str, access: BrokerAccess) -> str:
    user, vhost = f'user "{access.username}"', f'vhost "{access.vhost}"'
    match words:
        case _Words.NO_MANAGEMENT:
            return (
                f"{user} may not use the management API of {access.management_url}: give it "
                "the tag management, or administrator to have a broker user for each resource "
                "(rabbitmqctl set_user_tags)"
            )
        case _Words.LOCALHOST_ONLY:
            return f"{user} may only log in via localhost of the broker; make another user for the operator"
        case _Words.NO_ADMINISTRATOR:
            return f"{user} may not {call.what}: give it the tag administrator (rabbitmqctl set_user_tags)"
        case _Words.NO_ACCESS:
            return _not_entered(access)
        case _:
            return (
                f"{user} may not {call.what} in {vhost} ({words or 'forbidden'}): give it the configure, "
                "write and read permissions there (rabbitmqctl set_permissions)"
            )
