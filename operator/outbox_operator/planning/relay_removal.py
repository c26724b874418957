"""What becomes of a relay's exchanges and their delay tiers when it is deleted. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outbox.topology import TopologyError, dead_letter_exchange, topology
from outbox_operator.broker.actions import RemoveExchange
from outbox_operator.broker.removal_plan import tier_removal, unused_tiers
from outbox_operator.broker.snapshot import BrokerProblem, ObservedBinding, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.neighbours import described
from outbox_operator.planning.removal import SKIP, Patience, Removal, released, remove_users, without_broker
from outbox_operator.resources import OutboxRelay
from outbox_operator.resources.relay import RelaySpec
from outbox_operator.resources.virtual_host import VirtualHost
from outbox_operator.subscriptions import exchange_of


@dataclass(frozen=True, slots=True)
class DepartingRelay:
    """A relay that is being deleted, and what was seen."""

    relay: OutboxRelay
    """The relay."""
    broker: Snapshot | BrokerProblem
    """The virtual host, or why it cannot be seen."""
    others: tuple[str, ...]
    """The paths of other relays with its exchange that stay."""
    heirs: tuple[str, ...]
    """The paths of those that are being deleted too, and whose business the exchange is then."""
    perhaps: tuple[str, ...]
    """The paths of relays with an exchange of that name, on a broker that nobody knows."""
    leaving: tuple[str, ...]
    """The paths of its listeners that are being deleted with it, and have something to remove."""
    needed_tiers: frozenset[str]
    """The delay tiers of listeners that stay."""
    shared_with: tuple[ObservedBinding, ...] = ()
    """The bindings to its exchanges and tiers of another installation, or of another relay's listeners."""
    installation: str = ""
    """The installation of this operator."""
    elsewhere: VirtualHost | None = None
    """The virtual host that its exchange is in, if it is for another one by now."""


def exchange_of_invalid(manifest: dict[str, Any]) -> str | None:
    """The exchange of a relay that cannot be read; None if not even that can be told."""
    spec = manifest.get("spec")
    if not isinstance(spec, dict):
        return None
    exchange = spec.get("exchange", RelaySpec.model_fields["exchange"].default)
    return exchange if isinstance(exchange, str) else None


def relay_removal(view: DepartingRelay, now: datetime, patience: Patience) -> Removal:
    """The next step."""
    relay, exchange = view.relay, view.relay.spec.exchange
    if end := relay_released(relay):
        return end
    if view.leaving:
        # They know the broker by this relay, and their messages die by its dead-letter exchange.
        listener = f"OutboxListener {view.leaving[0]}"
        return Removal(waiting_for=f'exchange "{exchange}": {listener} is being deleted and needs it')
    return _remove(view, now, patience)


def relay_released(relay: OutboxRelay) -> Removal | None:
    """The end of its deletion if that needs nothing from the broker."""
    if relay.status.exchange is None:
        # An exchange that it never had is not its to delete.
        return Removal()
    return released(relay, f'exchange "{relay.spec.exchange}"')


def _remove(view: DepartingRelay, now: datetime, patience: Patience) -> Removal:
    relay, exchange = view.relay, view.relay.spec.exchange
    if view.elsewhere is not None:
        where = f"in {view.elsewhere}, as the broker's Secret is for another virtual host by now"
        return Removal(given_up=f'exchange "{exchange}" was left {where}')
    if view.others:
        other = described("OutboxRelay", view.others[0], relay.metadata.namespace)
        return Removal(given_up=f'exchange "{exchange}" was left, as {other} has it too')
    broker = _unknown(view.perhaps[0], relay.metadata.namespace) if view.perhaps else view.broker
    if isinstance(broker, BrokerProblem):
        return without_broker(relay.metadata, broker, f'exchange "{exchange}"', now, patience)
    if view.shared_with:
        user = _user(view.shared_with[0], relay.metadata.namespace)
        return Removal(
            remove_users(relay, broker),
            stops_pods=True,
            given_up=f'exchange "{exchange}" was left, as {user} uses it too',
        )
    if view.heirs:
        return Removal(remove_users(relay, broker), stops_pods=True)
    return _remove_exchanges(view, broker)


def _user(binding: ObservedBinding, namespace: str) -> str:
    of = f" of installation {binding.installation}" if binding.installation else ""
    owner = binding.owner or ""
    return f"{described('OutboxListener', owner, namespace)}{of}" if "/" in owner else f"the operator{of}"


def _unknown(relay: str, namespace: str) -> BrokerProblem:
    return BrokerProblem(
        "Unknown",
        f"{described('OutboxRelay', relay, namespace)} may have it too, as nobody knows which broker that "
        "one is for; correct its credentials",
    )


def _remove_exchanges(view: DepartingRelay, snapshot: Snapshot) -> Removal:
    relay, exchange = view.relay, view.relay.spec.exchange
    try:
        found = topology_actions(topology(exchange_of(relay), []), exchange, snapshot)
    except TopologyError as error:
        return Removal(given_up=str(error))
    if found.conflicts:
        return Removal(given_up=f"not deleted, as it is not what was made: {found.conflicts[0].message}")
    if_empty = relay.spec.deletion_policy == "DeleteIfEmpty"
    names = [name for name in (exchange, dead_letter_exchange(exchange)) if name in snapshot.exchanges]
    if if_empty and (waiting := _left(names, exchange, snapshot)):
        return Removal(waiting_for=f'exchange "{exchange}": {waiting}')
    tiers = unused_tiers(exchange, view.needed_tiers, snapshot, view.installation)
    return Removal(
        (
            *(action for name in tiers for action in tier_removal(name, snapshot, view.installation)),
            *(RemoveExchange(name, if_unused=if_empty) for name in names),
            *remove_users(relay, snapshot),
        ),
        stops_pods=True,
    )


def _left(exchanges: list[str], exchange: str, snapshot: Snapshot) -> str | None:
    """What is still bound to them, or waits in a delay tier that is ours."""
    leave = f"or set the annotation {SKIP} to leave the exchange behind"
    bound = sorted(
        queue
        for queue, bindings in snapshot.bindings.items()
        if any(each.binding.exchange in exchanges for each in bindings)
    )
    if bound:
        count = "1 queue is" if len(bound) == 1 else f"{len(bound):,} queues are"
        return f'{count} still bound to it, such as "{bound[0]}"; delete their listeners, {leave}'
    for name in sorted((*snapshot.queues, *snapshot.hidden_queues)):
        is_ours = any(each.owner == exchange for each in snapshot.bindings.get(name, ()))
        if not is_ours or snapshot.is_empty(name):
            continue
        if not snapshot.is_counted(name):
            unknown = f'the broker does not tell how many messages delay tier "{name}" has'
            return f"{unknown}; start its nodes, {leave}"
        return f'delay tier "{name}" has {snapshot.messages(name):,} messages; wait for them, {leave}'
    return None
