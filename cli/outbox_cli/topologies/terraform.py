"""As resources of the Terraform provider cyrilgdn/rabbitmq. Pure."""

import json
import re
from collections.abc import Mapping

from outbox.topology import Binding, Exchange, Queue
from outbox_cli.topologies.labels import labels
from outbox_cli.topologies.provision import Provision

_NOT_IN_A_LABEL = re.compile("[^a-zA-Z0-9_]+")
_TEMPLATE = re.compile(r"([$%])\{")


def terraform(provision: Provision) -> str:
    """A file that `terraform apply` takes, once the provider is configured."""
    wanted = provision.topology
    exchanges = labels((each.name for each in wanted.exchanges), _label)
    queues = labels((each.name for each in wanted.queues), _label)
    bindings = labels(wanted.bindings, lambda each: _label(f"{each.queue}_{each.routing_key}"))
    return "\n".join(
        [
            *(_exchange(each, exchanges[each.name], provision) for each in wanted.exchanges),
            *(_queue(each, queues[each.name], provision) for each in wanted.queues),
            *(
                _binding(each, label, exchanges[each.exchange], queues[each.queue], provision)
                for each, label in bindings.items()
            ),
        ]
    )


def _exchange(exchange: Exchange, label: str, provision: Provision) -> str:
    return f"""\
resource "rabbitmq_exchange" "{label}" {{
  name  = {_text(exchange.name)}
  vhost = {_text(provision.vhost)}

  settings {{
    type        = "{exchange.kind}"
    durable     = true
    auto_delete = false
  }}
}}
"""


def _queue(queue: Queue, label: str, provision: Provision) -> str:
    return f"""\
resource "rabbitmq_queue" "{label}" {{
  name  = {_text(queue.name)}
  vhost = {_text(provision.vhost)}

  settings {{
    durable        = true
    auto_delete    = false
    arguments_json = jsonencode({_object(queue.arguments, indent=4)})
  }}
}}
"""


def _binding(binding: Binding, label: str, exchange: str, queue: str, provision: Provision) -> str:
    arguments = provision.arguments_of(binding)
    mark = f"\n  arguments_json   = jsonencode({_object(arguments, indent=2)})" if arguments else ""
    return f"""\
resource "rabbitmq_binding" "{label}" {{
  source           = rabbitmq_exchange.{exchange}.name
  vhost            = {_text(provision.vhost)}
  destination      = rabbitmq_queue.{queue}.name
  destination_type = "queue"
  routing_key      = {_text(binding.routing_key)}{mark}
}}
"""


def _object(arguments: Mapping[str, object], indent: int) -> str:
    space = " " * indent
    width = max(len(_text(name)) for name in arguments)
    lines = [f"{space}  {_text(name):<{width}} = {_value(value)}" for name, value in arguments.items()]
    return "\n".join(["{", *lines, f"{space}}}"])


def _value(value: object) -> str:
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    """A string of HCL: as of JSON, but that `${` and `%{` begin a template."""
    return _TEMPLATE.sub(r"\1\1{", json.dumps(text, ensure_ascii=False))


def _label(text: str) -> str:
    label = _NOT_IN_A_LABEL.sub("_", text).strip("_")
    return label if label[:1].isalpha() else f"_{label}"
