"""From listeners in the code to OutboxListener manifests. Pure."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias

from pydantic import ValidationError

from outbox.listener import Listener
from outbox.retry import NoRetry
from outbox_cli.failures import CommandError
from outbox_operator import durations
from outbox_operator.resources import API_GROUP, API_VERSION, OutboxListener

Manifest: TypeAlias = dict[str, Any]

_NOT_IN_A_LABEL = re.compile("[^a-z0-9]+")
_LONGEST_LABEL = 63


@dataclass(frozen=True, slots=True)
class Known:
    """What the code knows of an OutboxListener."""

    name: str
    """What the resource is called."""
    handler: str
    """The listener, as module:name."""
    binding_keys: tuple[str, ...]
    """Its topics."""
    queue: str | None
    """Its queue; None where the code leaves it to others."""
    retry_delays: tuple[timedelta, ...] | None
    """Its retries; None where the code leaves them to others."""
    ordered: bool
    """Whether it handles one message at a time."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What the code does not know."""

    relay: str
    """The OutboxRelay to listen to."""
    image: str
    """The image with the code in it."""
    namespace: str | None = None
    """The namespace; None leaves it to whoever applies the manifest."""


def known(listeners: Iterable[Listener[..., Any]], modules: Sequence[str]) -> list[Known]:
    """What the code says; `modules` are those that the listeners were asked for of.

    Those of one function and queue are one resource with several topics.
    """
    by_queue: dict[str, list[Listener[..., Any]]] = {}
    for listener in listeners:
        by_queue.setdefault(listener.queue, []).append(listener)
    return _told_apart([_known(several, modules) for several in by_queue.values()])


def manifest(each: Known, deployment: Deployment) -> Manifest:
    """The resource, as the API server would take it; a `CommandError` says what it would not take."""
    spec: Manifest = {"relayRef": {"name": deployment.relay}, "bindingKeys": list(each.binding_keys)}
    if each.queue is not None:
        spec["queue"] = each.queue
    if each.retry_delays is not None:
        spec["retryDelays"] = [durations.format(delay) for delay in each.retry_delays]
    if each.ordered:
        spec["ordered"] = True
    spec |= {"handler": each.handler, "worker": {"image": deployment.image}}
    namespace = {"namespace": deployment.namespace} if deployment.namespace else {}
    made = {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "OutboxListener",
        "metadata": {"name": each.name, **namespace},
        "spec": spec,
    }
    try:
        OutboxListener.model_validate(made)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CommandError(f"{each.handler}: {where}: {first['msg'].removeprefix('Value error, ')}") from None
    return made


def _known(listeners: Sequence[Listener[..., Any]], modules: Sequence[str]) -> Known:
    first = listeners[0]
    handlers = [_handler(each, modules) for each in listeners]
    for each, handler in zip(listeners[1:], handlers[1:], strict=True):
        if each.callback is not first.callback:
            raise CommandError(
                f'{handlers[0]} and {handler} share queue "{first.queue}", and an OutboxListener has one '
                "handler; give them queues of their own"
            )
    handler = handlers[0]
    # Without a policy of its own, this one comes back.
    policy = first.policy(_NONE)
    return Known(
        name=_label(handler.rpartition(":")[2]),
        handler=handler,
        binding_keys=tuple(dict.fromkeys(each.binding_key for each in listeners)),
        queue=None if first.queue == replace(first, queue="").queue else first.queue,
        retry_delays=None if policy is _NONE else policy.delays(),
        ordered=first.ordered,
    )


_NONE = NoRetry()


def _handler(listener: Listener[..., Any], modules: Sequence[str]) -> str:
    """Where the worker finds it again: the name of the listener, which need not be that of its function."""
    function = f"{listener.callback.__module__}:{getattr(listener.callback, '__qualname__', '?')}"
    for module in (listener.callback.__module__, *modules):
        for name, value in vars(sys.modules[module]).items():
            if value is listener:
                return f"{module}:{name}"
    raise CommandError(f"{function}: no module has the listener by a name; assign it to one in {modules[0]}")


def _told_apart(found: list[Known]) -> list[Known]:
    """With the module in front of names that several have."""
    counts = Counter(each.name for each in found)
    return [replace(each, name=_label(each.handler)) if counts[each.name] > 1 else each for each in found]


def _label(text: str) -> str:
    """A text as the name of a resource: a DNS label."""
    label = _NOT_IN_A_LABEL.sub("-", text.lower()).strip("-")
    return label[-_LONGEST_LABEL:].strip("-")
