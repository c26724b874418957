"""How broker objects go so that no message goes with them. Pure."""

import re
from collections.abc import Collection
from datetime import timedelta

from outbox.topology import Subscription, TopologyError, tier_name, topology
from outbox_operator.broker.actions import Action, RemoveBinding, RemoveExchange, RemoveQueue
from outbox_operator.broker.conflicts import is_as_wanted
from outbox_operator.broker.snapshot import Snapshot

_SUFFIX = re.compile(r"\.delay_([0-9]{1,8})(ms|s)")
_UNITS = {"s": timedelta(seconds=1), "ms": timedelta(milliseconds=1)}


def unused_tiers(
    exchange: str, needed: Collection[str], snapshot: Snapshot, installation: str = ""
) -> tuple[str, ...]:
    """The delay tiers of `exchange` that we made, that nobody needs, and that are empty, sorted.

    `needed` are the names of those that listeners need. One that another installation has marked too is
    among them: our own mark is what goes.
    """
    candidates = [
        name
        for name in snapshot.queues
        if snapshot.is_empty(name)
        and name not in needed
        and name.startswith(exchange)
        and _SUFFIX.fullmatch(name, len(exchange))
    ]
    if not candidates:
        return ()
    # Who has bound another queue to the exchange of a tier uses it.
    shared = {
        each.binding.exchange
        for queue, bindings in snapshot.bindings.items()
        for each in bindings
        if each.binding.exchange != queue
    }
    return tuple(
        sorted(
            name
            for name in candidates
            if name not in shared
            and (_is_marked(name, exchange, snapshot, installation) or _is_left(name, exchange, snapshot))
        )
    )


def tier_removal(name: str, snapshot: Snapshot, installation: str = "") -> tuple[Action, ...]:
    """How a tier goes, or our mark on one that another installation uses.

    The exchange first, since RabbitMQ cannot delete a quorum queue on the condition that it is empty: with it
    the way in is closed, and a worker that still wants it holds its message back. Where the queue has got a
    message all the same, it stays, delivers, and is an unused tier again when it is empty.
    """
    marks = [each for each in snapshot.bindings.get(name, ()) if each.binding.exchange == name]
    ours = [each for each in marks if each.installation in ("", installation)]
    if len(ours) < len(marks):
        return tuple(RemoveBinding(each.binding, each.properties_key) for each in ours)
    return (RemoveExchange(name), RemoveQueue(name, if_empty=True))


def binding_removal(
    queue: str, owner: str, snapshot: Snapshot, installation: str = ""
) -> tuple[RemoveBinding, ...]:
    """How the way into a listener's queue is closed: the bindings that `owner` made go, others stay."""
    return tuple(
        RemoveBinding(each.binding, each.properties_key)
        for each in snapshot.bindings.get(queue, ())
        if each.is_of(owner, installation)
    )


def open_bindings(
    letters: str, owner: str, snapshot: Snapshot, installation: str = ""
) -> tuple[RemoveBinding, ...]:
    """The bindings that `owner` made and by which dead letters reach their queue.

    Dead letters carry the name of their queue, so none takes a binding with that of the dead-letter queue.
    """
    bindings = binding_removal(letters, owner, snapshot, installation)
    return tuple(each for each in bindings if each.binding.routing_key != letters)


def _is_marked(name: str, exchange: str, snapshot: Snapshot, installation: str) -> bool:
    """Whether a tier has our mark, and none but operators bound it: a process that declares its own has bound
    it without a mark."""
    bindings = snapshot.bindings.get(name, ())
    return any(each.is_of(exchange, installation) for each in bindings) and all(
        each.owner == exchange and each.binding.exchange == name for each in bindings
    )


def _is_left(name: str, exchange: str, snapshot: Snapshot) -> bool:
    """Whether it is what is left of a tier whose removal was begun: our queue, without any way in."""
    if name in snapshot.exchanges or snapshot.bindings.get(name):
        return False
    found = _SUFFIX.fullmatch(name, len(exchange))
    if found is None:
        return False
    delay = int(found[1]) * _UNITS[found[2]]
    try:
        # Any subscription with this delay: only its tier is looked at.
        wanted = topology(exchange, [Subscription("any", ("#",), (delay,))])
    except TopologyError:
        return False
    return any(
        tier_name(exchange, delay) == queue.name == name and is_as_wanted(snapshot.queues[name], queue)
        for queue in wanted.queues
    )
