"""Secrets of all shapes: what they come down to, and what is said of one that will not do."""

import ssl
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme
from hypothesis import example, given
from hypothesis import strategies as st

from outbox_core.broker_address import BrokerAddress, broker_urls
from outbox_core.database import connect_arguments
from outbox_core.url_hosts import HostPort, split_hosts
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.conditions import Finding
from outbox_operator.credentials import broker_access, database_url
from outbox_operator.resources.condition import ConditionStatus, ConditionType
from outbox_operator.resources.references import SecretKeyRef, SecretRef
from outbox_operator.resources.relay import Broker, Database
from outbox_operator.service_hosts import seen_from_elsewhere

SECRET = "s3cret"  # noqa: S105 - made up
CA = trustme.CA().cert_pem.bytes()


def data(**values: str | bytes) -> dict[str, bytes]:
    return {key: value.encode() if isinstance(value, str) else value for key, value in values.items()}


def broker(
    secret: dict[str, bytes] | None, ca: dict[str, bytes] | None = None, **spec: Any
) -> BrokerAccess | Finding:
    described = Broker.model_validate({"secretRef": {"name": "shop-rabbitmq"}, **spec})
    return broker_access(described, secret, ca, namespace="shop")


def database(secret: dict[str, bytes] | None) -> str | Finding:
    described = Database.model_validate({"secretRef": {"name": "shop-db"}})
    return database_url(described, secret, namespace="shop")


def access(**changes: Any) -> BrokerAccess:
    plain: dict[str, Any] = {
        "host": "rabbit",
        "port": 5672,
        "tls": False,
        "vhost": "/",
        "username": "app",
        "password": SECRET,
        "management_url": "http://rabbit.shop.svc:15672",
    }
    return BrokerAccess(**{**plain, **changes})


ENCRYPTED = {"port": 5671, "tls": True, "management_url": "https://rabbit.shop.svc:15671"}

CLUSTER_OPERATOR = data(
    host="rabbit.mq.svc",
    port="5672",
    username="default_user_x",
    password=SECRET,
    provider="rabbitmq",
    type="rabbitmq",
    connection_string=f"amqp://default_user_x:{SECRET}@rabbit.mq.svc:5672/",
    **{"default_user.conf": f"default_user = default_user_x\ndefault_pass = {SECRET}\n"},
)
"""What the RabbitMQ Cluster Operator makes for the default user."""

CLOUD_NATIVE = data(
    username="app",
    user="app",
    password=SECRET,
    dbname="shop",
    host="shop-rw",
    port="5432",
    pgpass=f"shop-rw:5432:shop:app:{SECRET}\n",
    uri=f"postgresql://app:{SECRET}@shop-rw.shop:5432/shop",
    **{"jdbc-uri": f"jdbc:postgresql://shop-rw.shop:5432/shop?password={SECRET}&user=app"},
)
"""What CloudNativePG makes for an application."""


@pytest.mark.parametrize(
    ("secret", "expected"),
    [
        (data(uri=f"amqp://app:{SECRET}@rabbit"), access()),
        (data(uri=f"amqp://app:{SECRET}@rabbit/"), access()),
        (data(uri=f"amqp://app:{SECRET}@rabbit:5672/%2F\n"), access()),
        (data(uri=f"amqp://app:{SECRET}@rabbit//"), access()),
        (data(uri=f"amqp://app:{SECRET}@rabbit/shop%20a\r\n"), access(vhost="shop a")),
        (
            data(uri="amqp://a%40pp:p%2F%3A%23%40@rabbit:7000/x"),
            access(
                port=7000,
                vhost="x",
                username="a@pp",
                password="p/:#@",  # noqa: S106 - made up
            ),
        ),
        (data(uri=f"amqps://app:{SECRET}@rabbit"), access(**ENCRYPTED)),
        (data(uri=f"amqps://app:{SECRET}@rabbit:7001/?heartbeat=5"), access(**ENCRYPTED | {"port": 7001})),
        (data(uri="amqp://rabbit"), access(username="guest", password="guest")),  # noqa: S106 - the default
        (
            data(uri=f"amqp://app:{SECRET}@[fd00::1]"),
            access(host="fd00::1", management_url="http://[fd00::1]:15672"),
        ),
        (data(host="rabbit", username="app", password=SECRET), access()),
        (data(host="rabbit\n", port="5672\n", username="app\n", password=f"{SECRET}\n"), access()),
        (
            data(host="rabbit", port="7000", username="app", password=SECRET, vhost="v"),
            access(port=7000, vhost="v"),
        ),
        (data(host="rabbit", port="5671", username="app", password=SECRET), access(**ENCRYPTED)),
        (
            data(host="[fd00::1]", username="app", password=SECRET),
            access(host="fd00::1", management_url="http://[fd00::1]:15672"),
        ),
        (
            data(host="fd00::1", username="app", password=SECRET),
            access(host="fd00::1", management_url="http://[fd00::1]:15672"),
        ),
        (
            CLUSTER_OPERATOR,
            access(
                host="rabbit.mq.svc", username="default_user_x", management_url="http://rabbit.mq.svc:15672"
            ),
        ),
        (CLUSTER_OPERATOR | data(uri=f"amqp://app:{SECRET}@rabbit"), access()),
        (
            data(uri=f"amqp://app:{SECRET}@rabbit,b:7000,[fd00::1]/v"),
            access(
                vhost="v",
                other_hosts=(HostPort("b", 7000), HostPort("fd00::1", 5672)),
                management_url="http://[fd00::1]:15672,b.shop.svc:15672,rabbit.shop.svc:15672",
            ),
        ),
        (
            data(host="rabbit,b.mq", port="5671", username="app", password=SECRET),
            access(
                **ENCRYPTED
                | {
                    "other_hosts": (HostPort("b.mq", 5671),),
                    "management_url": "https://b.mq:15671,rabbit.shop.svc:15671",
                }
            ),
        ),
        (CLUSTER_OPERATOR | data(uri="", host="rabbit", username="app"), access()),
    ],
)
def test_a_secret_says_how_the_broker_is_entered(secret: dict[str, bytes], expected: BrokerAccess) -> None:
    found = broker(secret)
    assert found == expected
    assert SECRET not in repr(found)


def test_the_spec_wins_over_the_secret() -> None:
    secret = data(uri=f"amqp://app:{SECRET}@rabbit/in-secret")
    found = broker(secret, vhost="in-spec", managementUrl="https://manage.example/rabbit/")
    assert found == access(vhost="in-spec", management_url="https://manage.example/rabbit")


def test_hosts_in_another_order_are_the_same_broker() -> None:
    one, other = (broker(data(uri=f"amqp://app:{SECRET}@{hosts}/v")) for hosts in ("a,b:7000", "b:7000,a"))
    assert isinstance(one, BrokerAccess)
    assert isinstance(other, BrokerAccess)
    assert one.vhost_id == other.vhost_id


def test_the_pods_get_every_host() -> None:
    found = broker(data(uri=f"amqp://app:{SECRET}@a,b:7000,[fd00::1]/v"))
    assert isinstance(found, BrokerAccess)
    assert found.uri("pod", "p,@") == "amqp://pod:p%2C%40@a:5672,b:7000,[fd00::1]:5672/v"


def test_the_management_api_may_be_at_several_hosts() -> None:
    url = "https://a:1,manage.example:2/rabbit"
    found = broker(data(uri=f"amqp://app:{SECRET}@rabbit"), managementUrl=url)
    assert found == access(management_url="https://a.shop.svc:1,manage.example:2/rabbit")


@pytest.mark.parametrize(("port", "tls"), [("", True), ("5671", True), ("5672", False), ("30671", True)])
def test_certificates_to_check_are_a_wish_for_tls_but_at_the_port_without_it(port: str, tls: bool) -> None:
    secret = data(host="rabbit", port=port, username="app", password=SECRET)
    found = broker(secret, data(**{"ca.crt": CA}), caSecretRef={"name": "ca"})
    assert isinstance(found, BrokerAccess)
    assert (found.port, found.tls) == (int(port or 5671), tls)


def test_the_certificates_come_from_their_key() -> None:
    secret = data(uri=f"amqps://app:{SECRET}@rabbit")
    found = broker(secret, data(bundle=CA), caSecretRef={"name": "ca", "key": "bundle"})
    assert isinstance(found, BrokerAccess)
    assert found.ca is not None
    assert ssl.create_default_context(cadata=found.ca).cert_store_stats()["x509_ca"] == 1


@pytest.mark.parametrize(
    ("secret", "arguments"),
    [
        (data(uri=f"postgresql://app:{SECRET}@db:7000/shop\n"), {"host": "db", "port": 7000}),
        (data(uri=f"postgres://app:{SECRET}@db/shop"), {"host": "db"}),
        (data(uri=f"postgresql+asyncpg://app:{SECRET}@db/shop?ssl=on"), {"host": "db", "ssl": "require"}),
        (data(uri=f"postgresql://app:{SECRET}@a,b:7000/shop"), {"host": ["a", "b"], "port": [5432, 7000]}),
        (CLOUD_NATIVE, {"host": "shop-rw.shop", "port": 5432}),
        (CLOUD_NATIVE | data(uri="", username="", port="\n"), {"host": "shop-rw", "port": 5432}),
        (
            data(host="db", port="7000", username="app", password=SECRET, database="shop"),
            {"host": "db", "port": 7000},
        ),
        (
            data(host="db\n", user="app\n", password=f"{SECRET}\n", dbname="shop\n"),
            {"host": "db", "port": 5432},
        ),
        (
            data(host="fd00::1", username="app", password=SECRET, database="shop"),
            {"host": "fd00::1", "port": 5432},
        ),
        (
            data(host="a,[fd00::1],c", port="7000", username="app", password=SECRET, database="shop"),
            {"host": ["a", "fd00::1", "c"], "port": [7000, 7000, 7000]},
        ),
    ],
)
def test_a_secret_says_how_the_database_is_entered(
    secret: dict[str, bytes], arguments: dict[str, object]
) -> None:
    url = database(secret)
    assert isinstance(url, str)
    who = {"user": "app", "password": SECRET, "database": "shop"}
    assert connect_arguments(url) == {**who, **arguments}


def test_what_is_special_in_a_key_is_quoted_in_the_url() -> None:
    odd = "a b/c:d@e?f#g%h[i]é"
    url = database(data(host="db", username=odd, password=odd, database=odd))
    assert isinstance(url, str)
    found = connect_arguments(url)
    assert found == {"host": "db", "port": 5432, "user": odd, "password": odd, "database": odd}


USER = "kubectl create secret generic shop-rabbitmq --namespace shop --from-literal=uri='amqp://USER:"
KEYS = data(host="rabbit", username="app", password=SECRET)


@pytest.mark.parametrize(
    ("secret", "reason", "words"),
    [
        (None, "SecretMissing", ['Secret "shop-rabbitmq" does not exist in namespace "shop"', USER]),
        ({}, "KeyMissing", ["it has nothing", "add uri, as amqp://USER:", "host and username and password"]),
        (data(host="h", password=SECRET, x=""), "KeyMissing", ["it has host, password; ", "or username"]),
        (data(uri=f"https://{SECRET}@rabbit"), "InvalidUri", ["is no URL of a broker", "amqp://USER:"]),
        (data(uri=SECRET), "InvalidUri", ["is no URL of a broker"]),
        (data(uri=f"amqp://app:{SECRET}/x@rabbit/"), "InvalidUri", ["percent-encode", "%2F"]),
        (data(uri=f"amqp://app:12/{SECRET}@rabbit/"), "InvalidUri", ["is cut", "%2F"]),
        (data(uri=f"amqp://app:12?{SECRET}@rabbit/"), "InvalidUri", ["is cut", "%3F"]),
        (data(uri=f"amqp://app:12#{SECRET}@rabbit/"), "InvalidUri", ["is cut", "%23"]),
        (data(uri=f"amqp://{SECRET}@rabbit/"), "InvalidUri", ["a user and no password"]),
        (data(uri=f"amqp://app:{SECRET}@rabbit:99999/"), "InvalidUri", ["is no URL of a broker"]),
        (data(uri=b"\xff" + SECRET.encode()), "InvalidUri", ["key uri is not text in UTF-8"]),
        (KEYS | data(password=b"\xff"), "InvalidValue", ["key password is not text in UTF-8"]),
        (KEYS | data(port=f"{SECRET}"), "InvalidValue", ["key port is no port's number", "5672"]),
        (KEYS | data(port="0"), "InvalidValue", ["key port"]),
        (KEYS | data(host=f"amqp://{SECRET}"), "InvalidValue", ["key host must be a host's name"]),
        (KEYS | data(host="rabbit:5672"), "InvalidValue", ["key host", "without scheme, port"]),
        (KEYS | data(host="a,,b"), "InvalidValue", ["key host must be a host's name"]),
        (KEYS | data(host="a,b:5672"), "InvalidValue", ["key host", "without scheme, port"]),
        (KEYS | data(host="a,b,A"), "InvalidValue", ["key host lists a host twice"]),
        (data(uri=f"amqp://app:{SECRET}@a,,b/"), "InvalidUri", ["is no URL of a broker"]),
        (data(uri=f"amqp://app:{SECRET}@a,b:0x1/"), "InvalidUri", ["is no URL of a broker"]),
        (data(uri=f"amqp://app:{SECRET}@a,b%/"), "InvalidUri", ["names no valid host"]),
        (data(uri=f"amqp://app:{SECRET}@a,a:5672/"), "InvalidUri", ["lists a host twice"]),
    ],
)
def test_a_broker_secret_that_will_not_do_is_told_with_the_cure(
    secret: dict[str, bytes] | None, reason: str, words: list[str]
) -> None:
    assert_refused(broker(secret), reason, 'Secret "shop-rabbitmq"', *words)


@pytest.mark.parametrize(
    ("ca", "reason", "words"),
    [
        (None, "SecretMissing", ['"ca" does not exist', "--from-file=ca.crt=CERTIFICATES.pem"]),
        (data(other=CA), "KeyMissing", ["has no ca.crt: it has other; ", "spec.broker.caSecretRef.key"]),
        (data(**{"ca.crt": SECRET}), "InvalidValue", ["key ca.crt holds no certificates", "PEM"]),
        (data(**{"ca.crt": "é"}), "InvalidValue", ["key ca.crt holds no certificates", "ASCII"]),
    ],
)
def test_certificates_that_will_not_do_are_told_with_the_cure(
    ca: dict[str, bytes] | None, reason: str, words: list[str]
) -> None:
    found = broker(data(uri=f"amqps://app:{SECRET}@rabbit"), ca, caSecretRef={"name": "ca"})
    assert_refused(found, reason, 'Secret "ca"', *words)


@pytest.mark.parametrize(
    ("secret", "reason", "words"),
    [
        (None, "SecretMissing", ["generic shop-db --namespace shop --from-literal=uri='postgresql://USER:"]),
        (data(host="db", user="app"), "KeyMissing", ["it has host, user; ", "or password and database"]),
        (data(uri=f"mysql://app:{SECRET}@db/shop"), "InvalidUri", ["begin it with postgresql://"]),
        (data(uri=f"postgresql://app:{SECRET}/x@db/shop"), "InvalidUri", ["percent-encode"]),
        (data(uri=f"postgresql://app:12/{SECRET}@db/shop"), "InvalidUri", ["is cut", "%2F"]),
        (data(uri=f"postgresql://app:12?{SECRET}@db/shop"), "InvalidUri", ["is cut", "%3F"]),
        (data(uri=f"postgresql://app:12#{SECRET}@db/shop"), "InvalidUri", ["%23"]),
        (data(uri=f"postgresql://app:{SECRET}@/shop"), "InvalidUri", ["names no host"]),
        (data(uri=f"postgresql://app:{SECRET}@/shop?host=/run"), "InvalidUri", ["names no host"]),
        (data(uri="postgresql://db/shop"), "InvalidUri", ["names no user"]),
        (data(uri=f"postgresql://app:{SECRET}@db℀/shop"), "InvalidUri", ["is no URL", "plain letters"]),
        (data(uri=b"\xff"), "InvalidUri", ["not text in UTF-8"]),
    ],
)
def test_a_database_secret_that_will_not_do_is_told_with_the_cure(
    secret: dict[str, bytes] | None, reason: str, words: list[str]
) -> None:
    assert_refused(database(secret), reason, 'Secret "shop-db"', *words)


_PIECES = ("amqp", "http", "://", ":", "@", "/", "[", "]", "::1", "%", "%2F", "?", "#", ",", "host", "99999")
# The last of these are other signs, of a URL too, once Unicode's normalization has been over them.
_URLISH = st.lists(st.sampled_from((*_PIECES, "é", " ", "\n", "℀", "／", "＠")) | st.text(max_size=3))
_TEXT = _URLISH.map("".join) | st.text(max_size=20)
_VALUES = _TEXT.map(str.encode) | st.binary(max_size=20)
_KEYS = ("uri", "host", "port", "username", "password", "vhost", "user", "database", "dbname")
_DATA = st.dictionaries(st.sampled_from(_KEYS), _VALUES) | st.builds(
    lambda uri: {"uri": uri}, _URLISH.map(lambda pieces: "".join(("amqp://", *pieces)).encode())
)


@given(secret=_DATA, ca=st.none() | _VALUES, url=st.none() | _TEXT, vhost=st.none() | _TEXT)
def test_no_broker_secret_makes_its_reading_fail(
    secret: dict[str, bytes], ca: bytes | None, url: str | None, vhost: str | None
) -> None:
    reference = SecretKeyRef(name="ca") if ca is not None else None
    described = Broker.model_construct(
        secret_ref=SecretRef(name="s"), vhost=vhost, management_url=url, ca_secret_ref=reference
    )
    certificates = None if ca is None or reference is None else {reference.key: ca}
    found = broker_access(described, secret, certificates, namespace="shop")
    if isinstance(found, BrokerAccess):
        urls = broker_urls(found.uri("pod", "password"))
        assert BrokerAddress.parse(urls[0]).host == found.host.lower()
        assert len(urls) == 1 + len(found.other_hosts)
        assert all(urlsplit(each).hostname for each in split_hosts(found.management_url))


@given(secret=_DATA | st.builds(lambda rest: {"uri": b"postgresql://a:b@" + rest}, _VALUES))
@example(secret=data(uri="postgresql://app:x@db℀/shop"))
@example(secret=data(uri="postgresql://app:x@db＠other/shop"))
def test_no_database_secret_makes_its_reading_fail(secret: dict[str, bytes]) -> None:
    found = database(secret)
    if isinstance(found, str):
        connect_arguments(seen_from_elsewhere(found, "shop"))


def assert_refused(found: object, reason: str, *words: str) -> None:
    assert isinstance(found, Finding)
    assert (found.type, found.status) == (ConditionType.CREDENTIALS_VALID, ConditionStatus.FALSE)
    assert found.reason == reason
    assert [part for part in words if part not in found.message] == []
    assert SECRET not in found.message
