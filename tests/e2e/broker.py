"""The shop's RabbitMQ as its administrator sees it, and what an administrator's hand can do there."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.shop import Shop

_REMOVAL = (Path(__file__).parent / "removal.py").read_text()
Binding = tuple[str, str, str]
"""Of an exchange, to a queue, by a key."""


@dataclass(frozen=True)
class Contents:
    """What there is, apart from messages and passwords."""

    queues: dict[str, str]
    """With their arguments."""
    exchanges: dict[str, str]
    """With their types."""
    bindings: frozenset[Binding]
    """Of exchanges with queues."""
    permissions: dict[str, tuple[str, str, str]]
    """Of users: what they may configure, write and read."""

    def users_of(self, kind: str, name: str) -> set[str]:
        """The users of the pods of a resource: of a relay or a listener."""
        return {user for user in self.permissions if f"outbox.{kind}." in user and f".{name}." in user}


def contents(shop: Shop) -> Contents:
    """By one look."""
    found = json.loads(shop.rabbitmqctl("export_definitions", "-"))
    return Contents(
        queues={each["name"]: json.dumps(each["arguments"], sort_keys=True) for each in found["queues"]},
        exchanges={each["name"]: each["type"] for each in found["exchanges"]},
        bindings=frozenset(
            (each["source"], each["destination"], each["routing_key"]) for each in found["bindings"]
        ),
        permissions={
            each["user"]: (each["configure"], each["write"], each["read"]) for each in found["permissions"]
        },
    )


def remove(
    shop: Shop,
    *,
    queues: Sequence[str] = (),
    exchanges: Sequence[str] = (),
    bindings: Sequence[Binding] = (),
) -> None:
    """Take something away, with all that is in it."""
    unwanted = {"queues": queues, "exchanges": exchanges, "bindings": bindings}
    shop.run("removal", [_REMOVAL, json.dumps(unwanted)])
