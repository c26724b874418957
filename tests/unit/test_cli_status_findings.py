"""What looks wrong in a picture, and with which cure."""

from dataclasses import replace

import pytest

from outbox_cli.cluster.place import PLUGIN, Place
from outbox_cli.status.findings import findings
from outbox_cli.status.picture import Picture, QueueState, RelayState, ResourceState, TableState
from outbox_core.horizon_holder import Holder, HolderKind

HERE, THERE = Place(), Place(program=PLUGIN)

TABLE = TableState('"outbox_table"', pending=3, delayed=2, oldest_seconds=300.0, parked=0)
QUEUE = QueueState("shop.mail", waiting=7, consumers=2, dead_letters=0)
UNUSED_SLOT = Holder(HolderKind.REPLICATION_SLOT, 741, 9, name="replica", is_active=False)
YOUNG = Holder(HolderKind.SESSION, 741, 9, pid=47, seconds=10.0)
RELAY_RESOURCE = ResourceState("OutboxRelay", "shop", "main", "True", "Ready", (), is_seen=True, pods="2/2")
LISTENER_RESOURCE = replace(RELAY_RESOURCE, kind="OutboxListener", name="mail")


def relay(resource: ResourceState | None = None, **changes: object) -> Picture:
    table = replace(TABLE, **changes)  # type: ignore[arg-type]
    return Picture(relays=(RelayState("outbox", table, resource),))


def queue(resource: ResourceState | None = None, **changes: object) -> Picture:
    return Picture(queues=(replace(QUEUE, resource=resource, **changes),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "picture",
    [
        Picture(),
        relay(),
        relay(RELAY_RESOURCE),
        relay(dead_rows=200_000, horizon_holder=YOUNG),
        queue(),
        queue(LISTENER_RESOURCE),
        # Nobody could look.
        queue(LISTENER_RESOURCE, waiting=None, consumers=None, dead_letters=None),
        relay(RELAY_RESOURCE, pending=None, delayed=None, oldest_seconds=None, parked=None),
        # Scaled to nothing while nothing waits.
        queue(LISTENER_RESOURCE, waiting=0, consumers=0, may_rest=True),
    ],
)
def test_what_is_well_is_not_found(picture: Picture) -> None:
    assert findings(picture, THERE) == []


@pytest.mark.parametrize(
    ("picture", "place", "line"),
    [
        (
            relay(dead_rows=200_000, horizon_holder=UNUSED_SLOT),
            HERE,
            'table "outbox_table": 200,000 dead rows cannot be removed, because of replication slot '
            '"replica", which nobody uses; start its standby, or if that is gone for good drop the slot with '
            "`SELECT pg_catalog.pg_drop_replication_slot('replica')`",
        ),
        (
            relay(parked=1),
            HERE,
            'table "outbox_table": 1 message is parked; '
            "see `outbox messages list --state parked`, and then `messages retry`",
        ),
        (
            relay(RELAY_RESOURCE, parked=2),
            THERE,
            "OutboxRelay shop/main: 2 messages are parked; see "
            "`kubectl outbox messages list --state parked --relay main -n shop`, and then `messages retry`",
        ),
        (
            relay(oldest_seconds=301.0),
            HERE,
            'table "outbox_table": the oldest of 3 pending messages has been due for 5m; '
            "see that a relay runs on it, and what its log says",
        ),
        (
            relay(RELAY_RESOURCE, pending=1, oldest_seconds=7200.0),
            THERE,
            "OutboxRelay shop/main: the oldest of 1 pending message has been due for 2h; "
            "see `kubectl describe obr/main -n shop` and the log of its pods",
        ),
        (
            queue(dead_letters=1),
            HERE,
            "queue shop.mail: 1 dead letter; see `outbox dlq list shop.mail`, and then `dlq redrive`",
        ),
        (
            queue(LISTENER_RESOURCE, dead_letters=1234),
            THERE,
            "OutboxListener shop/mail: 1,234 dead letters; "
            "see `kubectl outbox dlq list mail -n shop`, and then `dlq redrive`",
        ),
        (
            queue(consumers=0),
            HERE,
            "queue shop.mail: nobody consumes it, and 7 messages wait; start its worker",
        ),
        (
            queue(LISTENER_RESOURCE, consumers=0, waiting=0),
            THERE,
            "OutboxListener shop/mail: nobody consumes it; see `kubectl describe obl/mail -n shop`",
        ),
        (
            queue(LISTENER_RESOURCE, consumers=0, waiting=1, may_rest=True),
            THERE,
            "OutboxListener shop/mail: nobody consumes it, and 1 message waits; "
            "see `kubectl describe obl/mail -n shop`",
        ),
        (
            queue(replace(LISTENER_RESOURCE, pods=""), consumers=0, waiting=0),
            THERE,
            "OutboxListener shop/mail: nobody consumes it; start its worker",
        ),
        (
            queue(is_missing=True, waiting=None, consumers=None),
            HERE,
            "queue shop.mail: the broker has no such queue; "
            "start its worker, which declares it, or import what `outbox topology` prints",
        ),
        (
            queue(LISTENER_RESOURCE, is_missing=True, waiting=None, consumers=None),
            THERE,
            'OutboxListener shop/mail: the broker has no queue "shop.mail"; '
            "the operator makes it within a minute, unless its conditions say why not",
        ),
        (
            queue(replace(LISTENER_RESOURCE, problems=("RelayMissing: there is no relay; make one",))),
            THERE,
            "OutboxListener shop/mail: RelayMissing: there is no relay; make one",
        ),
        (
            relay(replace(RELAY_RESOURCE, is_seen=False)),
            THERE,
            "OutboxRelay shop/main: the operator has not looked at it since it was changed; "
            "see that the operator runs: `kubectl get pods -A -l app.kubernetes.io/name=outbox-operator`",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_cure(picture: Picture, place: Place, line: str) -> None:
    assert [each.line for each in findings(picture, place)] == [line]
