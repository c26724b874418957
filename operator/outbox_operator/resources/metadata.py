"""What Kubernetes itself keeps about an object, as far as the operator reads it."""

from datetime import datetime

from pydantic import Field

from outbox_operator.resources.part import Part


class Metadata(Part):
    """Standard object's metadata."""

    name: str
    """Its name."""
    namespace: str = "default"
    """Its namespace."""
    uid: str = ""
    """Tells it from an earlier object of the same name; empty where there is no cluster."""
    generation: int = 0
    """Counts the changes of its spec."""
    resource_version: str = ""
    """Changes with every write."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Its labels."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Its annotations."""
    finalizers: tuple[str, ...] = ()
    """Whoever must act before it is gone."""
    creation_timestamp: datetime | None = None
    """When it was made."""
    deletion_timestamp: datetime | None = None
    """When its deletion was asked for; None where it was not."""

    @property
    def path(self) -> str:
        """How it is named in messages and logs: `namespace/name`."""
        return f"{self.namespace}/{self.name}"
