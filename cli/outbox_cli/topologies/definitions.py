"""As RabbitMQ's definitions: what `rabbitmqctl import_definitions` and `load_definitions` read. Pure."""

from typing import Any

from outbox_cli.topologies.provision import Provision


def definitions(provision: Provision) -> dict[str, Any]:
    """All of it, with the virtual host, which has to be there."""
    vhost, wanted = provision.vhost, provision.topology
    return {
        "exchanges": [
            {
                "name": each.name,
                "vhost": vhost,
                "type": each.kind,
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            }
            for each in wanted.exchanges
        ],
        "queues": [
            {
                "name": each.name,
                "vhost": vhost,
                "durable": True,
                "auto_delete": False,
                "arguments": each.arguments,
            }
            for each in wanted.queues
        ],
        "bindings": [
            {
                "source": each.exchange,
                "vhost": vhost,
                "destination": each.queue,
                "destination_type": "queue",
                "routing_key": each.routing_key,
                "arguments": provision.arguments_of(each),
            }
            for each in wanted.bindings
        ],
    }
