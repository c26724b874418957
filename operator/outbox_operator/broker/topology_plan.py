"""What has to be done for a topology to be on the broker: from what is wanted and what is there. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outbox.topology import Binding, Topology
from outbox_operator.broker.actions import Action, MakeBinding, MakeExchange, MakeQueue, RemoveBinding
from outbox_operator.broker.conflicts import Conflict, conflicts_with
from outbox_operator.broker.policies import PolicyConflict, policy_conflicts
from outbox_operator.broker.snapshot import Mark, ObservedBinding, Snapshot

__all__ = ["Conflict", "PolicyConflict", "TopologyPlan", "topology_actions"]

_ALTERNATE = "alternate-exchange"
"""It takes what no queue is bound for, and that counts as sent: not to bind a queue would lose messages."""


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """What follows from what is wanted and what is there."""

    actions: tuple[Action, ...]
    """What is missing or too much, in the order to do it in."""
    conflicts: tuple[Conflict, ...]
    """What stands in the way and is left alone."""
    policies: tuple[PolicyConflict, ...] = ()
    """What policies do to these objects that loses or misroutes messages."""
    hidden: tuple[str, ...] = ()
    """The queues that exist and of which the broker tells nothing else now."""


def topology_actions(
    desired: Topology, owner: str, snapshot: Snapshot, installation: str = ""
) -> TopologyPlan:
    """What it takes for all of `desired` to be there, and no old binding of `owner`, a listener or a relay.

    What is in conflict is not bound: messages would go where they are handled in another way, or are lost.
    """
    conflicts = tuple(conflicts_with(desired, snapshot))
    policies = tuple(policy_conflicts(desired, snapshot))
    wrong: set[tuple[str, str]] = {
        (each.kind, each.name) for each in conflicts if each.argument != _ALTERNATE
    }
    wrong |= {(each.kind, each.name) for each in policies if each.key != _ALTERNATE}
    bindings = [
        binding
        for binding in desired.bindings
        if wrong.isdisjoint(
            {("exchange", binding.exchange), ("queue", binding.queue), ("binding", binding.routing_key)}
        )
    ]
    main = next((each.name for each in desired.exchanges if each.kind == "topic"), "")
    actions: list[Action] = [
        *(MakeExchange(each) for each in desired.exchanges if each.name not in snapshot.exchanges),
        *(MakeQueue(each) for each in desired.queues if not snapshot.exists(each.name)),
        *_missing_bindings(bindings, main, owner, snapshot, installation),
        # After the new ones: where `a.*` replaces `a.b`, no message of `a.b` is lost in between.
        *_old_bindings(bindings, main, owner, snapshot, installation),
    ]
    hidden = tuple(each.name for each in desired.queues if each.name in snapshot.hidden_queues)
    return TopologyPlan(tuple(actions), conflicts, policies, hidden)


def _missing_bindings(
    bindings: Sequence[Binding], main: str, owner: str, snapshot: Snapshot, installation: str
) -> Iterator[MakeBinding]:
    for binding in bindings:
        there = [each for each in _bindings_of(binding.queue, snapshot) if each.binding == binding]
        if binding.exchange == binding.queue != main:
            # A tier belongs to all listeners of its exchange, whichever came first, and stays while any
            # installation has marked it.
            if all(each.mark not in (None, Mark(main, installation)) for each in there):
                yield MakeBinding(binding, main, installation)
        elif not any(each.is_of(owner, installation) for each in there):
            # Somebody else's goes when they like: ours is made beside it.
            yield MakeBinding(binding, owner, installation)


def _old_bindings(
    bindings: Sequence[Binding], main: str, owner: str, snapshot: Snapshot, installation: str
) -> Iterator[RemoveBinding]:
    wanted = {binding for binding in bindings if binding.exchange == main}
    # Once for each queue, in the order of the plan.
    for queue in dict.fromkeys(binding.queue for binding in bindings if binding in wanted):
        for each in _bindings_of(queue, snapshot):
            is_ours = each.is_of(owner, installation) and each.binding.exchange == main
            if is_ours and each.binding not in wanted:
                yield RemoveBinding(each.binding, each.properties_key)


def _bindings_of(queue: str, snapshot: Snapshot) -> tuple[ObservedBinding, ...]:
    # The listings of a snapshot are not of the same moment: a queue that is gone has no bindings either.
    return snapshot.bindings.get(queue, ()) if snapshot.exists(queue) else ()
