"""The words for what a look at a database may find. Pure."""

import socket
from collections.abc import Sequence

import asyncpg

from outbox.schema import Problem
from outbox.table import TableName, quote_identifier
from outbox_core.database import (
    AccessDeniedError,
    AuthenticationError,
    DatabaseError,
    DatabaseMissingError,
    TLSError,
    UnreachableError,
    connect_arguments,
    is_lost,
)
from outbox_core.horizon_holder import MANY_DEAD_ROWS, Holder, HolderKind
from outbox_operator.conditions import Finding
from outbox_operator.resources.condition import ConditionStatus, ConditionType

ENTERED = Finding(ConditionType.CREDENTIALS_VALID, ConditionStatus.TRUE, "Valid")
"""The server knows the user."""

READY = Finding(ConditionType.DATABASE_READY, ConditionStatus.TRUE, "TableReady")
"""A relay can work with the table."""


FAILED = Finding(
    ConditionType.DATABASE_READY,
    ConditionStatus.UNKNOWN,
    "InternalError",
    "the operator failed at what the database answered, and tries again; its log has the error. See that the "
    "Secret of spec.database.secretRef leads to Postgres",
)
"""Something unexpected was raised."""


def not_entered(error: DatabaseError, url: str) -> tuple[Finding, ...]:
    """What follows from a connection that could not be made."""
    match error:
        case AuthenticationError():
            return _shut_out("AuthenticationFailed", str(error))
        case DatabaseMissingError():
            # The server asks for the password first.
            return ENTERED, _unready("DatabaseMissing", str(error))
        case AccessDeniedError():
            return ENTERED, _unready("PermissionDenied", str(error))
        case UnreachableError() | TLSError():
            return _shut_out("Unreachable", f"{error}{_service_hint(error, url)}")
        case _:
            return _shut_out("InvalidUri", str(error))


def files_refused(parameters: Sequence[str]) -> tuple[Finding, ...]:
    """That the URL names files, which are those of pods: the operator opens none that a resource names."""
    message = (
        f"the database URL names files ({', '.join(parameters)}), and the operator opens none that a "
        "resource names, so it cannot look; the pods themselves can, if they mount them. For a private CA, "
        "leave these parameters out and set spec.database.caSecretRef"
    )
    return _shut_out("FileMissing", message, ConditionStatus.UNKNOWN)


def _service_hint(error: DatabaseError, url: str) -> str:
    host = connect_arguments(url).get("host")
    if not isinstance(error.__cause__, socket.gaierror) or not isinstance(host, str):
        return ""
    match host.split("."):
        case [service, namespace, "svc"]:
            return f". There is no Service {service} in namespace {namespace}"
        case _:
            return ""


def failed(error: Exception, where: str) -> Finding:
    """What follows from a statement that failed."""
    if isinstance(error, TimeoutError | asyncpg.QueryCanceledError | asyncpg.LockNotAvailableError):
        return _unknown("Timeout", f"{where}: no answer in time; a migration may have locked the table")
    if is_lost(error):
        return _unknown("Unreachable", f"{where}: the connection was lost: {_words(error)}")
    return _unready("QueryFailed", f"{where}: {_words(error)}; the server's log says more")


def read_only(where: str) -> Finding:
    """That the server takes no changes."""
    return _unready("ReadOnly", f"{where} takes no changes; name the primary's host and not a standby's")


def may_not_make(error: Exception, where: str, table: TableName, role: str) -> Finding:
    """That the role may neither find the table nor make it."""
    return _unready(
        "PermissionDenied",
        f"{where}: role {quote_identifier(role)} can neither find nor make table {table}: {_words(error)}; "
        "grant it USAGE and CREATE on the schema, or make the table in a migration with "
        "outbox.schema.create_sql() and grant it USAGE alone",
    )


def no_schema(error: Exception, where: str, role: str) -> Finding:
    """That there is no schema to make the table in."""
    return _unready(
        "SchemaMissing",
        f"{where}: {_words(error)}; create the schema, or correct spec.database.table or the search_path of "
        f"role {quote_identifier(role)}",
    )


def unusable(problems: Sequence[Problem], where: str, table: TableName) -> Finding:
    """That the table is missing, or not as it should be."""
    if problems[0].kind == "missing_table":
        return _unready(
            "SchemaMissing",
            f"{where}: table {table} does not exist; run outbox.schema.create_sql() in a migration, or set "
            "spec.database.manageSchema to Create",
        )
    by_kind: dict[str, list[str]] = {}
    for problem in problems:
        by_kind.setdefault(problem.kind.replace("_", " "), []).append(problem.object)
    flaws = "; ".join(f"{kind} {', '.join(names)}" for kind, names in by_kind.items())
    # A problem's message ends with its cure, which is the same for most of them.
    cures = " and ".join(dict.fromkeys(problem.message.rpartition("; ")[2] for problem in problems))
    return _unready("SchemaOutdated", f"{where}: table {table}: {flaws}; as its owner, {cures}")


def may_not_use(rights: Sequence[str], where: str, table: TableName, role: str) -> Finding:
    """That the role lacks rights which a relay needs."""
    lacking, quoted = ", ".join(rights), quote_identifier(role)
    return _unready(
        "PermissionDenied",
        f"{where}: role {quoted} lacks {lacking} on table {table}; "
        f"run GRANT {lacking} ON {table} TO {quoted}",
    )


_HELD = {
    HolderKind.SESSION: "HeldBySession",
    HolderKind.PREPARED_TRANSACTION: "HeldByPreparedTransaction",
    HolderKind.REPLICATION_SLOT: "HeldByReplicationSlot",
    HolderKind.STANDBY: "HeldByStandby",
}


def vacuum_held(holder: Holder, table: TableName) -> Finding:
    """That dead rows stay in the table. The message is the same for as long as the holder is."""
    return Finding(
        ConditionType.VACUUM_EFFECTIVE,
        ConditionStatus.FALSE,
        _HELD[holder.kind],
        f"more than {MANY_DEAD_ROWS:,} dead rows of table {table} cannot be removed, because of "
        f"{holder.description}; {holder.cure}",
    )


def _words(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _shut_out(
    reason: str, message: str, status: ConditionStatus = ConditionStatus.FALSE
) -> tuple[Finding, ...]:
    refused = Finding(ConditionType.CREDENTIALS_VALID, status, reason, message)
    return refused, _unknown(reason, "the database could not be looked at; another condition says why")


def _unready(reason: str, message: str) -> Finding:
    return Finding(ConditionType.DATABASE_READY, ConditionStatus.FALSE, reason, message)


def _unknown(reason: str, message: str) -> Finding:
    return Finding(ConditionType.DATABASE_READY, ConditionStatus.UNKNOWN, reason, message)
