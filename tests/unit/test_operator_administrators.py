"""Secrets of administrators in the operator's namespace: who may use them, for what, and at which address."""

from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from outbox_core.url_hosts import HostPort
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.conditions import Finding
from outbox_operator.credentials import administrator_access
from outbox_operator.resources.condition import ConditionStatus, ConditionType
from outbox_operator.resources.references import AdministratorSecretRef
from outbox_operator.settings import Settings

PASSWORD = "s3cret"  # noqa: S105 - made up
HOME = "outbox-system"
URI = f"amqp://admin:{PASSWORD}@rabbitmq:5672/"
NAMESPACES = """
# who may use it
team-a: /shop
team-a: billing:eu
team-b: /
"""
CA = trustme.CA().cert_pem.bytes().decode()


def found(namespace: str, vhost: str, **data: str) -> BrokerAccess | Finding:
    secret = {key: value.encode() for key, value in {"namespaces": NAMESPACES, "uri": URI, **data}.items()}
    return administrator_access("rabbitmq-admin", secret, home=HOME, namespace=namespace, vhost=vhost)


def reason(said: BrokerAccess | Finding) -> str:
    assert isinstance(said, Finding)
    assert (said.type, said.status) == (ConditionType.CREDENTIALS_VALID, ConditionStatus.FALSE)
    assert PASSWORD not in said.message
    return said.reason


@pytest.mark.parametrize(
    ("namespace", "vhost"), [("team-a", "/shop"), ("team-a", "billing:eu"), ("team-b", "/")]
)
def test_a_namespace_may_use_it_for_the_virtual_hosts_that_it_was_given(namespace: str, vhost: str) -> None:
    access = found(namespace, vhost)
    assert isinstance(access, BrokerAccess)
    assert (access.vhost, access.username, access.password) == (vhost, "admin", PASSWORD)


@pytest.mark.parametrize(
    ("namespace", "vhost"),
    [
        ("team-b", "/shop"),
        ("team-a", "/"),
        ("team-a", "shop"),
        ("team-a", "/SHOP"),
        ("team-a", "/shop/"),
        ("team-a", " /shop"),
        ("team-a", "%2Fshop"),
        ("team-a", ""),
        ("team", "/shop"),
        ("team-c", "/shop"),
    ],
)
def test_anything_else_is_refused_in_words_that_name_nobody_else(namespace: str, vhost: str) -> None:
    said = found(namespace, vhost)
    assert reason(said) == "AdministratorNotAllowed"
    assert isinstance(said, Finding)
    for others in {"team-a", "team-b", "billing:eu", "admin:", HOME} - {namespace}:
        assert others not in said.message
    assert f'the line "{namespace}: {vhost}"' in said.message


@pytest.mark.parametrize("line", ["team-a", "team-a /shop", "team-a:", ": /shop", "Team A: /shop", "*: /x"])
def test_a_line_that_is_not_understood_gives_nothing_to_anybody(line: str) -> None:
    said = found("team-a", "/shop", namespaces=f"team-a: /shop\n{line}\n")
    assert reason(said) == "InvalidValue"
    assert isinstance(said, Finding)
    assert "has a line 2 that is not NAMESPACE: VHOST" in said.message


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"namespaces": ""}, "KeyMissing"),
        ({"uri": "", "host": "rabbitmq"}, "KeyMissing"),
        ({"uri": f"amqp://admin:{PASSWORD}/@rabbitmq/"}, "InvalidUri"),
        ({"managementUrl": f"http://admin:{PASSWORD}@rabbitmq"}, "InvalidValue"),
        ({"managementUrl": "http://rabbitmq/?a=b"}, "InvalidValue"),
        ({"ca.crt": "none"}, "InvalidValue"),
    ],
)
def test_a_secret_that_will_not_do_is_told_as_any_other(data: dict[str, str], expected: str) -> None:
    assert reason(found("team-a", "/shop", **data)) == expected


def test_a_secret_that_is_not_there_is_told_with_the_command_that_makes_it() -> None:
    said = administrator_access("rabbitmq-admin", None, home=HOME, namespace="team-a", vhost="/shop")
    assert reason(said) == "SecretMissing"
    assert isinstance(said, Finding)
    assert f"--namespace {HOME} --from-literal=uri=" in said.message
    assert "--from-literal=namespaces='team-a: /shop'" in said.message


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, {"management_url": f"http://rabbitmq.{HOME}.svc:15672"}),
        (
            {"managementUrl": "https://rabbitmq:15671/prefix/"},
            {"management_url": f"https://rabbitmq.{HOME}.svc:15671/prefix"},
        ),
        (
            {"uri": URI.replace("rabbitmq:5672", "one:5672,two.example:5673")},
            {"host": f"one.{HOME}.svc", "other_hosts": (HostPort("two.example", 5673),)},
        ),
        (
            {"uri": "", "host": "one,two", "username": "admin", "password": PASSWORD, "ca.crt": CA},
            {
                "host": f"one.{HOME}.svc",
                "port": 5671,
                "tls": True,
                "other_hosts": (HostPort(f"two.{HOME}.svc", 5671),),
                "management_url": f"https://one.{HOME}.svc:15671,two.{HOME}.svc:15671",
                "ca": CA.rstrip(),
            },
        ),
    ],
    ids=["uri", "management URL", "several hosts", "keys"],
)
def test_hosts_are_those_of_the_operators_namespace_and_never_of_the_tenants(
    data: dict[str, str], expected: dict[str, Any]
) -> None:
    access = found("team-a", "/shop", **data)
    assert {name: getattr(access, name) for name in expected} == expected


def test_the_virtual_host_of_the_url_is_nobodys_choice() -> None:
    access = found("team-a", "/shop", uri=f"{URI}%2Fother")
    assert isinstance(access, BrokerAccess)
    assert access.vhost == "/shop"
    assert access.at("billing:eu") is not None
    assert access.at("/other") is None
    assert access.at("/") is None


@given(vhost=st.text(), namespace=st.text())
def test_no_namespace_and_no_name_of_a_virtual_host_comes_by_more(vhost: str, namespace: str) -> None:
    if (namespace, vhost) not in {("team-a", "/shop"), ("team-a", "billing:eu"), ("team-b", "/")}:
        assert reason(found(namespace, vhost)) == "AdministratorNotAllowed"


def test_only_secrets_that_the_settings_list_may_be_named() -> None:
    settings = Settings(lease_namespace=HOME, administrator_secrets=("rabbitmq-admin",))
    named = AdministratorSecretRef(name="rabbitmq-admin")
    assert settings.administrator_place(named) == (HOME, "rabbitmq-admin")
    assert settings.administrator_place(AdministratorSecretRef(name="tls")) is None
    assert settings.administrator_place(None) is None
    assert Settings().administrator_place(named) is None
