"""Which virtual host an address leads to: one broker may have several addresses. Pure."""

from dataclasses import dataclass
from typing import Any

from outbox_operator.broker.access import VhostId

_CLUSTER_ID = "internal_cluster_id"


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """What a RabbitMQ cluster calls itself."""

    name: str
    """Its name, which whoever runs it chooses: two clusters may have the same."""
    id: str | None = None
    """The id that RabbitMQ drew for it; None if these credentials may not read it."""

    def may_be(self, other: "ClusterIdentity") -> bool:
        """False if the two are certainly different clusters."""
        return self.name == other.name and (None in (self.id, other.id) or self.id == other.id)


@dataclass(frozen=True, slots=True)
class VhostIdentity:
    """A virtual host by its address, and by its cluster once that has answered."""

    address: VhostId
    """How it is reached."""
    cluster: ClusterIdentity | None = None
    """The cluster behind the address; None if it never answered."""

    def is_same(self, other: "VhostIdentity") -> bool | None:
        """Whether both are one virtual host; None if that is not known."""
        if self.address.vhost != other.address.vhost:
            return False
        if self.address == other.address:
            return True
        if self.cluster is None or other.cluster is None:
            return None
        return self.cluster.may_be(other.cluster)


def parse_cluster(name: Any, global_parameters: Any) -> ClusterIdentity | None:
    """From `/api/cluster-name` and `/api/global-parameters`, each None if it was refused."""
    if not isinstance(name, dict) or not isinstance(name.get("name"), str):
        return None
    listed = global_parameters if isinstance(global_parameters, list) else []
    ids = [
        each["value"]
        for each in listed
        if isinstance(each, dict) and each.get("name") == _CLUSTER_ID and isinstance(each.get("value"), str)
    ]
    return ClusterIdentity(name["name"], ids[0] if ids else None)
