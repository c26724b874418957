from outbox.topology import Binding
from outbox_operator.broker.actions import Permissions
from outbox_operator.broker.listings import parse_bindings, parse_exchanges, parse_queues, parse_users
from outbox_operator.broker.snapshot import ObservedBinding, ObservedExchange, ObservedQueue, ObservedUser


def test_listings_become_values() -> None:
    exchanges: list[dict[str, object]] = [
        {"name": name, "type": "topic", "durable": True, "arguments": {}}
        for name in ("", "amq.topic", "outbox")
    ]
    queues = [
        {"name": "mails", "arguments": {"x-queue-type": "quorum"}, "durable": True, "messages": 3},
        {"name": "away", "arguments": {}, "durable": False},
    ]
    assert parse_exchanges(exchanges) == {"outbox": ObservedExchange("outbox", "topic", durable=True)}
    assert parse_queues(queues) == {
        "mails": ObservedQueue("mails", {"x-queue-type": "quorum"}, durable=True, messages=3),
        "away": ObservedQueue("away", {}, durable=False, messages=0, is_counted=False),
    }


def test_bindings_are_listed_by_queue_in_one_order_without_those_of_the_default_exchange() -> None:
    def binding(source: str, key: str, kind: str = "queue", **arguments: object) -> dict[str, object]:
        return {
            "source": source,
            "destination": "mails",
            "destination_type": kind,
            "routing_key": key,
            "arguments": arguments,
            "properties_key": f"{key}~",
        }

    listing = [
        binding("", "mails"),
        binding("outbox", "b"),
        binding("outbox", "b", **{"outbox.dev/owner": "shop/mails", "outbox.dev/installation": "here"}),
        binding("outbox", "b", **{"outbox.dev/owner": "shop/mails"}),
        binding("outbox", "a"),
        binding("outbox", "a", kind="exchange"),
    ]
    found = (
        ObservedBinding(Binding("outbox", "mails", "a"), "a~", None),
        ObservedBinding(Binding("outbox", "mails", "b"), "b~", None),
        ObservedBinding(Binding("outbox", "mails", "b"), "b~", "shop/mails"),
        ObservedBinding(Binding("outbox", "mails", "b"), "b~", "shop/mails", "here"),
    )
    assert parse_bindings(listing) == {"mails": found}
    assert parse_bindings(reversed(listing)) == {"mails": found}


def test_users_are_listed_with_their_permissions() -> None:
    users = [
        {
            "name": "a",
            "password_hash": "x",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": [],
        },
        {"name": "b", "tags": ""},
    ]
    permissions = [{"user": "a", "vhost": "/", "configure": "c", "write": "w", "read": "r"}]
    assert parse_users(users, permissions) == {
        "a": ObservedUser("a", "x", "rabbit_password_hashing_sha256", Permissions("c", "w", "r")),
        "b": ObservedUser("b", "", "", None),
    }
