from dataclasses import replace

import pytest

from outbox_operator.broker.actions import Permissions
from outbox_operator.broker.snapshot import ObservedPolicy, ObservedQueue, ObservedUser, Snapshot
from outbox_operator.planning.glimpse import Interest, glimpse

INTEREST = Interest(("outbox",), ("shop.mail",), "pods", "admin")
ALL = Permissions(".*", ".*", ".*")
USERS = {name: ObservedUser(name, "", "", ALL) for name in ("pods", "admin", "other")}
QUEUE = ObservedQueue("shop.mail", {}, durable=True, messages=0, policy="p")
POLICY = ObservedPolicy("p", ".*", "queues", 0, {"max-length": 10})
SNAPSHOT = Snapshot({}, {"shop.mail": QUEUE}, {}, USERS, policies=(POLICY,))


def without_rights(name: str) -> dict[str, ObservedUser]:
    return {**USERS, name: replace(USERS[name], permissions=None)}


@pytest.mark.parametrize(
    "changed",
    [
        replace(SNAPSHOT, users=without_rights("pods")),
        replace(SNAPSHOT, users=without_rights("admin")),
        replace(SNAPSHOT, policies=(replace(POLICY, definition={"max-length": 11}),)),
        replace(SNAPSHOT, operator_policies=(replace(POLICY, definition={"max-length": 9}),)),
        replace(SNAPSHOT, queues={}),
        replace(SNAPSHOT, queues={}, hidden_queues=frozenset({"shop.mail"})),
    ],
    ids=["its user", "the operator's user", "a policy", "an operator policy", "no queue", "a hidden queue"],
)
def test_what_concerns_a_resource_is_another_glimpse(changed: Snapshot) -> None:
    assert glimpse(changed, INTEREST) != glimpse(SNAPSHOT, INTEREST)


@pytest.mark.parametrize(
    "changed",
    [
        replace(SNAPSHOT, users=without_rights("other")),
        replace(SNAPSHOT, hidden_queues=frozenset({"theirs"})),
        replace(SNAPSHOT, policies=(POLICY, replace(POLICY, name="q", pattern="^theirs"))),
    ],
    ids=["another user", "another queue", "another policy"],
)
def test_what_concerns_others_is_the_same_glimpse(changed: Snapshot) -> None:
    assert glimpse(changed, INTEREST) == glimpse(SNAPSHOT, INTEREST)
