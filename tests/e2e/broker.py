"""The shop's RabbitMQ as its administrator sees it, and what an administrator's hand can do there."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.shop import Shop

_REMOVAL = (Path(__file__).parent / "removal.py").read_text()


@dataclass(frozen=True)
class Binding:
    """Of an exchange with a queue."""

    exchange: str
    queue: str
    key: str
    arguments: str
    """In JSON; without them it cannot be removed."""


@dataclass(frozen=True)
class Contents:
    """What there is, apart from messages and passwords."""

    queues: dict[str, str]
    """With their arguments."""
    exchanges: dict[str, str]
    """With their types."""
    bindings: frozenset[Binding]
    """All of them."""
    permissions: dict[str, tuple[str, str, str]]
    """Of users: what they may configure, write and read."""

    def binding_of(self, queue: str) -> Binding:
        """That of an exchange with a listener's queue."""
        [found] = (each for each in self.bindings if each.queue == queue)
        return found

    def users_of(self, kind: str, name: str) -> set[str]:
        """The users of the pods of a resource: of a relay or a listener."""
        return {user for user in self.permissions if f"outbox.{kind}." in user and f".{name}." in user}


def contents(shop: Shop) -> Contents:
    """By one look."""
    found = json.loads(shop.rabbitmqctl("export_definitions", "-"))
    return Contents(
        queues={each["name"]: _json(each["arguments"]) for each in found["queues"]},
        exchanges={each["name"]: each["type"] for each in found["exchanges"]},
        bindings=frozenset(
            Binding(each["source"], each["destination"], each["routing_key"], _json(each["arguments"]))
            for each in found["bindings"]
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
    keys = [(each.exchange, each.queue, each.key, json.loads(each.arguments)) for each in bindings]
    unwanted = {"queues": queues, "exchanges": exchanges, "bindings": keys}
    shop.run("removal", [_REMOVAL, json.dumps(unwanted)])


def _json(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, sort_keys=True)
