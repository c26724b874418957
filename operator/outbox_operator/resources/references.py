"""References from one resource to another in the same namespace."""

from typing import Annotated, TypeAlias

from pydantic import Field

from outbox_operator.resources.part import Part

ObjectName: TypeAlias = Annotated[str, Field(min_length=1, max_length=253)]
"""What Kubernetes lets an object be called."""


class SecretRef(Part):
    """A Secret in the same namespace."""

    name: ObjectName
    """The name of the Secret."""


class AdministratorSecretRef(Part):
    """A Secret in the operator's namespace."""

    name: ObjectName
    """The name of the Secret, which `settings.administratorSecrets` of the operator's chart has to list."""


class SecretKeyRef(Part):
    """A key of a Secret in the same namespace."""

    name: ObjectName
    """The name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253)] = "ca.crt"
    """The key in it that holds PEM certificates."""


class RelayRef(Part):
    """An OutboxRelay in the same namespace."""

    name: ObjectName
    """The name of the OutboxRelay."""
