"""Which namespace may use an administrator of a broker, whose Secret is in the operator's namespace. Pure."""

import re

from outbox_operator.conditions import Finding
from outbox_operator.resources.condition import ConditionStatus, ConditionType
from outbox_operator.secret_values import SecretValues, UnusableSecretError

NAMESPACES = "namespaces"
"""The key with lines `NAMESPACE: VHOST`."""

_MOST_BYTES = 512 * 1024
_NAMESPACE = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def granted_vhosts(values: SecretValues, namespace: str) -> frozenset[str]:
    """The virtual hosts that a namespace may use the administrator for."""
    text = values.text(NAMESPACES, most_bytes=_MOST_BYTES)
    if not text:
        raise UnusableSecretError(
            "KeyMissing",
            f"{values.described} has no {NAMESPACES}, which says who may use it: it has {values.keys}; "
            "add it, with lines NAMESPACE: VHOST",
        )
    granted = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, vhost = (part.strip() for part in line.partition(":"))
        if not vhost or not _NAMESPACE.fullmatch(name):
            # A line that is skipped could be the one that its author relies on.
            raise values.invalid(NAMESPACES, f"has a line {number} that is not NAMESPACE: VHOST; correct it")
        if name == namespace:
            granted.add(vhost)
    return frozenset(granted)


def not_allowed(name: str, namespace: str, vhost: str) -> Finding:
    """Whatever the reason is: which administrators there are, and whose, is nothing to a tenant."""
    return Finding(
        ConditionType.CREDENTIALS_VALID,
        ConditionStatus.FALSE,
        "AdministratorNotAllowed",
        f'namespace "{namespace}" may not use administrator "{name}" for vhost "{vhost}"; have whoever runs '
        "the operator list that Secret in settings.administratorSecrets, and the line "
        f'"{namespace}: {vhost}" in its key {NAMESPACES}',
    )
