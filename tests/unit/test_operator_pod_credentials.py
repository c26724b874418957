import base64
import re
from dataclasses import replace
from typing import Any

import pytest

from outbox_core.url_hosts import HostPort
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import MakeUser, Permissions
from outbox_operator.broker.passwords import SHA256, hashed
from outbox_operator.broker.snapshot import ObservedUser, Snapshot
from outbox_operator.credentials import access_of
from outbox_operator.database_access import DatabaseAccess
from outbox_operator.planning.pod_credentials import (
    ROTATE,
    Chance,
    Entrance,
    PodCredentials,
    draw,
    entrance,
    first_name,
    is_secret_of,
    is_user_of,
    lost,
    read,
    users_of,
)
from outbox_operator.resources import OutboxListener, OutboxRelay
from tests.operator.manifests import LISTENER, RELAY, changed

UID = "0a1b2c3d-aaaa-bbbb-cccc-0123456789ab"
ACCESS = BrokerAccess("rabbit", 5672, False, "shop", "admin", "p@ss", "http://rabbit:15672")
OTHER_PASSWORD = replace(ACCESS, password="new")  # noqa: S106 - of no broker
RIGHTS = Permissions("^$", "^(outbox)$", "^$")
FIRST, SECOND = Chance("11111111", "first"), Chance("22222222", "second")
USER = "outbox.relay.shop.shop.0a1b2c3d-11111111"


def relay(rotate: str | None = None, **metadata: Any) -> OutboxRelay:
    annotations = {ROTATE: rotate} if rotate is not None else {}
    own = {"name": "shop", "namespace": "shop", "uid": UID, "annotations": annotations, **metadata}
    return OutboxRelay.model_validate(changed(RELAY, {".metadata": own}))


def broker(*users: str, password: str = "first") -> Snapshot:  # noqa: S107 - of no broker
    kept = hashed(password, b"salt")
    return Snapshot({}, {}, {}, {name: ObservedUser(name, kept, SHA256, RIGHTS) for name in users})


def entered(
    owner: OutboxRelay,
    live: PodCredentials | None,
    snapshot: Snapshot,
    chance: Chance = SECOND,
    *,
    access: BrokerAccess = ACCESS,
    database_url: str | None = "postgresql://a",
) -> Entrance:
    found = entrance(
        owner,
        live,
        access,
        snapshot=snapshot,
        permissions=RIGHTS,
        chance=chance,
        database=DatabaseAccess(database_url) if database_url else None,
    )
    assert found is not None
    return found


def first() -> PodCredentials:
    """What the pods of a relay that is new get."""
    return entered(relay(), None, broker(), FIRST).credentials


def test_new_pods_get_a_user_of_their_own_by_lot() -> None:
    made = entered(relay(), None, broker("guest"), FIRST)
    assert made.actions == (MakeUser(USER, "first", RIGHTS),)
    assert made.retired_users == ()
    credentials = made.credentials
    assert (credentials.name, credentials.number, credentials.user) == ("shop-relay-0a1b2c3d-1", 1, USER)
    assert credentials.password == "first"  # noqa: S105 - drawn above
    assert credentials.data == {
        "broker-uri": f"amqp://{USER}:first@rabbit:5672/shop",
        "database-uri": "postgresql://a",
    }


@pytest.mark.parametrize("worker", [{}, {"autoscaling": {"max": 5}}], ids=["fixed", "scaled"])
def test_a_scaler_gets_one_of_several_hosts_and_the_pods_all(worker: dict[str, Any]) -> None:
    several = replace(ACCESS, other_hosts=(HostPort("rabbit-1", 5673),))
    manifest = changed(LISTENER, {"worker": {"image": "shop:1", **worker}, ".metadata.uid": UID})
    listener = OutboxListener.model_validate(manifest)
    shared = Snapshot({}, {}, {}, None)
    made = entrance(listener, None, several, snapshot=shared, permissions=RIGHTS, chance=FIRST)
    assert made is not None
    assert made.credentials.data == {
        "broker-uri": "amqp://admin:p%40ss@rabbit:5672,rabbit-1:5673/shop",
        "scaler-uri": "amqp://admin:p%40ss@rabbit:5672/shop",
    }
    one = entrance(listener, None, ACCESS, snapshot=shared, permissions=RIGHTS, chance=FIRST)
    assert one is not None
    assert one.credentials.data.keys() == {"broker-uri"}


@pytest.mark.parametrize("live", [None, PodCredentials("s-1", 1, "", None, {"broker-uri": "amqp://a:b@c"})])
def test_an_administrator_of_the_operators_is_never_given_to_pods(live: PodCredentials | None) -> None:
    ours = replace(ACCESS, granted_vhosts=frozenset({"shop"}))
    shared = Snapshot({}, {}, {}, None)
    assert entrance(relay(), live, ours, snapshot=shared, permissions=RIGHTS, chance=FIRST) is None
    made = entered(relay(), live, broker(), FIRST, access=ours)
    assert ours.password not in str(made.credentials.data)
    assert made.credentials.user == USER


def test_nothing_changes_where_all_is_as_it_was() -> None:
    live = first()
    again = entered(relay(), live, broker(USER))
    assert again == Entrance(live, (), ())


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        pytest.param({"database_url": "postgresql://b"}, "database-uri", id="the database"),
        pytest.param({"access": replace(ACCESS, host="other")}, "broker-uri", id="the broker's address"),
        pytest.param({"access": replace(ACCESS, ca="PEM")}, "ca.crt", id="the broker's CA"),
    ],
)
def test_other_content_is_another_secret_with_the_same_user(changes: dict[str, Any], key: str) -> None:
    live = first()
    after = entered(relay(), live, broker(USER), **changes).credentials
    assert after.name == "shop-relay-0a1b2c3d-2"
    assert (after.user, after.password) == (live.user, live.password)
    assert after.data[key] != live.data.get(key)


def test_credentials_of_the_administrator_that_change_are_nothing_to_pods_with_a_user_of_their_own() -> None:
    live = first()
    assert entered(relay(), live, broker(USER), access=OTHER_PASSWORD).credentials is live


@pytest.mark.parametrize(("before", "after"), [(None, "1"), ("1", "2"), ("1", None), ("2", "1")])
def test_another_value_of_the_annotation_rotates(before: str | None, after: str | None) -> None:
    live = entered(relay(before), None, broker(), FIRST).credentials
    assert entered(relay(before), live, broker(USER)).credentials is live
    rotated = entered(relay(after), live, broker(USER))
    new = "outbox.relay.shop.shop.0a1b2c3d-22222222"
    assert rotated.actions == (MakeUser(new, "second", RIGHTS),)
    assert rotated.retired_users == (USER,)
    assert (rotated.credentials.number, rotated.credentials.rotation) == (2, after or "")


def test_every_user_of_before_is_retired_and_no_other() -> None:
    mine, older = USER, USER.replace("11111111", "99999999")
    others = [
        "guest",
        "outbox.relay.shop.shop.ffffffff-11111111",
        "outbox.relay.shop.shop-2.0a1b2c3d-11111111",
        "outbox.listener.shop.shop.0a1b2c3d-11111111",
        "outbox.relay.shop.shop.0a1b2c3d-not-ours",
    ]
    snapshot = broker(mine, older, *others)
    assert entered(relay(), first(), snapshot).retired_users == (older,)
    assert users_of(relay(), snapshot) == (mine, older)


def test_a_user_that_is_gone_is_made_again_with_the_password_that_pods_have() -> None:
    assert entered(relay(), first(), broker()).actions == (MakeUser(USER, "first", RIGHTS),)


def test_pods_share_the_given_user_where_no_other_can_be_made() -> None:
    shared = entered(relay(), None, Snapshot({}, {}, {}, None))
    assert (shared.actions, shared.retired_users, shared.credentials.user) == ((), (), None)
    assert shared.credentials.data["broker-uri"] == "amqp://admin:p%40ss@rabbit:5672/shop"
    assert entered(relay(), shared.credentials, Snapshot({}, {}, {}, None)).credentials is shared.credentials
    after = entered(relay(), shared.credentials, Snapshot({}, {}, {}, None), access=OTHER_PASSWORD)
    assert after.credentials.number == 2


def test_pods_get_a_user_of_their_own_as_soon_as_one_can_be_made() -> None:
    shared = entered(relay(), None, Snapshot({}, {}, {}, None)).credentials
    after = entered(relay(), shared, broker(), FIRST)
    assert (after.credentials.number, after.credentials.user) == (2, USER)


def test_a_secret_that_was_lost_is_followed_by_another_with_another_user() -> None:
    gone = lost(relay(), "shop-relay-0a1b2c3d-7")
    assert gone is not None
    after = entered(relay(), gone, broker(USER))
    assert after.credentials.name == "shop-relay-0a1b2c3d-8"
    assert after.retired_users == (USER,)


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        ("shop-relay-0a1b2c3d-1", True),
        ("shop-relay-0a1b2c3d-12", True),
        ("shop-relay-0a1b2c3d-", False),
        ("shop-relay-0a1b2c3d-0", False),
        ("shop-relay-0a1b2c3d-1x", False),
        ("shop-relay-ffffffff-1", False),
        ("shop-worker-0a1b2c3d-1", False),
        ("shop-rabbitmq", False),
    ],
)
def test_only_names_that_the_operator_gives_are_those_of_its_secrets(name: str, is_ours: bool) -> None:
    assert is_secret_of(relay(), name) is is_ours
    assert (lost(relay(), name) is not None) is is_ours


def test_what_is_written_is_read_back() -> None:
    live = entered(relay("1"), None, broker(), FIRST).credentials
    assert live.name == first_name(relay())
    manifest = live.manifest(relay("1"))
    assert read(manifest) == live
    assert manifest["immutable"] is True
    said = {key: base64.b64decode(value).decode() for key, value in manifest["data"].items()}
    assert said == live.data
    shared = entered(relay(), None, Snapshot({}, {}, {}, None)).credentials
    assert read(shared.manifest(relay())) == shared


@pytest.mark.parametrize("data", [{}, {"broker-uri": "/w=="}, {"broker-uri": "aHR0cDovL1s="}, {"a": "b"}])
def test_a_secret_that_somebody_has_written_is_as_good_as_none(data: dict[str, str]) -> None:
    assert read({"metadata": {"name": "shop-relay-0a1b2c3d-7"}, "data": data}) is None


def test_no_password_is_in_a_repr_or_in_the_metadata() -> None:
    made = entered(relay(), None, broker(), Chance("11111111", "s3cret"))
    assert "s3cret" not in repr(made)
    assert "s3cret" not in repr(Chance("11111111", "s3cret"))
    assert "s3cret" not in str(made.credentials.manifest(relay())["metadata"])


def test_the_users_of_a_listener_and_a_relay_of_one_name_are_told_apart() -> None:
    own = {"name": "shop", "namespace": "shop", "uid": UID}
    listener = OutboxListener.model_validate(changed(LISTENER, {".metadata": own}))
    assert is_user_of(relay(), USER)
    assert not is_user_of(listener, USER)


def test_lots_are_drawn_anew_each_time() -> None:
    one, other = draw(), draw()
    assert one.suffix != other.suffix
    assert one.password != other.password
    assert re.fullmatch("[0-9a-f]{8}", one.suffix)
    # Letters that a URL takes as they are.
    assert re.fullmatch("[A-Za-z0-9_-]{32}", one.password)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@db/shop", "sslmode=verify-full"),
        ("postgresql://u:p@db/shop?sslmode=require", "sslmode=verify-full"),
        ("postgresql://u:p@db/shop?sslmode=verify-ca&a=b%20c", "a=b%20c&sslmode=verify-ca"),
    ],
)
def test_a_private_ca_of_the_database_is_a_file_of_the_pods(url: str, expected: str) -> None:
    there = access_of(url, ca="certificates").pod_url("/etc/outbox/ca/database.crt")
    assert there == f"postgresql://u:p@db/shop?{expected}&sslrootcert=/etc/outbox/ca/database.crt"


@pytest.mark.parametrize(
    ("query", "has_tls"),
    [
        ("", False),
        ("?sslmode=prefer", False),
        ("?sslmode=disable", False),
        ("?ssl=true", True),
        ("?sslmode=require", True),
        ("?sslmode=verify-full", True),
    ],
)
def test_only_a_url_that_says_so_is_sure_to_be_entered_with_tls(query: str, *, has_tls: bool) -> None:
    assert access_of(f"postgresql://u:p@db/shop{query}").has_tls is has_tls
