"""What can go wrong with a call to the API server, told from its answer. Pure."""

import json
import re
from http import HTTPStatus
from typing import Any

from outbox_operator.cluster.kinds import SECRET, Kind

_LACKING = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
_MISSHAPEN = re.compile(r"failed to create typed patch object \([^)]*\): (?P<complaint>.+)", re.DOTALL)


class ClusterError(Exception):
    """A call to the API server failed."""

    outcome = "error"
    """What a metric calls it."""


class NotFoundError(ClusterError):
    """There is no such object, or no such kind."""

    outcome = "not_found"


class ConflictError(ClusterError):
    """Somebody else wrote it first, or owns a field that was to be written."""

    outcome = "conflict"


class ForbiddenError(ClusterError):
    """The operator's Role does not allow it."""

    outcome = "forbidden"


class RefusedError(ClusterError):
    """The API server does not take the object."""

    outcome = "refused"


class GoneError(ClusterError):
    """The version that was asked for is too old to be known."""

    outcome = "gone"


class BusyError(ClusterError):
    """The API server cannot answer now: too many calls, or trouble of its own."""

    outcome = "busy"


class MalformedError(BusyError):
    """The answer is nothing that an API server would say: a proxy's page, or worse."""

    outcome = "malformed"


class UnreachableError(ClusterError):
    """There is no answer."""

    outcome = "unreachable"


class TimedOutError(UnreachableError):
    """There is no answer in time. A write may have happened."""

    outcome = "timeout"


class NotLeaderError(ClusterError):
    """This process does not lead, or may not any more: it has no business writing."""

    outcome = "not_leader"


_ERRORS: dict[int, tuple[type[ClusterError], str]] = {
    HTTPStatus.NOT_FOUND: (NotFoundError, "not found"),
    HTTPStatus.CONFLICT: (ConflictError, "somebody else wrote it meanwhile"),
    HTTPStatus.GONE: (GoneError, "that version is gone"),
    HTTPStatus.TOO_MANY_REQUESTS: (BusyError, "the API server has too many calls; try again later"),
}


def refusal(status: int, body: bytes, what: str, kind: Kind | None) -> ClusterError:
    """The error that an answer with this status means; `what` names the object."""
    answer = _status(body)
    words = _reason(answer) if kind is SECRET else _words(answer)
    if misshapen := _MISSHAPEN.match(words):
        # A field that it does not know in what is applied is an internal error (500) to the API server, and
        # no better the next time.
        return RefusedError(f"{what}: {misshapen['complaint']}")
    match status:
        case HTTPStatus.FORBIDDEN:
            return _forbidden(what, str(answer.get("message", "")), words)
        case HTTPStatus.UNAUTHORIZED:
            return ForbiddenError(
                f"{what}: the API server does not know who asks; check the service account's token "
                f"or the user in KUBECONFIG"
            )
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return BusyError(f"{what}: the API server answers {status}; {words or 'try again later'}")
        case _:
            error, otherwise = _ERRORS.get(status, (RefusedError, f"the API server answers {status}"))
            return error(f"{what}: {words or otherwise}")


def _forbidden(what: str, message: str, words: str) -> ClusterError:
    lacking = _LACKING.search(message)
    if lacking is None:
        # Not a matter of the Role: a quota, pod security, or a namespace that is being deleted.
        return RefusedError(f"{what}: {words or 'refused by a policy of the cluster'}")
    resource = ".".join(part for part in (lacking["resource"], lacking["group"]) if part)
    namespace = lacking["namespace"]
    where, role = (f"in namespace {namespace}", "Role") if namespace else ("in all namespaces", "ClusterRole")
    return ForbiddenError(
        f"{what}: the operator may not {lacking['verb']} {resource} {where}; add that to its {role}"
    )


def _status(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        # A proxy's page, which says nothing about the object.
        return {}
    return answer if isinstance(answer, dict) else {}


def _words(answer: dict[str, Any]) -> str:
    return str(answer.get("message") or "")


def _reason(answer: dict[str, Any]) -> str:
    """Which fields, and not what is in them: the words about a Secret may cite it."""
    match answer.get("details"):
        case {"causes": [*causes]}:
            named = {
                str(cause["field"]) for cause in causes if isinstance(cause, dict) and cause.get("field")
            }
        case _:
            named = set()
    fields = ", ".join(sorted(named))
    reason = str(answer.get("reason") or "")
    return f"{reason}: {fields}" if fields else reason
