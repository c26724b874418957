import base64
import hashlib
import re

import pytest

from outbox_operator.broker import passwords
from outbox_operator.broker.actions import MakeUser, Permissions
from outbox_operator.broker.snapshot import ObservedUser, Snapshot
from outbox_operator.broker.user_plan import relay_permissions, user_action, worker_permissions

RIGHT = Permissions("^$", "^(outbox)$", "^$")
SHA512 = "rabbit_password_hashing_sha512"
# As RabbitMQ 3.10 has hashed it.
KEPT = "RvCH11jFmP6PT46pWdtsMx0oaPVWTemqnMM4Gx9U0J/8M4jV"
WORD = "m"


def kept512(password: str) -> str:
    return base64.b64encode(b"salt" + hashlib.sha512(b"salt" + password.encode()).digest()).decode()


def user(
    kept: str = KEPT, hashing: str = passwords.SHA256, permissions: Permissions | None = RIGHT
) -> Snapshot:
    return Snapshot({}, {}, {}, {"shop": ObservedUser("shop", kept, hashing, permissions)})


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(user(), id="SHA-256"),
        pytest.param(user(kept512(WORD), SHA512), id="SHA-512"),
        pytest.param(user("of something else", "rabbit_password_hashing_md5"), id="a hashing we do not know"),
        pytest.param(Snapshot({}, {}, {}, None), id="users are not ours to manage"),
    ],
)
def test_a_user_that_is_right_is_left(snapshot: Snapshot) -> None:
    assert user_action("shop", WORD, RIGHT, snapshot) is None


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(Snapshot({}, {}, {}, {}), id="missing"),
        pytest.param(user(kept512(WORD)), id="a hash of another length"),
        pytest.param(user(passwords.hashed("other", b"salt")), id="another password"),
        pytest.param(user(kept512("other"), SHA512), id="another password in SHA-512"),
        pytest.param(user("not base64!"), id="a hash that is none"),
        pytest.param(user(""), id="no password"),
        pytest.param(user(permissions=None), id="may not enter"),
        pytest.param(user(permissions=Permissions(".*", ".*", ".*")), id="may do too much"),
    ],
)
def test_a_user_that_is_missing_or_wrong_is_made(snapshot: Snapshot) -> None:
    assert user_action("shop", WORD, RIGHT, snapshot) == MakeUser("shop", WORD, RIGHT)


def test_a_password_is_in_no_text() -> None:
    action = MakeUser("shop", "hush", RIGHT)
    assert "hush" not in repr(action)
    assert KEPT not in repr(user())


def test_a_hash_of_ours_is_one_of_rabbitmqs() -> None:
    assert passwords.hashed(WORD, base64.b64decode(KEPT)[:4]) == KEPT


def test_a_relay_may_write_to_its_exchange_only() -> None:
    allowed = relay_permissions("outbox")
    assert allowed == Permissions(configure="^$", write="^(outbox)$", read="^$")


def test_a_worker_may_read_its_queue_and_write_to_its_tiers_and_the_dead_letter_exchange() -> None:
    allowed = worker_permissions("outbox", "mails", ["outbox.delay_2s", "outbox.delay_1s"])
    assert allowed.configure == "^$"
    assert allowed.read == "^(mails)$"
    assert allowed.write == r"^(outbox\.delay_1s|outbox\.delay_2s|outbox\.dlx|mails\.dlq)$"


@pytest.mark.parametrize("name", ["a.b", "a b", "a+b#c", "a-b@c:d,e/f"])
def test_a_name_is_no_pattern(name: str) -> None:
    read = re.compile(worker_permissions("outbox", name, []).read)
    assert read.search(name)
    others = [name + "x", "x" + name, name.replace(".", "x") + "!", re.sub(r"\W", "x", name)]
    assert not any(read.search(other) for other in others)
