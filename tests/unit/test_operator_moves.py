from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from outbox.topology import Binding
from outbox_operator.broker.actions import Permissions, RevokePermissions
from outbox_operator.broker.snapshot import (
    BrokerProblem,
    ObservedBinding,
    ObservedExchange,
    ObservedQueue,
    ObservedUser,
    Reason,
    Snapshot,
)
from outbox_operator.planning.moves import (
    FORGET,
    drained_finding,
    elsewhere,
    is_known_in,
    left_words,
    previous_places,
    remains,
)
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.virtual_host import VirtualHost

USER = "outbox.listener.shop.mail.11111111-0a1b2c3d"
QUEUE, LETTERS = "shop.mail", "shop.mail.dlq"
EMPTY = Snapshot({}, {}, {}, {})


def vhost(name: str, url: str = "http://rabbit:15672") -> VirtualHost:
    return VirtualHost(management_url=url, name=name)


A, B, C = vhost("a"), vhost("b"), vhost("c")
A_BY_ANOTHER_ADDRESS = vhost("a", "http://rabbit.shop:15672")


def listener(
    last: VirtualHost | None = A,
    *previous: VirtualHost,
    annotations: Mapping[str, str] | None = None,
) -> OutboxListener:
    status: dict[str, Any] = {"queue": QUEUE, "previousVirtualHosts": [each.manifest() for each in previous]}
    return OutboxListener.model_validate(
        {
            "metadata": {
                "name": "mail",
                "namespace": "shop",
                "uid": "11111111-2222",
                "annotations": annotations or {},
            },
            "spec": {"relayRef": {"name": "shop"}, "bindingKeys": ["user.created"]},
            "status": status | ({"virtualHost": last.manifest()} if last else {}),
        }
    )


RELAY = OutboxRelay.model_validate(
    {
        "metadata": {"name": "shop", "namespace": "shop", "uid": "33333333-4444"},
        "spec": {"database": {"secretRef": {"name": "d"}}, "broker": {"secretRef": {"name": "b"}}},
    }
)


@pytest.mark.parametrize(
    ("who", "here", "is_made", "is_known", "left"),
    [
        pytest.param(listener(None), A, True, True, [], id="a first look"),
        pytest.param(listener(A), A, True, True, [], id="where it was"),
        pytest.param(listener(A), B, True, False, [A], id="a move"),
        pytest.param(listener(A), B, True, True, [A], id="a move on the same broker"),
        pytest.param(listener(A), B, False, False, [], id="a move that is not done yet"),
        pytest.param(listener(B, A), C, True, False, [A, B], id="a second move"),
        pytest.param(listener(B, A), A, True, True, [B], id="a move back"),
        pytest.param(listener(A), A_BY_ANOTHER_ADDRESS, True, True, [], id="another address"),
        pytest.param(listener(A), A_BY_ANOTHER_ADDRESS, True, False, [A], id="another broker"),
        pytest.param(
            listener(A, B),
            A_BY_ANOTHER_ADDRESS,
            True,
            True,
            [vhost("b", A_BY_ANOTHER_ADDRESS.management_url)],
            id="another address after a move",
        ),
        pytest.param(listener(B, A, annotations={FORGET: "a"}), B, True, True, [], id="forgotten"),
        pytest.param(listener(B, A, annotations={FORGET: "c"}), B, True, True, [A], id="another forgotten"),
    ],
)
def test_the_places_that_a_listener_has_left(
    who: OutboxListener, here: VirtualHost, is_made: bool, is_known: bool, left: list[VirtualHost]
) -> None:
    assert previous_places(who, here, is_made=is_made, is_known=is_known) == left


NOTHING = Permissions("^$", "^$", "^$")


def user(permissions: Permissions | None = NOTHING) -> dict[str, ObservedUser]:
    others = USER.replace("11111111", "99999999")
    return {name: ObservedUser(name, "", "", permissions) for name in (USER, others)}


@pytest.mark.parametrize(
    ("users", "actions"),
    [(user(), (RevokePermissions(USER),)), (user(None), ()), ({}, ()), (None, ())],
    ids=["with permissions", "without", "no user", "may not see users"],
)
def test_the_permissions_of_its_pods_are_revoked(
    users: dict[str, ObservedUser] | None, actions: tuple[object, ...]
) -> None:
    assert remains(listener(B, A), A, replace(EMPTY, users=users)).revocations == actions


def queues(**messages: int | None) -> dict[str, ObservedQueue]:
    names = {"queue": QUEUE, "letters": LETTERS}
    return {
        names[each]: ObservedQueue(names[each], {}, True, count or 0, is_counted=count is not None)
        for each, count in messages.items()
    }


@pytest.mark.parametrize(
    ("seen", "status", "reason", "words"),
    [
        (replace(EMPTY, queues=queues(queue=3, letters=0)), "False", "MessagesLeftBehind", "with 3 messages"),
        (replace(EMPTY, queues=queues(queue=0, letters=1)), "False", "MessagesLeftBehind", "with 1 message"),
        (replace(EMPTY, queues=queues(queue=0)), "True", "QueuesLeftBehind", "with 0 messages"),
        (replace(EMPTY, queues=queues(queue=None)), "False", "PreviousVhostUnknown", "an unknown number"),
        (replace(EMPTY, hidden_queues=frozenset({QUEUE})), "False", "PreviousVhostUnknown", "unknown number"),
        (BrokerProblem(Reason.UNREACHABLE, "it is away"), "False", "PreviousVhostUnknown", "(it is away)"),
        (None, "False", "PreviousVhostUnknown", "credentials are not known any more"),
    ],
)
def test_what_is_left_is_said(
    seen: Snapshot | BrokerProblem | None, status: str, reason: str, words: str
) -> None:
    who = listener(B, A)
    found = drained_finding(who, [remains(who, A, seen)])
    assert found is not None
    assert (found.status, found.reason) == (status, reason)
    assert words in found.message
    assert 'vhost "a" of http://rabbit:15672' in found.message
    assert f"{FORGET}=a" in found.message


@pytest.mark.parametrize("seen", [EMPTY, BrokerProblem(Reason.VHOST_MISSING, "it is gone")])
def test_nothing_is_left_where_nothing_is(seen: Snapshot | BrokerProblem) -> None:
    assert remains(listener(B, A), A, seen).is_nothing


def test_a_relay_leaves_its_exchanges() -> None:
    there = replace(EMPTY, exchanges={"outbox": ObservedExchange("outbox", "topic", durable=True)})
    assert remains(RELAY, A, there).objects == (("outbox", 0),)


OWN = {QUEUE: (ObservedBinding(Binding("outbox", QUEUE, "user.created"), "key", "shop/mail"),)}
ANOTHERS = {QUEUE: (ObservedBinding(Binding("outbox", QUEUE, "user.created"), "key", "other/mail"),)}


@pytest.mark.parametrize(
    ("snapshot", "is_known"),
    [
        (EMPTY, False),
        (replace(EMPTY, queues=queues(queue=0)), False),
        (replace(EMPTY, bindings=ANOTHERS), False),
        (replace(EMPTY, bindings=OWN), True),
        (replace(EMPTY, users=user()), True),
    ],
    ids=["empty", "a queue of that name", "another's binding", "its binding", "its user"],
)
def test_a_resource_is_known_by_what_only_it_has(snapshot: Snapshot, is_known: bool) -> None:
    assert is_known_in(listener(), snapshot) is is_known


@pytest.mark.parametrize(
    ("here", "broker", "found"),
    [
        (A, EMPTY, None),
        (B, EMPTY, A),
        (B, replace(EMPTY, users=user()), A),
        (A_BY_ANOTHER_ADDRESS, EMPTY, A),
        (A_BY_ANOTHER_ADDRESS, replace(EMPTY, bindings=OWN), None),
        (A_BY_ANOTHER_ADDRESS, BrokerProblem(Reason.UNREACHABLE, "away"), None),
    ],
)
def test_where_the_queue_of_a_listener_is(
    here: VirtualHost, broker: Snapshot | BrokerProblem, found: VirtualHost | None
) -> None:
    assert elsewhere(listener(A), here, broker) == found


def test_what_a_deleted_listener_leaves_in_previous_places_is_named() -> None:
    assert left_words(listener(A)) is None
    assert 'queue "shop.mail" in vhost "a" of http://rabbit:15672' in (left_words(listener(B, A)) or "")
