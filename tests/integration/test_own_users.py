"""Tests pass on services whose user has its name for a password."""

from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from outbox_cli.local import Services, use
from outbox_core.broker import Broker
from outbox_core.broker_errors import AuthenticationError
from tests.integration.administrator import management
from tests.own_users import own_users


def entered_as(url: str, user: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{user}@{parts.hostname}:{parts.port}"))


async def test_tests_enter_as_users_with_a_password_of_their_own(services: Services) -> None:
    same = "same_word"
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    management(services, "PUT", f"users/{same}", {"password": same, "tags": "administrator"})
    management(services, "PUT", f"permissions/%2F/{same}", everything)
    with psycopg.connect(services.postgres.url, autocommit=True) as postgres:
        role = sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}")
        postgres.execute(role.format(sql.Identifier(same), sql.Literal(same)))
        foreign = use(
            {
                "OUTBOX_POSTGRES_URL": entered_as(services.postgres.url, same),
                "OUTBOX_RABBITMQ_URL": entered_as(services.rabbitmq.url, same),
                "OUTBOX_RABBITMQ_MANAGEMENT_URL": entered_as(services.rabbitmq.management_url, same),
            }
        )
        try:
            with own_users(foreign) as own:
                urls = own.postgres.url, own.rabbitmq.url, own.rabbitmq.management_url
                assert not any(same in url for url in urls)
                assert management(own, "GET", "whoami")["name"] == urlsplit(own.rabbitmq.url).username
                async with Broker(own.rabbitmq.url, name="test"):
                    pass
                with psycopg.connect(own.postgres.url) as connection:
                    assert connection.info.user == urlsplit(own.postgres.url).username
            with pytest.raises(AuthenticationError):
                await Broker(own.rabbitmq.url, name="test").connect_once()
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(own.postgres.url)
        finally:
            management(services, "DELETE", f"users/{same}")
            postgres.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(same)))


def test_services_with_another_password_are_entered_as_they_are(services: Services) -> None:
    with own_users(services) as own:
        assert own == services
