"""What the pods of a resource enter with: where that can be, a broker user of their own. Pure.

A Secret is never changed. Other content gets a Secret of another name, so that the pods roll because their
template names it, and pods of before find theirs until the last of them is gone.
"""

import re
import secrets
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import unquote, urlsplit

from outbox_core.url_hosts import split_hosts
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import Action, Permissions
from outbox_operator.broker.snapshot import Snapshot
from outbox_operator.broker.user_plan import user_action
from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import Owner, child_name
from outbox_operator.children.pod_secret import BROKER_URI, secret_data, secret_manifest
from outbox_operator.children.pod_template import CA_FILE, DATABASE_CA_FILE
from outbox_operator.database_access import DatabaseAccess
from outbox_operator.resources import OutboxListener, OutboxRelay

ROTATE = "outbox.dev/rotate"
"""The annotation of a resource by which its pods get a new broker user whenever its value is another one."""

_ROTATION = "outbox.dev/rotation"
_USER = "outbox.dev/broker-user"
_UID_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Chance:
    """What is drawn by lot, given to the plan so that it needs no luck of its own."""

    suffix: str
    """Tells a user from the one before it: eight hexadecimal digits."""
    password: str = field(repr=False)
    """For a user that is to be made."""


def draw() -> Chance:
    """Lots, for one plan."""
    return Chance(secrets.token_hex(4), secrets.token_urlsafe(24))


@dataclass(frozen=True, slots=True)
class PodCredentials:
    """The content of such a Secret."""

    name: str
    """The Secret's name."""
    number: int
    """How many there were before it, and one."""
    rotation: str
    """The value of the annotation `ROTATE` that it was made for."""
    user: str | None
    """The broker user that the pods have for themselves; None where they share the given one."""
    data: Mapping[str, str] = field(repr=False)
    """The keys and what they hold."""

    @property
    def password(self) -> str:
        """The password of whoever the pods enter the broker as."""
        return unquote(urlsplit(split_hosts(self.data[BROKER_URI])[0]).password or "")

    def manifest(self, owner: Owner) -> Manifest:
        """The Secret, which says openly whom it is for and since when."""
        user = {_USER: self.user} if self.user else {}
        return secret_manifest(owner, self.name, self.data, {_ROTATION: self.rotation, **user})


@dataclass(frozen=True, slots=True)
class Entrance:
    """How the pods of a resource come to enter the broker."""

    credentials: PodCredentials
    """What they enter with."""
    actions: tuple[Action, ...]
    """What has to be done on the broker for it."""
    retired_users: tuple[str, ...]
    """Users of pods of before."""


def read(secret: Manifest) -> PodCredentials | None:
    """What a Secret of ours says; None if somebody has put something else into it."""
    metadata = secret["metadata"]
    annotations = metadata.get("annotations", {})
    try:
        data = {key: b64decode(value).decode() for key, value in secret.get("data", {}).items()}
        urlsplit(split_hosts(data[BROKER_URI])[0])
    except (KeyError, ValueError):
        return None
    return PodCredentials(
        name=metadata["name"],
        number=int(metadata["name"].rpartition("-")[2]),
        rotation=annotations.get(_ROTATION, ""),
        user=annotations.get(_USER),
        data=data,
    )


def entrance(
    owner: Owner,
    live: PodCredentials | None,
    access: BrokerAccess,
    *,
    snapshot: Snapshot,
    permissions: Permissions,
    chance: Chance,
    database: DatabaseAccess | None = None,
) -> Entrance | None:
    """What the pods should have: `live` itself where nothing has to change.

    None where they may not have what there is: an administrator's credentials that are not the tenant's.
    """
    if snapshot.users is None:
        if access.is_secret_from_pods:
            return None
        return Entrance(
            _credentials(owner, live, access, user=None, password=None, database=database), (), ()
        )
    user, password = _user(owner, live, chance)
    credentials = _credentials(owner, live, access, user=user, password=password, database=database)
    action = user_action(user, password, permissions, snapshot)
    retired = tuple(name for name in users_of(owner, snapshot) if name != user)
    return Entrance(credentials, (action,) if action else (), retired)


def users_of(owner: Owner, snapshot: Snapshot) -> tuple[str, ...]:
    """The users that were made for its pods, now or before."""
    return tuple(sorted(name for name in snapshot.users or () if is_user_of(owner, name)))


def lost(owner: Owner, name: str) -> PodCredentials | None:
    """Of a Secret that is named and not there: all that is known of it; None where it was never ours."""
    if not is_secret_of(owner, name):
        return None
    return PodCredentials(name, int(name.rpartition("-")[2]), rotation="", user=None, data={})


def first_name(owner: Owner) -> str:
    """What the first Secret of a resource is called."""
    return f"{_name_prefix(owner)}1"


def is_secret_of(owner: Owner, name: str) -> bool:
    """Whether a Secret of this name is one that was made for the pods of a resource, now or before."""
    number = name.removeprefix(_name_prefix(owner))
    return number != name and re.fullmatch("[1-9][0-9]*", number) is not None


def is_user_of(owner: Owner, user: str) -> bool:
    """Whether a user of the broker was made for the pods of a resource, now or before."""
    suffix = user.removeprefix(_user_prefix(owner))
    return suffix != user and re.fullmatch("[0-9a-f]{8}", suffix) is not None


def _credentials(
    owner: Owner,
    live: PodCredentials | None,
    access: BrokerAccess,
    *,
    user: str | None,
    password: str | None,
    database: DatabaseAccess | None,
) -> PodCredentials:
    ca_file = CA_FILE if access.ca else None
    is_scaled = isinstance(owner, OutboxListener) and access.other_hosts
    data = secret_data(
        broker_uri=access.uri(user, password, ca_file),
        database_uri=database.pod_url(DATABASE_CA_FILE) if database else None,
        # Whether or not there is a scaler by now: one that is added must not roll the pods.
        scaler_uri=replace(access, other_hosts=()).uri(user, password, ca_file) if is_scaled else None,
        ca=access.ca,
        database_ca=database.ca if database else None,
    )
    rotation = _rotation(owner)
    if live is not None and live.data == data and live.rotation == rotation:
        return live
    number = live.number + 1 if live else 1
    return PodCredentials(f"{_name_prefix(owner)}{number}", number, rotation, user, data)


def _user(owner: Owner, live: PodCredentials | None, chance: Chance) -> tuple[str, str]:
    if live is not None and live.user is not None and live.rotation == _rotation(owner):
        return live.user, live.password
    return f"{_user_prefix(owner)}{chance.suffix}", chance.password


def _name_prefix(owner: Owner) -> str:
    # With the uid: a Secret of a resource that had this name before is not in the way.
    return f"{child_name(owner)}-{owner.metadata.uid[:_UID_LENGTH]}-"


def _user_prefix(owner: Owner) -> str:
    # With the uid: the same resource in another cluster on this broker is somebody else.
    kind: Literal["relay", "listener"] = "relay" if isinstance(owner, OutboxRelay) else "listener"
    metadata = owner.metadata
    return f"outbox.{kind}.{metadata.namespace}.{metadata.name}.{metadata.uid[:_UID_LENGTH]}-"


def _rotation(owner: Owner) -> str:
    return owner.metadata.annotations.get(ROTATE, "")
