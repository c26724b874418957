"""OutboxListener: from an exchange to a queue, and where wanted to the workers that empty it."""

import re
from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import Field

from outbox.retry import LONGEST_DELAY, SHORTEST_DELAY
from outbox.topology import DEAD_LETTER_DELIVERY_LIMIT, DELIVERY_LIMIT, MOST_OF_A_QUEUE
from outbox_operator import durations
from outbox_operator.resources.condition import Conditions
from outbox_operator.resources.metadata import Metadata
from outbox_operator.resources.names import LONGEST_QUEUE, BindingKey, QueueName
from outbox_operator.resources.part import Part
from outbox_operator.resources.policies import DeletionPolicy
from outbox_operator.resources.references import RelayRef
from outbox_operator.resources.rules import ListType, Rule
from outbox_operator.resources.spans import Span
from outbox_operator.resources.template import Template
from outbox_operator.resources.virtual_host import PreviousVirtualHosts, VirtualHost

MOST_TIERS = 16
"""Each delay is a queue on the broker."""
_LONGEST_NAMESPACE = 63
_LONGEST_PLAIN_NAME = LONGEST_QUEUE - _LONGEST_NAMESPACE - 1
_HANDLER = "^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*(:[A-Za-z_][A-Za-z0-9_]*)?$"

Delay = Annotated[timedelta, Span(durations.format(SHORTEST_DELAY), durations.format(LONGEST_DELAY))]

_SOME_KEYS = Rule(
    "size(self) > 0",
    "bindingKeys must name at least one topic; write for example [user.created], or ['#'] for all",
    lambda keys: len(keys) > 0,
)
_FEW_TIERS = Rule(
    f"size(self) <= {MOST_TIERS}",
    f"retryDelays must be at most {MOST_TIERS}, as each is a queue on the broker; leave some out",
    lambda delays: len(delays) <= MOST_TIERS,
)
_A_HANDLER = Rule(
    f"self.matches('{_HANDLER}')",
    "must be a module or module:function, such as shop.listeners:send_welcome_mail",
    lambda handler: re.fullmatch(_HANDLER, handler) is not None,
)
_SAME_RELAY = Rule(
    "self.name == oldSelf.name",
    "relayRef cannot be changed, as messages would stay behind in the old relay's queue; "
    "make another OutboxListener and delete this one when its queue is empty",
    allows=lambda old, new: old.name == new.name,
)
_SAME_QUEUE = Rule(
    "has(self.queue) == has(oldSelf.queue) && (!has(self.queue) || self.queue == oldSelf.queue)",
    "queue cannot be changed, set or removed later, as messages would stay behind in the old one; "
    "make another OutboxListener and delete this one when its queue is empty",
    allows=lambda old, new: old.queue == new.queue,
)
_A_WORKER_FOR_THE_HANDLER = Rule(
    "!has(self.handler) || has(self.worker)",
    "handler needs a worker to run it; set worker.image, or remove handler",
    lambda spec: spec.handler is None or spec.worker is not None,
)
_NAME_FOR_A_QUEUE = Rule(
    f"has(self.spec.queue) || size(self.metadata.name) <= {_LONGEST_PLAIN_NAME}",
    f"metadata.name must have at most {_LONGEST_PLAIN_NAME} characters where it is part of the queue's name; "
    "shorten it, or set spec.queue",
    lambda listener: listener.spec.queue is not None or len(listener.metadata.name) <= _LONGEST_PLAIN_NAME,
)


class Limits(Part):
    """How much the queue holds, and how often it delivers a message."""

    max_length: Annotated[int, Field(ge=1, le=MOST_OF_A_QUEUE)] | None = None
    """How many messages the queue holds; beyond, the relay keeps them in the table and tries again."""
    max_bytes: Annotated[int, Field(ge=1, le=MOST_OF_A_QUEUE)] | None = None
    """How many bytes of bodies the queue holds; beyond, as with maxLength."""
    delivery_limit: Annotated[int, Field(ge=1, le=DEAD_LETTER_DELIVERY_LIMIT)] = DELIVERY_LIMIT
    """How often a message is delivered without an answer, to a consumer that dies, before it is
    dead-lettered."""


class Autoscaling(Part):
    """Workers by the queue's backlog; needs KEDA in the cluster."""

    min: Annotated[int, Field(ge=0, le=1000)] = 1
    """The fewest workers; 0 where none shall run while the queue is empty."""
    max: Annotated[int, Field(ge=1, le=1000)]
    """The most workers."""
    backlog_per_replica: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """How many waiting messages are worth one more worker."""

    rules: ClassVar = (
        Rule(
            "self.min <= self.max",
            "autoscaling.min must not be more than autoscaling.max; lower min or raise max",
            lambda scaling: scaling.min <= scaling.max,
        ),
    )


class Worker(Part):
    """The pods that call the handler."""

    image: Annotated[str, Field(min_length=1, max_length=1024)]
    """The application's image, with the handler and outbox-operator[worker] installed."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """How many workers there are; with autoscaling it is the scaler that says."""
    prefetch: Annotated[int, Field(ge=1, le=65_535)] = 10
    """How many messages each worker handles at the same time; an ordered listener handles one."""
    shutdown_timeout: Annotated[timedelta, Span("0s", "24h")] = timedelta(seconds=30)
    """How long handlers that run may take to finish when a pod is asked to stop. The pod's
    terminationGracePeriodSeconds follows from it."""
    autoscaling: Autoscaling | None = None
    """Let the backlog say how many workers there are."""
    template: Template = Template()
    """What the pods have beside the operator's choices."""


class ListenerSpec(Part):
    """What is wanted of a listener."""

    relay_ref: Annotated[RelayRef, _SAME_RELAY]
    """The OutboxRelay whose exchange is listened to. It cannot be changed."""
    binding_keys: Annotated[tuple[BindingKey, ...], Field(max_length=64), _SOME_KEYS, ListType("set")]
    """The topics to listen to, at least one; * stands for one word, # for any number of them."""
    queue: QueueName | None = None
    """The queue's name, where it is not {namespace}.{name} of this resource. It cannot be changed."""
    retry_delays: Annotated[tuple[Delay, ...], Field(max_length=100), _FEW_TIERS, ListType("atomic")] = (
        timedelta(seconds=1),
        timedelta(seconds=10),
        timedelta(minutes=1),
        timedelta(minutes=5),
    )
    """How long a message waits before each retry, as durations such as 300ms, 10s or 5m. After the last it is
    dead-lettered; with [] after the first failure."""
    limits: Limits = Limits()
    """How much the queue holds, and how often it delivers a message. A queue that exists keeps the limits it
    was made with, and the status says how to change that."""
    ordered: bool = False
    """Handle messages one at a time, in the order of the queue. One that fails holds up the rest until it
    succeeds or is dead-lettered. A queue that exists keeps its kind."""
    handler: Annotated[str, Field(max_length=512), _A_HANDLER] | None = None
    """The function to call, as module:function in the worker's image; with a module alone, its only
    listener. The queue, retryDelays and ordered of this resource win over those in the code."""
    worker: Worker | None = None
    """The pods that call the handler. Without it there are only the queue and what belongs to it, for a
    consumer of your own in any language."""
    deletion_policy: DeletionPolicy = "Retain"
    """What becomes of the queues when this resource is deleted. Retain leaves them; DeleteIfEmpty waits until
    nothing is left in them; Delete removes them with their messages."""
    paused: bool = False
    """While true the operator changes nothing for this resource: pods run on, drift is left alone."""

    rules: ClassVar = (_SAME_QUEUE, _A_WORKER_FOR_THE_HANDLER)


class ListenerStatus(Part):
    """What the operator found."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The metadata.generation that all of this was found for."""
    conditions: Conditions = ()
    """Each side of the listener that can be well or not; Ready is their sum."""
    virtual_host: VirtualHost | None = None
    """The virtual host that the queue is in."""
    previous_virtual_hosts: PreviousVirtualHosts = ()
    """Virtual hosts that the queue was in before, as long as something of it is left there."""
    queue: str | None = None
    """The queue, once it exists."""
    dead_letter_queue: str | None = None
    """The queue that has what could not be handled, once it exists."""
    replicas: Annotated[int, Field(ge=0)] | None = None
    """How many worker pods there are."""
    ready_replicas: Annotated[int, Field(ge=0)] | None = None
    """How many of them are ready."""
    selector: str | None = None
    """The labels by which the pods are found, for kubectl scale and autoscalers."""
    backlog: Annotated[int, Field(ge=0)] | None = None
    """How many messages are in the queue."""
    dead_letters: Annotated[int, Field(ge=0)] | None = None
    """How many messages are in the dead-letter queue."""


class OutboxListener(Part):
    """Receives messages of an OutboxRelay in a queue of its own, and where wanted runs workers for them."""

    metadata: Metadata
    """Standard object's metadata."""
    spec: ListenerSpec
    """What is wanted."""
    status: ListenerStatus = ListenerStatus()
    """What the operator found; written by it alone."""

    rules: ClassVar = (_NAME_FOR_A_QUEUE,)
