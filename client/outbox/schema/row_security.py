"""Whether row-level security hides messages from the role that looks at the table.

Hidden rows cause no error: a relay finds nothing to send, and what it deletes or updates is still there.
"""

from collections.abc import Iterator, Sequence

from outbox.schema.observation import ObservedPolicy, ObservedRowSecurity, ObservedTable
from outbox.schema.problem import Problem
from outbox.table import TableName, quote_identifier


def row_security_problems(observed: ObservedTable, table: TableName) -> Iterator[Problem]:
    """The problem of the current role, if it is shown no rows or maybe not all of them."""
    security = observed.row_security
    if security is None:
        return
    role, cure = quote_identifier(security.role), showing_cure(table, security, "relay")
    if hidden := rows_hidden(security):
        yield Problem(
            "rows_hidden_from_role",
            security.role,
            f"table {table.sql}: {hidden}, so that a relay with this role sends nothing; {cure}",
        )
    elif filtering := _filtering(security):
        names = ", ".join(map(quote_identifier, filtering))
        yield Problem(
            "rows_filtered_for_role",
            security.role,
            f"table {table.sql}: row-level security may hide rows from role {role}, and a relay with this "
            f"role never sends these, by the conditions of {names}; unless that is intended, {cure}",
        )


def rows_hidden(security: ObservedRowSecurity) -> str | None:
    """From which statements every row is hidden; None if from none of those that the role is granted."""
    hidden = [command for command in security.commands if _hides_all(_applying(security, command))]
    if not hidden:
        return None
    role = quote_identifier(security.role)
    return f"row-level security hides every row from {', '.join(hidden)} of role {role}"


def _applying(security: ObservedRowSecurity, command: str) -> list[ObservedPolicy]:
    return [
        policy
        for policy in security.policies
        if policy.applies and policy.command in (command, "ALL") and policy.condition is not None
    ]


def _hides_all(policies: Sequence[ObservedPolicy]) -> bool:
    """True if no policy shows a row; of conditions only `false` is known to hold for none."""
    shown = any(policy.permissive and policy.condition != "false" for policy in policies)
    return not shown or any(not policy.permissive and policy.condition == "false" for policy in policies)


def _filtering(security: ObservedRowSecurity) -> list[str]:
    """The policies whose conditions decide which rows the role is shown."""
    names: dict[str, None] = {}
    for command in security.commands:
        policies = _applying(security, command)
        is_shown_all = any(policy.permissive and policy.condition == "true" for policy in policies)
        for policy in policies:
            if policy.condition != "true" and not (policy.permissive and is_shown_all):
                names[policy.name] = None
    return list(names)


def showing_cure(table: TableName, security: ObservedRowSecurity, program: str) -> str:
    """What shows all rows to the role, with a policy named after the program that needs it."""
    role = quote_identifier(security.role)
    restrictive = [policy for policy in security.policies if policy.applies and not policy.permissive]
    if any(policy.condition not in (None, "true") for policy in restrictive):
        # No further policy shows what a restrictive one hides.
        return f"have a superuser run ALTER ROLE {role} BYPASSRLS"
    taken = {policy.name for policy in security.policies}
    suffixes = (program, *(f"{program}_{number}" for number in range(2, len(taken) + 3)))
    name = next(name for name in map(table.derived, suffixes) if name not in taken)
    return f"run CREATE POLICY {quote_identifier(name)} ON {table.sql} TO {role} USING (true)"
