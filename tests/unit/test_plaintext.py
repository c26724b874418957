import pytest

from outbox_core.plaintext import plain_hosts
from outbox_core.url_hosts import is_loopback
from outbox_operator.planning.findings import true, with_plain_parts
from outbox_operator.resources.condition import ConditionType


@pytest.mark.parametrize("host", ["localhost", "db.localhost", "127.0.0.1", "127.8.8.8", "::1", "::1%lo"])
def test_this_machine_is_known_by_its_names_and_addresses(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "db", "localhost.example", "10.0.0.1", "::2", "fe80::1%lo"])
def test_any_other_name_and_address_is_elsewhere(host: str) -> None:
    assert not is_loopback(host)


def test_hosts_of_a_broker_without_tls_are_those_of_other_machines() -> None:
    urls = ("amqp://a:b@rabbit/x", "amqp://localhost", "amqps://far", "amqp://[::1]:5", "amqp://[fd00::2]")
    assert plain_hosts(urls) == ("rabbit", "fd00::2")


def test_condition_of_credentials_says_what_is_entered_without_tls() -> None:
    entered = true(ConditionType.CREDENTIALS_VALID, "Valid")
    assert with_plain_parts(entered, []) == entered
    said = with_plain_parts(
        true(ConditionType.CREDENTIALS_VALID, "Valid", "so it is"), ["broker", "database"]
    )
    assert (said.status, said.reason) == (entered.status, entered.reason)
    first, broker, database = said.message.split(". ")
    assert (first, broker.split(";")[0]) == (
        "so it is",
        "the connection to the broker has no TLS: whoever is in between can read and change all of it",
    )
    assert database.endswith(
        "add sslmode=verify-full to the URL in its Secret, or set spec.database.caSecretRef"
    )
