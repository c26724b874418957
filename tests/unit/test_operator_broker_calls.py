import pytest

from outbox.topology import Binding, Exchange, Queue
from outbox_operator.broker import calls
from outbox_operator.broker.actions import (
    Action,
    MakeBinding,
    MakeExchange,
    MakeQueue,
    MakeUser,
    Permissions,
    RemoveBinding,
    RemoveExchange,
    RemoveQueue,
    RemoveUser,
)

BINDING = Binding("an exchange", "a/queue", "user.#")

CALLS = [
    (
        MakeExchange(Exchange("out/box", "topic")),
        ("PUT exchanges/%2F/out%2Fbox",),
        {"type": "topic", "durable": True, "auto_delete": False, "arguments": {}},
    ),
    (
        MakeQueue(Queue("a queue#1", (("x-queue-type", "quorum"),))),
        ("PUT queues/%2F/a%20queue%231",),
        {"durable": True, "auto_delete": False, "arguments": {"x-queue-type": "quorum"}},
    ),
    (
        MakeBinding(BINDING, "shop/mail"),
        ("POST bindings/%2F/e/an%20exchange/q/a%2Fqueue",),
        {"routing_key": "user.#", "arguments": {"outbox.dev/owner": "shop/mail"}},
    ),
    (
        MakeBinding(BINDING, "shop/mail", "here"),
        ("POST bindings/%2F/e/an%20exchange/q/a%2Fqueue",),
        {
            "routing_key": "user.#",
            "arguments": {"outbox.dev/owner": "shop/mail", "outbox.dev/installation": "here"},
        },
    ),
    (
        RemoveBinding(BINDING, "user.%23~x"),
        ("DELETE bindings/%2F/e/an%20exchange/q/a%2Fqueue/user.%2523~x",),
        None,
    ),
    (RemoveQueue("q", if_empty=False), ("DELETE queues/%2F/q",), None),
    (RemoveQueue("q", if_empty=True), ("DELETE queues/%2F/q?if-empty=true",), None),
    (RemoveExchange("x"), ("DELETE exchanges/%2F/x",), None),
    (RemoveExchange("x", if_unused=True), ("DELETE exchanges/%2F/x?if-unused=true",), None),
    (
        MakeUser("a.user", "hush", Permissions("^$", "w", "r")),
        ("PUT users/a.user", "PUT permissions/%2F/a.user"),
        {"password": "hush", "tags": ""},
    ),
    (RemoveUser("ä"), ("DELETE users/%C3%A4",), None),
]


@pytest.mark.parametrize(
    ("action", "requests", "body"), CALLS, ids=[type(each[0]).__name__ for each in CALLS]
)
def test_an_action_and_its_calls(
    action: Action, requests: tuple[str, ...], body: dict[str, object] | None
) -> None:
    made = calls.calls_of(action, "/")
    assert tuple(f"{call.method} {call.path}" for call in made) == requests
    assert made[0].body == body
    assert not any("hush" in repr(call) for call in made)


def test_permissions_are_given_in_the_vhost() -> None:
    call = calls.calls_of(MakeUser("u", "p", Permissions("^$", "w", "r")), "a/b")[1]
    assert (call.path, call.body) == ("permissions/a%2Fb/u", {"configure": "^$", "write": "w", "read": "r"})


def test_a_vhost_is_seen_in_five_calls() -> None:
    paths = [call.path for call in (*calls.listings("/"), *calls.user_listings("/"))]
    assert paths == [
        "exchanges/%2F",
        "queues/%2F?disable_stats=true&enable_queue_totals=true",
        "bindings/%2F",
        "users",
        "vhosts/%2F/permissions",
    ]
