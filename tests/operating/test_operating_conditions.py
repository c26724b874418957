"""The conditions tell the truth about Secrets, brokers and databases, and follow it by themselves."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from outbox import schema
from outbox_cli.local.ports import free_ports
from outbox_operator.reconciling import relays
from tests.operator.accounts import (
    NOTHING,
    broker_uri,
    broker_user,
    database_role,
    database_uri,
    tag_broker_user,
)
from tests.operator.control_plane.api import Manifest
from tests.operator.counting import api_writes, broker_writes, several_passes, watches_begun
from tests.operator.pods import Pods
from tests.operator.site import Site

_NEVER = 3600
"""A drift interval with which nothing but a watch can have noticed a change."""


def sql(site: Site, *statements: str) -> None:
    with psycopg.connect(site.postgres_url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def closed_port() -> int:
    [port] = free_ports(1)
    return port


def keys_of(url: str, path: str) -> dict[str, str]:
    """What a URL says, as keys of a Secret; `path` is what its path is called there."""
    parts = urlsplit(url)
    return {
        "host": parts.hostname or "",
        "port": str(parts.port),
        "username": parts.username or "",
        "password": parts.password or "",
        path: parts.path.removeprefix("/"),
    }


def without(values: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in names}


# Secrets.


async def test_a_failure_of_the_operator_itself_is_not_hidden_by_old_conditions(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = site.relay()
    site.make_secrets()
    site.api.create(relay)
    async with site.operating():
        await site.until_condition(relay)
        monkeypatch.setattr(relays, "plan", lambda _: 1 / 0)
        site.edit(relay, replicas=1)
        await site.until_condition(relay, "Ready", "Unknown", "InternalError")


async def test_a_secret_that_arrives_is_acted_on_at_once(site: Site) -> None:
    relay, listener = site.relay(), site.listener()
    async with site.operating(drift_seconds=_NEVER):
        site.api.create(relay)
        site.api.create(listener)
        missing = await site.until_condition(relay, "CredentialsValid", "False", "SecretMissing")
        assert 'Secret "shop-rabbitmq" does not exist in namespace' in missing["message"]
        assert (
            f"kubectl create secret generic shop-rabbitmq --namespace {site.namespace}" in missing["message"]
        )
        site.make_secret("shop-rabbitmq", uri=site.rabbitmq_url)
        missing = await site.until_condition(relay, "CredentialsValid", "False", "SecretMissing")
        await site.until(
            lambda: '"shop-db"' in site.condition(relay, "CredentialsValid")["message"],
            "the other Secret's name",
        )
        # Messages can already be received, whatever is the matter with the relay's own database.
        await site.until_condition(listener)
        assert site.condition(relay)["status"] == "False"
        site.make_secret("shop-db", uri=site.postgres_url)
        await site.until_condition(relay)


async def test_a_secret_that_goes_is_missed_at_once(site: Site) -> None:
    relay, listener = site.relay(), site.listener()
    site.make_secrets()
    site.api.create(relay)
    site.api.create(listener)
    async with site.operating(drift_seconds=_NEVER):
        await site.until_condition(relay)
        await site.until_condition(listener)
        site.delete({"kind": "Secret", "metadata": {"name": "shop-rabbitmq"}})
        await site.until_condition(relay, "Ready", "False", "SecretMissing")
        await site.until_condition(relay, "TopologyReady", "Unknown", "SecretMissing")
        told = await site.until_condition(listener, "RelayReady", "False", "SecretMissing")
        assert told["message"].startswith('OutboxRelay "shop": Secret "shop-rabbitmq" does not exist')
        site.make_secret("shop-rabbitmq", uri=site.rabbitmq_url)
        await site.until_condition(relay)
        await site.until_condition(listener)


async def test_a_change_of_a_secret_is_heard_of_without_asking(site: Site) -> None:
    # One Secret for both, so that the watch of another is not counted.
    relay = site.relay(database={"secretRef": {"name": "shop-rabbitmq"}})
    site.make_secret("shop-rabbitmq", uri="nonsense")
    site.api.create(relay)
    async with site.operating(drift_seconds=_NEVER) as operator:
        await site.until_condition(relay, "CredentialsValid", "False", "InvalidUri")
        # Whatever told of this: from here on it is watched.
        site.change_secret("shop-rabbitmq", uri="")
        await site.until_condition(relay, "CredentialsValid", "False", "KeyMissing")
        before = watches_begun(operator)
        site.change_secret("shop-rabbitmq", uri="nonsense")
        await site.until_condition(relay, "CredentialsValid", "False", "InvalidUri")
        assert watches_begun(operator) == before


async def test_a_missing_key_is_named_and_missed_no_more_when_it_is_there(site: Site) -> None:
    broker, database = keys_of(site.rabbitmq_url, "vhost"), keys_of(site.postgres_url, "database")
    site.make_secret("shop-rabbitmq", **without(broker, "username", "password"))
    site.make_secret("shop-db", **without(database, "password", "database"))
    relay = site.relay()
    site.api.create(relay)
    async with site.operating(drift_seconds=_NEVER):
        wrong = await site.until_condition(relay, "CredentialsValid", "False", "KeyMissing")
        assert 'Secret "shop-rabbitmq"' in wrong["message"]
        assert wrong["message"].endswith("or username and password")
        site.change_secret("shop-rabbitmq", **broker)
        await site.until(
            lambda: 'Secret "shop-db"' in site.condition(relay, "CredentialsValid")["message"],
            "the other's keys",
        )
        wrong = site.condition(relay, "CredentialsValid")
        assert (wrong["reason"], wrong["message"][-24:]) == ("KeyMissing", "or password and database")
        site.change_secret("shop-db", **database)
        await site.until_condition(relay)


async def test_a_wrong_broker_password_is_told_until_it_is_corrected(site: Site) -> None:
    relay, listener = site.relay(), site.listener()
    with broker_user(site, "right", tags="administrator") as user:
        site.make_secret("shop-db", uri=site.postgres_url)
        site.make_secret("shop-rabbitmq", uri=broker_uri(site, user, "mistaken"))
        site.api.create(relay)
        site.api.create(listener)
        async with site.operating(drift_seconds=_NEVER):
            wrong = await site.until_condition(relay, "CredentialsValid", "False", "AuthenticationFailed")
            assert f'user "{user}" is refused by {site.management_url}' in wrong["message"]
            assert "correct the Secret" in wrong["message"]
            assert "mistaken" not in wrong["message"]
            await site.until_condition(relay, "Ready", "False", "AuthenticationFailed")
            await site.until_condition(listener, "RelayReady", "False", "AuthenticationFailed")
            await site.until_condition(listener, "TopologyReady", "Unknown")
            # The one does not hide the other: the database is well.
            assert site.condition(relay, "DatabaseReady")["status"] == "True"
            site.change_secret("shop-rabbitmq", uri=broker_uri(site, user, "right"))
            await site.until_condition(relay)
            await site.until_condition(listener)


async def test_a_wrong_database_password_is_told_until_it_is_corrected(site: Site) -> None:
    relay = site.relay()
    with database_role(site, "right") as role:
        site.make_secret("shop-rabbitmq", uri=site.rabbitmq_url)
        site.make_secret("shop-db", uri=database_uri(site, role, "mistaken"))
        site.api.create(relay)
        async with site.operating(drift_seconds=_NEVER):
            wrong = await site.until_condition(relay, "CredentialsValid", "False", "AuthenticationFailed")
            assert role in wrong["message"]
            assert "mistaken" not in wrong["message"]
            assert site.condition(relay, "DatabaseReady")["status"] == "Unknown"
            assert site.condition(relay, "TopologyReady")["status"] == "True"
            site.change_secret("shop-db", uri=database_uri(site, role, "right"))
            await site.until_condition(relay)


# The broker.


async def test_a_broker_that_cannot_be_reached_is_named_without_its_password(site: Site) -> None:
    port = closed_port()
    relay, listener = site.relay(), site.listener()
    relay["spec"]["broker"]["managementUrl"] = f"http://127.0.0.1:{port}"
    site.make_secret("shop-db", uri=site.postgres_url)
    site.make_secret("shop-rabbitmq", uri=broker_uri(site, "shop", "hidden"))
    site.api.create(relay)
    site.api.create(listener)
    async with site.operating():
        away = await site.until_condition(relay, "CredentialsValid", "False", "Unreachable")
        assert away["message"].startswith(f"http://127.0.0.1:{port} cannot be reached: ")
        assert "set spec.broker.managementUrl" in away["message"]
        assert "hidden" not in away["message"]
        await site.until_condition(relay, "TopologyReady", "Unknown", "Unreachable")
        await site.until_condition(listener, "Ready", "False", "Unreachable")
        site.change_secret("shop-rabbitmq", uri=site.rabbitmq_url)
        site.edit(relay, broker={"managementUrl": site.management_url})
        await site.until_condition(relay)
        await site.until_condition(listener)


async def test_a_missing_virtual_host_is_told_until_somebody_makes_it(site: Site) -> None:
    vhost = f"{site.vhost}-later"
    relay, listener = site.relay(), site.listener()
    relay["spec"]["broker"]["vhost"] = vhost
    site.make_secrets()
    site.api.create(relay)
    site.api.create(listener)
    async with site.operating():
        wrong = await site.until_condition(relay, "CredentialsValid", "False", "VhostMissing")
        assert f'vhost "{vhost}" does not exist on {site.management_url}; make it' in wrong["message"]
        await site.until_condition(listener, "Ready", "False", "VhostMissing")
        site.broker("PUT", f"vhosts/{vhost}")
        try:
            await site.until_condition(relay)
            await site.until_condition(listener)
        finally:
            site.broker("DELETE", f"vhosts/{vhost}")


async def test_a_user_who_may_not_use_the_management_api_is_told_which_tag_it_needs(site: Site) -> None:
    relay = site.relay()
    with broker_user(site, "secret", tags="") as user:
        site.make_secret("shop-db", uri=site.postgres_url)
        site.make_secret("shop-rabbitmq", uri=broker_uri(site, user, "secret"))
        site.api.create(relay)
        async with site.operating():
            wrong = await site.until_condition(relay, "CredentialsValid", "False", "PermissionDenied")
            assert f'user "{user}" may not use the management API' in wrong["message"]
            assert "give it the tag management, or administrator" in wrong["message"]
            tag_broker_user(site, user, "secret", "administrator")
            await site.until_condition(relay)


async def test_credentials_that_may_not_manage_users_are_used_as_they_are(site: Site) -> None:
    relay = site.relay()
    listener = site.listener(worker={"image": "shop:1", "replicas": 0}, handler="shop:mail")
    with broker_user(site, "shared", tags="management") as user:
        uri = broker_uri(site, user, "shared")
        site.make_secret("shop-db", uri=site.postgres_url)
        site.make_secret("shop-rabbitmq", uri=uri)
        site.api.create(relay)
        site.api.create(listener)
        async with site.operating() as operator:
            for resource in (relay, listener):
                told = await site.until_condition(resource, "CredentialsValid", "True", "SharedCredentials")
                assert "give that user the tag administrator" in told["message"]
                await site.until_condition(resource, "TopologyReady")
            relays, workers = Pods(site, relay), Pods(site, listener)
            assert relays.secret() == {"broker-uri": uri, "database-uri": site.postgres_url}
            assert workers.secret() == {"broker-uri": uri}
            assert f"{site.namespace}.mail.dlq" in site.queues()
            assert site.broker_users() == set()

            # Given the tag, each gets a user of its own, without a touch of the resources or their pods.
            relays.roll_out()
            workers.roll_out()
            await several_passes(site, operator)
            tag_broker_user(site, user, "shared", "administrator")
            await site.until_condition(relay, "CredentialsValid", "True", "Valid")
            await site.until_condition(listener, "CredentialsValid", "True", "Valid")
            own = {urlsplit(pods.broker_uri).username for pods in (relays, workers)}
            assert own == site.broker_users()
            assert len(own) == 2


async def test_a_user_who_may_not_declare_is_told_what_it_needs(site: Site) -> None:
    relay, listener = site.relay(), site.listener()
    with broker_user(site, "secret", tags="management", configure=NOTHING) as user:
        site.make_secret("shop-db", uri=site.postgres_url)
        site.make_secret("shop-rabbitmq", uri=broker_uri(site, user, "secret"))
        site.api.create(relay)
        site.api.create(listener)
        async with site.operating():
            for resource in (relay, listener):
                wrong = await site.until_condition(resource, "TopologyReady", "False", "PermissionDenied")
                assert f'user "{user}" may not ' in wrong["message"]
                assert "rabbitmqctl set_permissions" in wrong["message"]
                await site.until_condition(resource, "Ready", "False", "PermissionDenied")
            everything = {"configure": ".*", "write": ".*", "read": ".*"}
            site.broker("PUT", f"permissions/{{vhost}}/{user}", everything)
            await site.until_condition(relay)
            await site.until_condition(listener)


# The database.


async def test_the_table_is_made_where_it_is_missing(site: Site) -> None:
    relay = site.relay(database={"secretRef": {"name": "shop-db"}, "table": "messages"})
    site.make_secrets()
    site.api.create(relay)
    async with site.operating():
        await site.until_condition(relay, "DatabaseReady", "True", "TableReady")
        await site.until_condition(relay)
    with psycopg.connect(site.postgres_url) as connection:
        assert schema.check_sync(connection, "messages") == []


async def test_a_table_that_migrations_make_is_waited_for(site: Site) -> None:
    relay = site.relay(database={"secretRef": {"name": "shop-db"}, "manageSchema": "Check"})
    site.make_secrets()
    site.api.create(relay)
    async with site.operating():
        wrong = await site.until_condition(relay, "DatabaseReady", "False", "SchemaMissing")
        assert 'table "outbox_table" does not exist' in wrong["message"]
        assert "outbox.schema.create_sql()" in wrong["message"]
        assert "spec.database.manageSchema to Create" in wrong["message"]
        assert site.condition(relay, "CredentialsValid")["status"] == "True"
        assert site.condition(relay, "TopologyReady")["status"] == "True"
        generation = site.get(relay)["metadata"]["generation"]
        sql(site, schema.create_sql())
        await site.until_condition(relay)
        assert site.get(relay)["metadata"]["generation"] == generation


@pytest.mark.parametrize("manage", ["Create", "Check"])
async def test_an_outdated_table_is_never_changed_but_named(site: Site, manage: str) -> None:
    sql(site, schema.create_sql(), "ALTER TABLE outbox_table DROP COLUMN last_error, DROP COLUMN timer_id")
    relay = site.relay(database={"secretRef": {"name": "shop-db"}, "manageSchema": manage})
    site.make_secrets()
    site.api.create(relay)
    async with site.operating() as operator:
        wrong = await site.until_condition(relay, "DatabaseReady", "False", "SchemaOutdated")
        assert "last_error" in wrong["message"]
        assert "timer_id" in wrong["message"]
        assert "upgrade_sql" in wrong["message"]
        await several_passes(site, operator)
        assert site.condition(relay, "DatabaseReady") == wrong
        sql(site, schema.upgrade_sql())
        await site.until_condition(relay)


async def test_a_table_that_is_changed_behind_the_operators_back_is_noticed(site: Site) -> None:
    relay = site.relay()
    site.make_secrets()
    site.api.create(relay)
    async with site.operating():
        await site.until_condition(relay)
        sql(site, "ALTER TABLE outbox_table DROP COLUMN headers")
        wrong = await site.until_condition(relay, "Ready", "False", "SchemaOutdated")
        assert "headers" in wrong["message"]


async def test_lacking_rights_on_the_table_are_told_with_the_grant(site: Site) -> None:
    sql(site, schema.create_sql())
    relay = site.relay()
    with database_role(site, "right") as role:
        site.make_secret("shop-rabbitmq", uri=site.rabbitmq_url)
        site.make_secret("shop-db", uri=database_uri(site, role, "right"))
        site.api.create(relay)
        async with site.operating():
            wrong = await site.until_condition(relay, "DatabaseReady", "False", "PermissionDenied")
            cure = wrong["message"].rpartition("run ")[2]
            assert cure.startswith("GRANT ")
            sql(site, cure)
            await site.until_condition(relay)


def _database_away(site: Site) -> str:
    parts = urlsplit(site.postgres_url)
    return f"postgresql://{parts.username}:hidden@127.0.0.1:{closed_port()}/shop"


def _database_missing(site: Site) -> str:
    return f"{site.postgres_url}_later"


@pytest.mark.parametrize(
    ("uri", "kind", "reason", "named"),
    [
        (_database_away, "CredentialsValid", "Unreachable", "127.0.0.1:"),
        (_database_missing, "DatabaseReady", "DatabaseMissing", "_later"),
    ],
)
async def test_a_database_that_cannot_be_entered_is_named(
    site: Site, uri: Callable[[Site], str], kind: str, reason: str, named: str
) -> None:
    relay, listener = site.relay(), site.listener()
    site.make_secret("shop-rabbitmq", uri=site.rabbitmq_url)
    site.make_secret("shop-db", uri=uri(site))
    site.api.create(relay)
    site.api.create(listener)
    async with site.operating():
        wrong = await site.until_condition(relay, kind, "False", reason)
        assert named in wrong["message"]
        assert "hidden" not in wrong["message"]
        await site.until_condition(relay, "Ready", "False", reason)
        # A listener needs the relay's broker, not its database.
        await site.until_condition(listener)
        site.change_secret("shop-db", uri=site.postgres_url)
        await site.until_condition(relay)


async def test_a_database_that_is_made_later_is_found_by_itself(site: Site) -> None:
    relay, url = site.relay(), _database_missing(site)
    site.make_secret("shop-rabbitmq", uri=site.rabbitmq_url)
    site.make_secret("shop-db", uri=url)
    site.api.create(relay)
    name = urlsplit(url).path.removeprefix("/")
    async with site.operating(drift_seconds=_NEVER):
        await site.until_condition(relay, "DatabaseReady", "False", "DatabaseMissing")
        sql(site, f'CREATE DATABASE "{name}"')
        await site.until_condition(relay)
    sql(site, f'DROP DATABASE "{name}" WITH (FORCE)')


# What is written, and when.


def _ages(site: Site, resource: Manifest) -> dict[str, str]:
    """Since when each condition has been as it is."""
    return {each["type"]: each["lastTransitionTime"] for each in site.status(resource)["conditions"]}


async def test_the_time_of_a_condition_moves_only_with_its_status(site: Site) -> None:
    relay = site.relay()
    site.make_secrets()
    site.api.create(relay)
    async with site.operating():
        await site.until_condition(relay)
    # As if it had been so for years: the API server's times have whole seconds.
    long_ago = "2020-01-01T00:00:00Z"
    conditions = [{**each, "lastTransitionTime": long_ago} for each in site.status(relay)["conditions"]]
    patch = {"status": {"conditions": conditions}}
    site.api.request("PATCH", f"{site.path_of(relay)}/status", patch, "application/merge-patch+json")
    async with site.operating() as operator:
        await several_passes(site, operator)
        assert set(_ages(site, relay).values()) == {long_ago}

        # Another reason, and another generation, of the same status.
        site.edit(relay, replicas=1)
        await site.until_condition(relay, "WorkloadAvailable", "False", "Progressing")
        ages = _ages(site, relay)
        assert {kind for kind, age in ages.items() if age != long_ago} == {"WorkloadAvailable", "Ready"}

        site.edit(relay, replicas=0)
        await site.until_condition(relay)
        site.delete({"kind": "Secret", "metadata": {"name": "shop-db"}})
        await site.until_condition(relay, "CredentialsValid", "False", "SecretMissing")
        first = _ages(site, relay)
        assert first["TopologyReady"] == long_ago
        assert first["CredentialsValid"] != long_ago
        assert first["DatabaseReady"] != long_ago


async def test_another_reason_is_not_another_time(site: Site) -> None:
    relay = site.relay()
    site.api.create(relay)
    async with site.operating():
        await site.until_condition(relay, "CredentialsValid", "False", "SecretMissing")
    long_ago = "2020-01-01T00:00:00Z"
    conditions = [{**each, "lastTransitionTime": long_ago} for each in site.status(relay)["conditions"]]
    patch = {"status": {"conditions": conditions}}
    site.api.request("PATCH", f"{site.path_of(relay)}/status", patch, "application/merge-patch+json")
    async with site.operating():
        site.make_secret("shop-rabbitmq", username="shop")
        await site.until_condition(relay, "CredentialsValid", "False", "KeyMissing")
        assert set(_ages(site, relay).values()) == {long_ago}


def _versions(site: Site, *resources: Manifest) -> list[str]:
    return [site.get(resource)["metadata"]["resourceVersion"] for resource in resources]


async def test_a_second_look_writes_nothing(site: Site) -> None:
    relay = site.relay(replicas=2)
    listener = site.listener(worker={"image": "shop:1", "replicas": 2}, handler="shop:mail")
    plain = site.listener("plain")
    site.make_secrets()
    for resource in (relay, listener, plain):
        site.api.create(resource)
    async with site.operating() as operator:
        await site.until_condition(relay, "WorkloadAvailable", "False", "Progressing")
        await site.until_condition(listener, "WorkloadAvailable", "False", "Progressing")
        await site.until_condition(plain)
        await several_passes(site, operator)
        before = api_writes(operator), broker_writes(operator), _versions(site, relay, listener, plain)
        await several_passes(site, operator, 5)
        assert (
            api_writes(operator),
            broker_writes(operator),
            _versions(site, relay, listener, plain),
        ) == before


async def test_trouble_that_lasts_is_written_once(site: Site) -> None:
    """The same wrong credentials, a missing table and a missing relay over and over: no news, no writes."""
    relay = site.relay(database={"secretRef": {"name": "shop-db"}, "manageSchema": "Check"})
    astray = site.listener("astray", relayRef={"name": "nobody"})
    site.make_secrets()
    site.api.create(relay)
    site.api.create(astray)
    async with site.operating() as operator:
        await site.until_condition(relay, "Ready", "False", "SchemaMissing")
        await site.until_condition(astray, "Ready", "False", "RelayMissing")
        await several_passes(site, operator)
        before = api_writes(operator), _versions(site, relay, astray)
        told = len(site.events(relay)), len(site.events(astray))
        await several_passes(site, operator, 5)
        assert (api_writes(operator), _versions(site, relay, astray)) == before
        assert (len(site.events(relay)), len(site.events(astray))) == told == (1, 1)


async def test_the_observed_generation_follows_an_edit(site: Site) -> None:
    relay, listener = site.relay(), site.listener()
    site.make_secrets()
    site.api.create(relay)
    site.api.create(listener)
    async with site.operating(drift_seconds=_NEVER):
        for change, resource in ({"batchSize": 7}, relay), ({"bindingKeys": ["user.*"]}, listener):
            await site.until_condition(resource)
            edited = site.edit(resource, **change)
            generation: Any = edited["metadata"]["generation"]
            assert generation == 2
            await site.until_condition(resource)
            status = site.status(resource)
            assert status["observedGeneration"] == generation
            assert {each["observedGeneration"] for each in status["conditions"]} == {generation}
        assert site.bindings(f"{site.namespace}.mail") == {("outbox", "user.*")}
