"""How a resource is called inside the operator."""

from dataclasses import dataclass
from typing import Literal

from outbox_operator.children.names import Owner
from outbox_operator.resources import OutboxRelay


@dataclass(frozen=True, slots=True)
class Key:
    """A resource, whatever it looks like at the moment."""

    kind: Literal["OutboxRelay", "OutboxListener"]
    """Which of the two."""
    namespace: str
    """Its namespace."""
    name: str
    """Its name."""

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"

    @classmethod
    def of(cls, owner: Owner) -> "Key":
        """That of a resource."""
        kind: Literal["OutboxRelay", "OutboxListener"]
        kind = "OutboxRelay" if isinstance(owner, OutboxRelay) else "OutboxListener"
        return cls(kind, owner.metadata.namespace, owner.metadata.name)
