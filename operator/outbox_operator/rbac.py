"""What the operator has to be allowed, and nothing more. The chart's roles follow from it."""

from dataclasses import dataclass
from typing import Any

from outbox_operator.cluster.kinds import (
    DEPLOYMENT,
    EVENT,
    LEASE,
    LISTENER,
    NETWORK_POLICY,
    POD,
    POD_DISRUPTION_BUDGET,
    POD_MONITOR,
    RELAY,
    SCALED_OBJECT,
    SECRET,
    TRIGGER_AUTHENTICATION,
    Kind,
)

_APPLY = ("create", "patch", "delete")
"""Server-side apply of what is not there is a creation too."""

_KEEP = ("get", *_APPLY)
"""Whoever would take over an object of that name has to look whose it is."""


@dataclass(frozen=True, slots=True)
class Right:
    """Something that may be done to objects of one kind."""

    kind: Kind
    """The kind."""
    verbs: tuple[str, ...]
    """What may be done."""
    subresource: str = ""
    """The part of the object that it is about; all of it where empty."""

    def manifest(self) -> dict[str, Any]:
        """As a rule of a Role."""
        resource = f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural
        return {"apiGroups": [self.kind.group], "resources": [resource], "verbs": list(self.verbs)}


RESOURCE_RIGHTS = (
    # Patched for their finalizers.
    Right(RELAY, ("list", "watch", "patch")),
    Right(RELAY, ("patch",), "status"),
    Right(LISTENER, ("list", "watch", "patch")),
    Right(LISTENER, ("patch",), "status"),
    # By name: a list of all Secrets is never asked for.
    Right(SECRET, ("get", "watch", *_APPLY)),
    Right(DEPLOYMENT, ("get", "list", "watch", *_APPLY)),
    Right(POD_DISRUPTION_BUDGET, _KEEP),
    Right(NETWORK_POLICY, _KEEP),
    Right(POD_MONITOR, _KEEP),
    Right(SCALED_OBJECT, _KEEP),
    Right(TRIGGER_AUTHENTICATION, _KEEP),
    # Why a pod does not come up, where it does not.
    Right(POD, ("list",)),
    Right(POD, ("get",), "log"),
    Right(EVENT, ("create",)),
)
"""In every namespace that is watched."""

ADMINISTRATOR_RIGHTS = (Right(SECRET, ("get", "watch")),)
"""In the operator's own namespace, for the Secrets of `settings.administratorSecrets` alone."""

LEASE_RIGHTS = (Right(LEASE, ("get", "create", "update")),)
"""In the operator's own namespace."""
