"""Everything about the operator that whoever installs it can choose, and how the environment spells it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from outbox_core.environment import SettingError, settings_of
from outbox_operator.allowed_hosts import AllowedHosts
from outbox_operator.resources.references import AdministratorSecretRef

_SHARES = 4
"""How many namespaces it takes at least to keep the operator from all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the operator."""

    relay_image: str = "outbox-relay:latest"
    """The image of relays whose resource names none."""
    namespaces: tuple[str, ...] = ()
    """The namespaces to watch; the whole cluster where there are none."""
    lease_namespace: str = "default"
    """The operator's own namespace: that of the Lease by which one of several replicas leads, and of the
    Secrets of administrators."""
    lease_name: str = "outbox-operator"
    """The Lease's name."""
    identity: str = ""
    """This replica among the others; the host's name where it is empty."""
    hands: int = 64
    """How many resources are looked at at the same time; at most a quarter of them are of one namespace."""
    drift_seconds: float = 30
    """How often the objects on a broker are compared with what they should be."""
    tier_grace_seconds: float = 300
    """How long a delay tier is kept that no listener needs any more: pods of before may still use it."""
    user_grace_seconds: float = 60
    """How long the broker user of a deleted resource stays: its pods may have something under way."""
    give_up_seconds: float = 300
    """How long a deletion waits for a broker that cannot be reached."""
    count_seconds: float = 10
    """How late a broker may count the messages in a queue: RabbitMQ does so every 5 s for quorum queues."""
    installation: str = ""
    """Tells this installation from others on the same broker; the uid of its Lease where it is empty."""
    allowed_hosts: tuple[str, ...] = ()
    """The hosts of brokers and databases that resources may name, as names, `*.NAME`, addresses or networks;
    all of them where there are none."""
    administrator_secrets: tuple[str, ...] = ()
    """The Secrets in the operator's own namespace that resources may name as administrators of a broker."""
    require_tls: bool = False
    """Refuse brokers and databases to which a connection without TLS would do."""
    network_policies: bool = False
    """Make a NetworkPolicy for the pods: nobody reaches them but for their metrics and probes."""

    @property
    def hands_of_a_namespace(self) -> int:
        """How many resources of one namespace are looked at at the same time."""
        return max(1, self.hands // _SHARES)

    def administrator_place(self, reference: AdministratorSecretRef | None) -> tuple[str, str] | None:
        """The namespace and name of a Secret that a resource may name as an administrator's; else None."""
        is_listed = reference is not None and reference.name in self.administrator_secrets
        return (self.lease_namespace, reference.name) if reference and is_listed else None

    def __post_init__(self) -> None:
        for name in ("hands", "drift_seconds"):
            if getattr(self, name) <= 0:
                raise SettingError(f"{name} must be more than 0, got {getattr(self, name)!r}")
        AllowedHosts.parse(self.allowed_hosts)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings that `OUTBOX_…` variables give: each has the name of its field, in capitals."""
    return settings_of(Settings, environment)
