"""As resources of the RabbitMQ Messaging Topology Operator. Pure."""

import re
from typing import Any, TypeAlias

from outbox.topology import Binding
from outbox_cli.topologies.labels import labels
from outbox_cli.topologies.provision import Provision

Manifest: TypeAlias = dict[str, Any]

_NOT_IN_A_NAME = re.compile("[^a-z0-9.-]+")
_LONGEST_NAME = 200
_TYPE = "x-queue-type"


def messaging(provision: Provision, cluster: str, namespace: str | None) -> list[Manifest]:
    """Exchanges, queues and bindings of the RabbitmqCluster of that name, in the order to apply them in."""
    wanted = provision.topology
    exchanges = labels((each.name for each in wanted.exchanges), _name)
    queues = labels((each.name for each in wanted.queues), _name)
    bindings = labels(wanted.bindings, lambda each: _name(f"{each.queue}.{each.routing_key}"))

    def made(kind: str, name: str, spec: Manifest) -> Manifest:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        place = {"vhost": provision.vhost, "rabbitmqClusterReference": {"name": cluster}}
        return {
            "apiVersion": "rabbitmq.com/v1beta1",
            "kind": kind,
            "metadata": metadata,
            "spec": {**spec, **place},
        }

    return [
        *(
            made(
                "Exchange",
                exchanges[each.name],
                {"name": each.name, "type": each.kind, "durable": True, "autoDelete": False},
            )
            for each in wanted.exchanges
        ),
        *(
            made(
                "Queue",
                queues[each.name],
                {
                    "name": each.name,
                    # The operator makes the argument of it.
                    "type": each.arguments[_TYPE],
                    "durable": True,
                    "autoDelete": False,
                    "arguments": {name: value for name, value in each.settings if name != _TYPE},
                },
            )
            for each in wanted.queues
        ),
        *(made("Binding", label, _binding(each, provision)) for each, label in bindings.items()),
    ]


def _binding(binding: Binding, provision: Provision) -> Manifest:
    arguments = provision.arguments_of(binding)
    return {
        "source": binding.exchange,
        "destination": binding.queue,
        "destinationType": "queue",
        "routingKey": binding.routing_key,
        **({"arguments": arguments} if arguments else {}),
    }


def _name(text: str) -> str:
    """A text as the name of a resource: a DNS subdomain."""
    words = [word.strip("-") for word in _NOT_IN_A_NAME.sub("-", text.lower()).split(".")]
    return ".".join(filter(None, words))[:_LONGEST_NAME].strip(".-") or "any"
