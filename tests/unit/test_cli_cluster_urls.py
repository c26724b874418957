"""URLs between the Secrets of a cluster and the machine of a person."""

import ssl

import pytest
import trustme
from yarl import URL

from outbox_cli.cluster.place import PLUGIN, Place
from outbox_cli.cluster.urls import Service, broker_url, service_of, with_login
from outbox_operator.broker.access import BrokerAccess

ACCESS = BrokerAccess(
    host="rabbitmq",
    port=5672,
    tls=False,
    vhost="/",
    username="shop",
    password="p@ss",  # noqa: S106 - of nobody
    management_url="http://rabbitmq:15672",
)


@pytest.mark.parametrize(
    ("given", "known", "expected"),
    [
        ("amqp://localhost:5673", "amqp://shop:x@rabbitmq/v", "amqp://shop:x@localhost:5673/v"),
        ("amqp://localhost:5673/", "amqp://shop:x@rabbitmq/v", "amqp://shop:x@localhost:5673/v"),
        ("amqp://localhost/other", "amqp://shop:x@rabbitmq/v", "amqp://shop:x@localhost/other"),
        ("amqp://me:y@localhost", "amqp://shop:x@rabbitmq/v", "amqp://me:y@localhost"),
        ("amqp://[::1]:1,b", "amqp://shop:x@a,[::2]:2/v", "amqp://shop:x@[::1]:1,b/v"),
        (
            "postgresql://localhost:5433",
            "postgresql://app:x@db,standby/shop?sslmode=require",
            "postgresql://app:x@localhost:5433/shop?sslmode=require",
        ),
    ],
)
def test_a_url_without_a_login_gets_that_of_the_secret(given: str, known: str, expected: str) -> None:
    assert with_login(given, known) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://u:p@rabbitmq.shop.svc/v", Service("rabbitmq", "shop", "rabbitmq.shop.svc", 5672, "amqp")),
        (
            "amqps://rabbitmq.shop.svc.cluster.local:5671/",
            Service("rabbitmq", "shop", "rabbitmq.shop.svc.cluster.local", 5671, "amqps"),
        ),
        (
            "postgresql+asyncpg://app:x@db-0.db.shop.svc:6432,db-1.db.shop.svc:6432/shop",
            Service("db", "shop", "db-0.db.shop.svc", 6432, "postgresql"),
        ),
        ("amqp://rabbitmq.shop", Service("rabbitmq", "shop", "rabbitmq.shop", 5672, "amqp")),
        ("amqp://localhost", None),
        ("amqp://10.0.0.1", None),
        ("amqp://rabbitmq.example.org", None),
        ("amqp://[::1]:5672", None),
    ],
)
def test_a_service_of_the_cluster_is_known_by_its_name(url: str, expected: Service | None) -> None:
    assert service_of(url) == expected


def test_what_is_inside_of_the_cluster_only_tells_the_way_to_it() -> None:
    service = Service("rabbitmq", "shop", "rabbitmq.shop.svc", 5672, "amqp")
    assert service.unreachable("the broker", "--broker-url") == (
        "the broker is the Service rabbitmq.shop.svc, which is known inside of the cluster only; "
        "run `kubectl port-forward --namespace shop service/rabbitmq 5672:5672`, "
        "and add --broker-url amqp://localhost:5672"
    )


def test_the_url_of_a_broker_names_its_service_and_hides_nothing_it_needs() -> None:
    assert broker_url(ACCESS, "shop") == "amqp://shop:p%40ss@rabbitmq.shop.svc:5672/%2F"


def test_the_certificates_of_a_private_authority_travel_in_the_url() -> None:
    authorities = [trustme.CA(), trustme.CA()]
    text = "".join(f"# one\n{each.cert_pem.bytes().decode()}" for each in authorities)
    access = BrokerAccess(**{name: getattr(ACCESS, name) for name in ACCESS.__slots__} | {"ca": text})
    query = URL(broker_url(access, "shop")).query
    import base64

    context = ssl.create_default_context(cadata=base64.b64decode(query["cadata"]))
    assert len(context.get_ca_certs()) == 2


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (Place(), False),
        (Place(program=PLUGIN), True),
        (Place(namespace="shop"), True),
        (Place(relay="shop"), True),
        (Place(context="staging"), True),
        (Place(kubeconfig="file"), True),
        (Place(everywhere=True), True),
    ],
)
def test_names_are_those_of_resources_where_a_cluster_is_meant(place: Place, expected: bool) -> None:
    assert place.in_cluster is expected


def test_a_command_to_type_leads_to_the_same_cluster() -> None:
    place = Place(program=PLUGIN, context="staging")
    assert (
        place.command("dlq list mail", "shop") == "`kubectl outbox dlq list mail -n shop --context staging`"
    )
    assert Place().command("dlq list shop.mail") == "`outbox dlq list shop.mail`"
