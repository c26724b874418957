"""Passwords are masked and nothing else is, in a time that is linear in the text."""

import time

import pytest

from outbox_core.masking import LONGEST, mask

SECRET_URL = "amqp://shop:s3cret@broker:5672/vhost"  # noqa: S105 - made up
MASKED_URL = "amqp://shop:***@broker:5672/vhost"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (SECRET_URL, MASKED_URL),
        (f"cannot open {SECRET_URL}: refused", f"cannot open {MASKED_URL}: refused"),
        ("postgresql+asyncpg://u:p@h/db", "postgresql+asyncpg://u:***@h/db"),
        ("redis://:p@h", "redis://:***@h"),
        ("x://u:p@ss@h", "x://u:***@h"),
        ("x://u:p/ss@h", "x://u:***@h"),
        ("x://u:p:ss@h", "x://u:***@h"),
        ("x://u:p'w@h", "x://u:***@h"),
        ("x://u:12345@h", "x://u:***@h"),
        ("x://u:@h", "x://u:***@h"),
        (
            "postgresql:///db?user=u&password=p&sslmode=require",
            "postgresql:///db?user=u&password=***&sslmode=require",
        ),
        ("host=h password=p user=u", "host=h password=*** user=u"),
        ("host=h password='p q' user=u", "host=h password=*** user=u"),
        ("{'password': 'p', 'user': 'u'}", "{'password': ***, 'user': 'u'}"),
        (f"...{SECRET_URL}", f"...{MASKED_URL}"),
        ("http://host:15672/api?mail=a@b", "http://host:15672/api?mail=a@b"),
        ("x://u@h/db", "x://u@h/db"),
        ("mail a@b: see http://h/", "mail a@b: see http://h/"),
        # What looks like a port may be the beginning of a password.
        ("amqp://u:1234/x@h", "amqp://u:***@h"),
        ("amqp://u:1234,x@h", "amqp://u:***@h"),
        ("amqp://u:1234?x@h", "amqp://u:***@h"),
        ("amqp://u:1234#x@h", "amqp://u:***@h"),
        ("u:1234/x@h", "u:***@h"),
        ("dsn=u:p4ss@h:5432", "dsn=u:***@h:5432"),
        ("amqp://a:5672,b:5672/", "amqp://a:5672,b:5672/"),
        ("amqp://u:p@a:5672,b:5672/", "amqp://u:***@a:5672,b:5672/"),
        ("image r.example:5000/shop@sha256:0123", "image r.example:5000/shop@sha256:0123"),
        ("mailto:bob@example.com", "mailto:bob@example.com"),
        ("node:rabbit@rabbit-1", "node:rabbit@rabbit-1"),
        # Names of passwords, with what may stand between name and value.
        ("password: x", "password: ***"),
        ("Password : x y", "Password : *** y"),
        ("PGPASSWORD=x", "PGPASSWORD=***"),
        ("POSTGRES_PASSWORD => x", "POSTGRES_PASSWORD => ***"),
        ("passwd=x passphrase=y passcode=z", "passwd=*** passphrase=*** passcode=***"),
        ("pwd=x;", "pwd=***"),
        ("http://h/?pass=x&y=z", "http://h/?pass=***&y=z"),
        ("pw=x", "pw=***"),
        ("token=x", "token=***"),
        ("access_token = x", "access_token = ***"),
        (
            "client_secret=x secretAccessKey: y api-key=z",
            "client_secret=*** secretAccessKey: *** api-key=***",
        ),
        ('{"password": "x y", "a": 1}', '{"password": ***, "a": 1}'),
        (r"{\"password\": \"x\"}", r"{\"password\": ***"),
        ('{"token": "x"}', '{"token": ***}'),
        ("{'password': b'x y'}", "{'password': ***}"),
        ("password='it\\'s x' user=u", "password=*** user=u"),
        ("password='not closed x", "password=***"),
        ("token: eyJhbGciOiJIUzI1NiJ9.e30", "token: ***"),
        ("Authorization: Basic dTpw", "Authorization: Basic ***"),
        ("{'Authorization': 'Bearer x.y'}", "{'Authorization': 'Bearer ***'}"),
        # Sentences about them.
        ('password authentication failed for user "app"', 'password authentication failed for user "app"'),
        ("check the user and the password; try again", "check the user and the password; try again"),
        ("unexpected token: '<' at 3", "unexpected token: '<' at 3"),
        ("invalid token: expected number", "invalid token: expected number"),
        ("secret=shop/shop-db", "secret=shop/shop-db"),
        ("Secret shop-db has no key password", "Secret shop-db has no key password"),
        ("first pass: done, compass=north", "first pass: done, compass=north"),
        ("no url", "no url"),
    ],
)
def test_a_password_is_masked_and_nothing_else(text: str, masked: str) -> None:
    assert mask(text) == masked


@pytest.mark.parametrize("secret", ["amqp://u:{}@h", "u:1{}@h", "password={}", "password: '{}'", "token={}"])
def test_a_password_that_is_cut_off_is_masked_as_well(secret: str) -> None:
    masked = mask(" " * (LONGEST - 20) + secret.format("s3cret" * 100))
    assert "s3c" not in masked
    assert masked.endswith("***…")


def test_a_long_text_is_cut() -> None:
    assert mask("x" * 10 * LONGEST) == "x" * LONGEST + "…"
    assert mask("x" * 10 * LONGEST, 10) == "x" * 10 + "…"


PIECES = [
    *("a://x:", "a://", "://x", " ://x:", "a://x:1/", "a://x:1,", "x:1", "x:1@", "x:1 ", "@", "a@", "x:"),
    *(
        "password",
        "password ",
        "password =",
        "password='",
        "password:\\",
        "password\\",
        "password: b\\'",
        '\\"',
    ),
    *("token", "token: a", "token: 1", "token ", "pass ", "pw", "secret_", "api_key\t", "authorization: a "),
    *("authorization:", " ", "\n", "'", "=", "=>", "é", "\0"),
]


@pytest.mark.parametrize("end", ["", "@h", "="])
@pytest.mark.parametrize("piece", PIECES)
def test_masking_takes_linear_time(piece: str, end: str) -> None:
    def least_seconds(length: int) -> float:
        text = piece * (length // len(piece)) + end
        return min(_seconds(text) for _ in range(3))

    # Quadratic would be 64 times as long; what a busy machine adds is left room for.
    assert least_seconds(2 * LONGEST) < 32 * least_seconds(LONGEST // 4) + 0.01


def _seconds(text: str) -> float:
    began = time.process_time()
    mask(text, len(text))
    return time.process_time() - began
