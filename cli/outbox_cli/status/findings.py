"""What looks wrong in a picture, each with its cure. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from outbox_cli.cluster.place import Place
from outbox_cli.screen import age
from outbox_cli.status.picture import Picture, QueueState, RelayState, ResourceState

LONGEST_BACKLOG_SECONDS = 300.0
"""How long a message may be due before somebody should look."""

_SHORT_NAMES = {"OutboxRelay": "obr", "OutboxListener": "obl"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that looks wrong."""

    subject: str
    """What it is about."""
    problem: str
    """What is wrong."""
    cure: str
    """What to do; empty where the problem says it."""

    @property
    def line(self) -> str:
        return f"{self.subject}: {self.problem}" + (f"; {self.cure}" if self.cure else "")


def findings(picture: Picture, place: Place) -> list[Finding]:
    """All that looks wrong, with commands to type as they are at this place."""
    return [
        *(finding for relay in picture.relays for finding in _of_relay(relay, place)),
        *(finding for queue in picture.queues for finding in _of_queue(queue, place)),
    ]


def _of_relay(relay: RelayState, place: Place) -> Iterator[Finding]:
    table, resource = relay.table, relay.resource
    subject = _named(resource) if resource else f"table {table.name}" if table else relay.exchange
    yield from _of_resource(resource, subject)
    if table is None:
        return
    if table.parked:
        words = "messages list --state parked" + (f" --relay {resource.name}" if resource else "")
        yield Finding(
            subject,
            _counted(table.parked, "message is parked", "messages are parked"),
            f"see {_command(place, words, resource)}, and then `messages retry`",
        )
    oldest = table.oldest_seconds or 0
    if oldest > LONGEST_BACKLOG_SECONDS:
        pending = _counted(table.pending or 0, "pending message", "pending messages")
        yield Finding(
            subject,
            f"the oldest of {pending} has been due for {age(oldest)}",
            f"see {_describe(resource)} and the log of its pods"
            if resource
            else "see that a relay runs on it, and what its log says",
        )
    if (holder := table.horizon_holder) and holder.seems_long:
        yield Finding(
            subject,
            f"{table.dead_rows or 0:,} dead rows cannot be removed, because of {holder.description}",
            holder.cure,
        )


def _of_queue(queue: QueueState, place: Place) -> Iterator[Finding]:
    resource = queue.resource
    subject = _named(resource) if resource else f"queue {queue.queue}"
    yield from _of_resource(resource, subject)
    if queue.is_missing:
        yield Finding(
            subject,
            f'the broker has no queue "{queue.queue}"' if resource else "the broker has no such queue",
            "the operator makes it within a minute, unless its conditions say why not"
            if resource
            else "start its worker, which declares it, or import what `outbox topology` prints",
        )
    if queue.consumers == 0 and not (queue.may_rest and not queue.waiting):
        waiting = _counted(queue.waiting or 0, "message waits", "messages wait")
        yield Finding(
            subject,
            f"nobody consumes it, and {waiting}" if queue.waiting else "nobody consumes it",
            f"see {_describe(resource)}" if resource and resource.pods else "start its worker",
        )
    if queue.dead_letters:
        name = resource.name if resource else queue.queue
        yield Finding(
            subject,
            _counted(queue.dead_letters, "dead letter", "dead letters"),
            f"see {_command(place, f'dlq list {name}', resource)}, and then `dlq redrive`",
        )


def _of_resource(resource: ResourceState | None, subject: str) -> Iterator[Finding]:
    if resource is None:
        return
    if not resource.is_seen:
        yield Finding(
            subject,
            "the operator has not looked at it since it was changed",
            "see that the operator runs: `kubectl get pods -A -l app.kubernetes.io/name=outbox-operator`",
        )
    for problem in resource.problems:
        yield Finding(subject, problem, "")


def _named(resource: ResourceState) -> str:
    return f"{resource.kind} {resource.path}"


def _describe(resource: ResourceState) -> str:
    return f"`kubectl describe {_SHORT_NAMES[resource.kind]}/{resource.name} -n {resource.namespace}`"


def _command(place: Place, words: str, resource: ResourceState | None) -> str:
    return place.command(words, resource.namespace if resource else None)


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"
