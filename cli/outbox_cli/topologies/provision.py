"""What the broker needs for the listeners of one relay: from manifests or from code. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outbox.listener import Listener
from outbox.topology import Binding, Topology, TopologyError, subscription, topology
from outbox_cli.dev.manifests import Manifests
from outbox_cli.failures import CommandError
from outbox_operator.broker.snapshot import OWNER
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.subscriptions import queues_of, subscription_of
from outbox_worker.settings import Settings


@dataclass(frozen=True, slots=True)
class Provision:
    """Exchanges, queues and bindings of one virtual host."""

    vhost: str
    """The virtual host."""
    topology: Topology
    """What must be there."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """Whose each queue is to the operator; empty where there are no resources."""

    def arguments_of(self, binding: Binding) -> dict[str, str]:
        """The operator's mark: where it comes later, it finds its own bindings and nothing to do."""
        return {OWNER: self.owners[binding.queue]} if binding.queue in self.owners else {}


def from_manifests(manifests: Manifests, relay: str | None, vhost: str | None) -> Provision:
    """For the OutboxListeners of an OutboxRelay: of the one of that name, or of the only one."""
    chosen = _relay(manifests.relays, relay)
    listeners = [each for each in manifests.listeners if _is_of(each, chosen)]
    exchange = chosen.spec.exchange
    try:
        wanted = topology(exchange, map(subscription_of, listeners))
    except TopologyError as error:
        raise CommandError(str(error)) from None
    owners = {queue: each.metadata.path for each in listeners for queue in queues_of(each)}
    # A tier belongs to all listeners of its exchange.
    tiers = {each.name: exchange for each in wanted.exchanges if each.kind == "fanout"}
    return Provision(vhost or chosen.spec.broker.vhost or "/", wanted, owners | tiers)


def from_code(listeners: Iterable[Listener[..., Any]], exchange: str, vhost: str | None) -> Provision:
    """For listeners as a worker with no other settings would declare them."""
    default = Settings().policy
    try:
        wanted = topology(exchange, [subscription(each, default) for each in listeners])
    except TopologyError as error:
        raise CommandError(str(error)) from None
    return Provision(vhost or "/", wanted)


def _relay(relays: Sequence[OutboxRelay], name: str | None) -> OutboxRelay:
    found = [each for each in relays if name in (None, each.metadata.name)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(each.metadata.name for each in relays) or "none"
    if found:
        raise CommandError(f"the manifests have several OutboxRelays; name one with --relay: {names}")
    raise CommandError(f"the manifests have no OutboxRelay {name or 'at all'}; they have: {names}")


def _is_of(listener: OutboxListener, relay: OutboxRelay) -> bool:
    mine = listener.metadata.namespace, listener.spec.relay_ref.name
    return mine == (relay.metadata.namespace, relay.metadata.name)
