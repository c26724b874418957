"""The names that a manifest may give to broker objects, as far as a schema can check them.

`outbox.topology` has the last word: these types only refuse sooner.
"""

import re
from datetime import timedelta
from typing import Annotated, TypeAlias

from pydantic import Field

from outbox.retry import LONGEST_DELAY
from outbox.topology import LONGEST_EXCHANGE_NAME, LONGEST_NAME, dead_letter_queue, tier_name
from outbox_operator.resources.rules import Rule, bytes_at_most

_PATTERN = "^[a-zA-Z0-9_.:@#,/+ -]*$"
_LONGEST_TIER_SUFFIX = tier_name("", LONGEST_DELAY - timedelta(milliseconds=1))

LONGEST_EXCHANGE = LONGEST_EXCHANGE_NAME - len(_LONGEST_TIER_SUFFIX)
"""A delay tier is an exchange whose name is that much longer."""
LONGEST_QUEUE = LONGEST_NAME - len(dead_letter_queue(""))
"""The dead-letter queue's name is that much longer."""

_ORDINARY = Rule(
    f"self.matches('{_PATTERN}')",
    "must consist of ASCII letters, digits, spaces and -_.:@#,/+",
    lambda name: re.match(_PATTERN.replace("$", r"\Z"), name) is not None,
)
_NOT_RESERVED = Rule(
    "!self.startsWith('amq.')",
    "must not start with amq., which belongs to the broker; choose another name",
    lambda name: not name.startswith("amq."),
)

ExchangeName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=LONGEST_EXCHANGE), _ORDINARY, _NOT_RESERVED
]
QueueName: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_QUEUE), _ORDINARY, _NOT_RESERVED]
_LISTABLE = Rule(
    "!self.contains('~')",
    "must not contain ~, with which RabbitMQ cannot list the bindings of a virtual host; "
    "emit with a routing key without it",
    lambda key: "~" not in key,
)
BindingKey: TypeAlias = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST_NAME),
    bytes_at_most(LONGEST_NAME),
    _LISTABLE,
]
